"""Data sources in DI-engine's sense: asked for a batch, they return samples, or functions for the workers to run."""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import partial
from itertools import islice
from typing import Any

from trials.data.core.in_order_pipeline import PAUSE, Plan
from trials.data.core.worker_messages import Call
from trials.data.errors import SourceError
from trials.processes.forking import LoopThread

ITERATION = "cur_learner_iter"  # what a source names that wants to be told it
Source = Callable[..., Any]


def called(item: Call) -> Any:
    """What workers do with the functions of a source."""
    return item.function()


def is_source(dataset: Any) -> bool:
    return callable(dataset) and not hasattr(dataset, "__getitem__") and not hasattr(dataset, "__iter__")


def wants_iteration(source: Source) -> bool:
    """Whether it has a parameter ``cur_learner_iter``, or takes any name."""
    try:
        parameters = inspect.signature(source).parameters.values()
    except (TypeError, ValueError):
        return False  # of a callable that is not written in Python nothing is known
    return any(p.kind is p.VAR_KEYWORD or (p.name == ITERATION and p.kind is not p.POSITIONAL_ONLY) for p in parameters)


class AskedPlans(Iterator[Plan]):
    """A source asked in the calling process, when a batch is wanted. None or an empty list is its end.

    It gives as many samples as it is asked for; only its last batch may be shorter. SourceError otherwise, after which
    it is asked no more. ``iteration``: batches that were handed out before, in all epochs; a source that has a
    parameter ``cur_learner_iter`` is told the number of those before the batch it is asked for.
    """

    def __init__(
        self, source: Source, *, begin: int, batch_size: int, drop_last: bool = False, iteration: int = 0
    ) -> None:
        self._source = source
        self._is_told = wants_iteration(source)
        self._iteration = iteration
        self._number = begin
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._short: int | None = None  # samples of a batch that must have been the last
        self._ended = False

    def __next__(self) -> Plan:
        items = [] if self._ended else self._asked()
        if not items:
            self._ended = True
            raise StopIteration
        first, self._number = self._number, self._number + len(items)
        self._iteration += 1
        ready = not callable(items[0])
        if not ready:
            items = [Call(first + row, function) for row, function in enumerate(items)]
        state = self._source.state_dict() if hasattr(self._source, "state_dict") else None
        return Plan(first, self._number, items, ready, state)

    def _asked(self) -> list[Any]:
        ask = partial(self._source, **{ITERATION: self._iteration}) if self._is_told else self._source
        short, asked = self._short, self._batch_size
        try:
            given = ask(asked)
        except StopIteration as error:  # of a next() in it; what it had taken for this batch would be lost unnoticed
            self._ended = True
            raise SourceError(
                f"the data source was asked for {asked} samples and raised StopIteration: give those that are left, "
                "and then None"
            ) from error
        items = self._listed(given, asked)
        if items and short is not None:
            self._ended = True
            raise SourceError(
                f"the data source was asked for {asked} samples and gave {short}, and then went on: only its last "
                f"batch may be shorter; give {asked} samples each time, and None where there are no more"
            )
        if len(items) > asked:
            self._ended = True
            raise SourceError(
                f"the data source was asked for {asked} samples and gave {len(items)}: "
                "give a list of as many as it is asked for, and keep the others for the next time"
            )
        if 0 < len(items) < asked:
            self._short = len(items)
            return [] if self._drop_last else items
        return items

    def _listed(self, given: Any, asked: int) -> list[Any]:
        """Its samples; of a generator, which may never end, one more than there may be."""
        if given is None:
            return []
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            self._ended = True
            raise SourceError(
                f"the data source was asked for {asked} samples and gave a {type(given).__name__}: give a list of "
                "samples, or of functions that load them; the loader makes the batch"
            )
        return list(given) if isinstance(given, Sized) else list(islice(given, asked + 1))


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
        self._asking = False
        self._thread: LoopThread | None = None

    def allow(self, credit: int) -> None:
        """So many batches may be had: those found and not fetched yet count."""
        with self._changed:
            if self._thread is None and not self._closed:
                # The thread starts only now: the fork server of the workers has been forked from this process, and a
                # fork beside a thread that runs code of the trial's would not be safe.
                self._thread = LoopThread(self._ask, self._changed, name="data source", busy=lambda: self._asking)
                self._thread.start()
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
                self._asking = True
            try:
                plan = next(self._plans)
            except BaseException as error:  # noqa: BLE001  # it is raised where the batch would have been
                with self._changed:
                    self._end, self._asking = error, False
                self._arrived()
                return
            with self._changed:
                self._asking = False
                self._found.append(plan)
            self._arrived()
