"""``num_workers=0``: samples are made in the calling process, one batch at a time, when it is asked for.

The trial's own generators are left as they were: samples draw from streams of their own here, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from trials.data.core.in_order_pipeline import PAUSE, Plan
from trials.data.core.loader_stats import Stats
from trials.data.core.randomness import Captured, GlobalGenerators
from trials.data.core.worker_messages import Failure, IterableBegin, Part, failure
from trials.data.errors import LoaderClosed, SampleError
from trials.data.workers.batch_assembly import Assembled, raise_failure
from trials.data.workers.iterable_reader import IterableReader
from trials.data.workers.sample_maker import Recipe, SampleMaker, called_in_errors, number_of
from trials.data.workers.together import WrongAnswerError, named_together

HERE = "the calling process"


class InlineBatches:
    """Used as the prefetcher is (``prefetcher.py``), without anything ahead of time."""

    def __init__(self, recipe: Recipe, stats: Stats) -> None:
        self._recipe = recipe
        self._stats = stats
        self._maker = SampleMaker(recipe, globals_too=True)
        self._generators = GlobalGenerators()
        self._plans: Iterator[Plan] = iter(())
        self._epoch = 0
        self._reader: IterableReader | None = None
        self._closed = False

    def begin(self, epoch: int, plans: Iterator[Plan], begin: IterableBegin | None = None) -> None:
        self._plans, self._epoch = plans, epoch
        self._reader = None if begin is None else IterableReader(self._recipe.iterable, begin)

    def next(self) -> tuple[Plan, Assembled] | None:
        if self._closed:
            raise LoaderClosed
        plan = next(self._plans, None)
        while plan is PAUSE:
            plan = next(self._plans, None)
        if plan is None:
            return None
        begun = time.perf_counter()
        assembled = self._guarded(plan) if self._reader is None else self._read(plan, self._reader)
        taken = time.perf_counter() - begun
        self._stats.decode_s += taken
        self._stats.wait_s += taken
        return plan, assembled

    def abandon(self) -> None:
        self._plans = iter(())

    def close(self, timeout_s: float) -> None:  # noqa: ARG002  # there is nothing to wait for
        self._closed = True

    def draws(self, items: Sequence[Any]) -> bool:
        """Whether these samples, or those looked at before, draw from the global generators."""
        self._guarded(Plan(0, len(items), items), collate=False)
        return bool(self._maker.drawn)

    def time_of(self, items: Sequence[Any]) -> float:
        """Seconds to load and collate these samples; 0 when one of them raises, which is told in its turn."""
        begun = time.perf_counter()
        try:
            self._guarded(Plan(0, len(items), items))
        except SampleError:
            return 0.0
        return time.perf_counter() - begun

    def _guarded(self, plan: Plan, *, collate: bool = True) -> Assembled:
        before = self._generators.capture()
        try:
            while True:
                drawn = self._maker.drawn
                made = self._assembled(plan) if collate else self._tried(plan)
                new = self._generators.changed(before) - drawn
                if not new:
                    return made
                self._maker.drawn = drawn | new
                self._generators.put_back(before, new)
        finally:
            if self._maker.drawn:
                self._put_back(before)

    def _put_back(self, before: Captured) -> None:
        self._generators.put_back(before, self._maker.drawn)

    def _assembled(self, plan: Plan) -> Assembled:
        failures: list[Failure] = []
        samples = list(plan.items) if plan.ready else self._samples(plan, failures)
        if not samples:
            return Assembled(value=None, empty=True, skipped=tuple(failures))
        return Assembled(value=self._collated(plan, samples), skipped=tuple(failures), samples=len(samples))

    def _tried(self, plan: Plan) -> Assembled:
        with suppress(SampleError):
            self._samples(plan, [], skip=True)
        return Assembled(value=None, empty=True)

    def _samples(self, plan: Plan, failures: list[Failure], *, skip: bool = False) -> list[Any]:
        skip = skip or self._recipe.skip_errors
        if not self._maker.asks_together or not plan.items:
            return self._one_by_one(plan, failures, skip=skip)
        try:
            return self._maker.make_together(self._maker.keys(self._epoch), plan.items)
        except Exception as error:  # noqa: BLE001  # a dataset may raise anything; it becomes a SampleError
            samples: list[Any] = []
            if not isinstance(error, WrongAnswerError):
                samples = self._one_by_one(plan, failures, skip=skip)  # which of them is it
            if not skip or isinstance(error, WrongAnswerError):
                raise_failure(failure(0, named_together(plan.items), error), HERE, error)
            return samples

    def _one_by_one(self, plan: Plan, failures: list[Failure], *, skip: bool) -> list[Any]:
        keys, load = self._maker.keys(self._epoch), self._recipe.load
        if load is not None and not self._maker.drawn and self._recipe.transform is None and not skip:
            items = iter(plan.items)
            try:
                samples = list(map(load, items))
                if len(samples) < len(plan.items):
                    raise StopIteration  # as the dataset did, which list() takes for the end
                return samples
            except Exception as error:  # noqa: BLE001  # a dataset may raise anything; it becomes a SampleError
                row = len(plan.items) - len(list(items)) - 1
                raise_failure(failure(row, called_in_errors(plan.items[row]), error), HERE, error)
        samples = []
        for row, item in enumerate(plan.items):
            try:
                samples.append(self._maker.make(keys, item, number_of(item)))
            except Exception as error:  # noqa: BLE001  # a dataset may raise anything; it becomes a SampleError
                failures.append(failure(row, called_in_errors(item), error))
                if not skip:
                    raise_failure(failures[0], HERE, error)
        return samples

    def _collated(self, plan: Plan, samples: list[Any]) -> Any:
        try:
            return self._recipe.collate(samples)
        except Exception as error:  # noqa: BLE001  # a collate function may raise anything; it becomes a SampleError
            what = f"{plan.begin} to {plan.end} (collating them)"
            raise_failure(failure(0, what, error), HERE, error)

    def _read(self, plan: Plan, reader: IterableReader) -> Assembled:
        """Once, whatever it draws: an iterable that is asked again reads on."""
        before = self._generators.capture()
        try:
            return self._next_of(plan, reader)
        finally:
            self._generators.put_back(before)

    def _next_of(self, plan: Plan, reader: IterableReader) -> Assembled:
        part = Part(0, 0, len(plan.items), 0, plan.items)
        read = reader.batch(part, self._maker, drop_last=self._recipe.drop_last)
        if read.failure is not None:
            self._plans = iter(())
            raise_failure(read.failure, HERE)
        if read.ended:
            self._plans = iter(())
        if not read.samples:
            return Assembled(value=None, empty=True, source_state=read.state)
        value = self._collated(plan, read.samples)
        return Assembled(value=value, samples=len(read.samples), source_state=read.state)
