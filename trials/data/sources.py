"""Data sources in DI-engine's sense: asked for a batch, they return samples, or functions for the workers to run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from trials.data.pipeline import PAUSE, Plan
from trials.data.work import Call

Source = Callable[[int], Any]


def called(item: Call) -> Any:
    """What workers do with the functions of a source."""
    return item.function()


def is_source(dataset: Any) -> bool:
    return callable(dataset) and not hasattr(dataset, "__getitem__") and not hasattr(dataset, "__iter__")


class AskedPlans(Iterator[Plan]):
    """A source asked in the calling process, when a batch is wanted. None or an empty list is its end."""

    def __init__(self, source: Source, *, begin: int, batch_size: int) -> None:
        self._source = source
        self._number = begin
        self._batch_size = batch_size

    def __next__(self) -> Plan:
        given = self._source(self._batch_size)
        if given is None or len(given) == 0:
            raise StopIteration
        items = list(given)
        first, self._number = self._number, self._number + len(items)
        ready = not callable(items[0])
        if not ready:
            items = [Call(first + row, function) for row, function in enumerate(items)]
        state = self._source.state_dict() if hasattr(self._source, "state_dict") else None
        return Plan(first, self._number, items, ready, state)


class AheadPlans(Iterator[Plan]):
    """A source asked in a thread of its own, since it may wait for its coordinator. It is asked only for batches that
    there is credit for, so what it hands out is not lost in a queue."""

    def __init__(self, plans: AskedPlans, arrived: Callable[[], None]) -> None:
        self._plans = plans
        self._arrived = arrived
        self._changed = threading.Condition()
        self._credit = 0
        self._found: deque[Plan] = deque()
        self._end: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._ask, name="data source", daemon=True)
        self._thread.start()

    def allow(self, credit: int) -> None:
        """So many batches may be had: those found and not fetched yet count."""
        with self._changed:
            if credit != self._credit:
                self._credit = credit
                self._changed.notify_all()

    def close(self) -> None:
        """It is not asked any more; one that does not answer is left alone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __next__(self) -> Plan:
        with self._changed:
            if self._found:
                self._credit -= 1
                return self._found.popleft()
            if self._end is None:
                return PAUSE
            raise self._end

    def _ask(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._credit > len(self._found))
                if self._closed:
                    return
            try:
                plan = next(self._plans)
            except BaseException as error:  # noqa: BLE001  # it is raised where the batch would have been
                with self._changed:
                    self._end = error
                self._arrived()
                return
            with self._changed:
                self._found.append(plan)
            self._arrived()
