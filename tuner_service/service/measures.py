"""What the service counts of itself, for whoever watches it.

Each measure is written by one thread alone, and read by any: nothing is locked, and what is read is of about now.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trials.wire.messages import Busy
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import Command, RejectedRecord, ReportsReceived
from tuner_service.dispatcher.effects import Effect, Tell
from tuner_service.dispatcher.routing import LineKind
from tuner_service.domain.experiment import Experiment, ExperimentId, ExperimentStatus
from tuner_service.domain.trial import TrialStatus

COMMIT_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LAG_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
DISPATCH_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)
REQUEST_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# A trial says itself when it reported, and its clock may say anything.
LONGEST_LAG_S = 86_400.0
_ENDED, _LAUNCHED = LineKind.ATTEMPT_ENDED.value, LineKind.ATTEMPT_LAUNCHED.value


class Histogram:
    """How many values there were up to each bound, and their sum.

    That of prometheus_client takes two locks for each value, and goes through all bounds in Python.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)  # the last one: beyond every bound
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(kw_only=True)
class Measures:
    """Of the runner, which alone writes them, after each of its commits."""

    commit: Histogram = field(default_factory=lambda: Histogram(COMMIT_BOUNDS_S))
    report_lag: Histogram = field(default_factory=lambda: Histogram(LAG_BOUNDS_S))
    dispatch: Histogram = field(default_factory=lambda: Histogram(DISPATCH_BOUNDS_S))
    reports: int = 0  # rows of metrics that are on the disk
    failed_steps: int = 0  # whose changes could not be saved
    _free_since: dict[ExperimentId, deque[float]] = field(default_factory=dict)  # places of trials, oldest first

    def committed(self, changes: Changes, *, seconds: float, at: float) -> None:
        """``changes`` are on the disk since ``at``, which took so long."""
        self.commit.observe(seconds)
        self.reports += len(changes.metrics)
        self._see_places(changes, at)

    def acknowledged(self, commands: Iterable[Command], effects: Iterable[Effect], *, at: float) -> None:
        """The reports of ``commands`` that were taken are on the disk since ``at``.

        Of each message the oldest one counts: that costs the same for one report and for thousands.
        """
        taken = [command for command in commands if isinstance(command, ReportsReceived)]
        if not taken:
            return
        told = (effect.message for effect in effects if isinstance(effect, Tell))
        refused = {message.nonce for message in told if isinstance(message, Busy)}
        for command in taken:
            first = command.records[0] if command.records else None
            if first is not None and not isinstance(first, RejectedRecord) and command.nonce not in refused:
                # In this order, so that a time that is no number counts as none.
                self.report_lag.observe(min(LONGEST_LAG_S, max(0.0, at - first.at)))

    def _see_places(self, changes: Changes, at: float) -> None:
        """An attempt that ends leaves a place, which the next one to be launched of its experiment takes."""
        for line in changes.journal:
            if line.kind == _ENDED:
                self._free_since.setdefault(line.experiment_id, deque()).append(line.at)
            elif line.kind == _LAUNCHED and (places := self._free_since.get(line.experiment_id)):
                self.dispatch.observe(max(0.0, at - places.popleft()))
        if self._free_since:
            for experiment in changes.experiments.values():
                self._drop_places(experiment)
            for experiment_id in changes.deleted_experiments:
                self._free_since.pop(experiment_id, None)

    def _drop_places(self, experiment: Experiment) -> None:
        """Those that nothing is to be launched in: of an experiment that does not run, or runs fewer at a time."""
        places = self._free_since.get(experiment.id)
        if places is None:
            return
        busy = sum(experiment.counts.get(status.value, 0) for status in (TrialStatus.RUNNING, TrialStatus.STOPPING))
        free = experiment.spec.budget.parallel - busy
        if experiment.status is not ExperimentStatus.RUNNING or experiment.spec.trial.is_asked_for:
            free = 0
        while len(places) > max(0, free):
            places.popleft()
        if not places:
            del self._free_since[experiment.id]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One kind of request, by what may be counted of it: a route's template, and never a path that somebody sent."""

    method: str
    route: str
    status: str  # 2xx


@dataclass(kw_only=True)
class RequestMeasures:
    """Of the event loop, which alone writes them."""

    answered: dict[Answered, int] = field(default_factory=dict)
    durations: dict[tuple[str, str], Histogram] = field(default_factory=dict)  # by method and route

    def see(self, request: Answered, seconds: float) -> None:
        self.answered[request] = self.answered.get(request, 0) + 1
        key = (request.method, request.route)
        histogram = self.durations.get(key)
        if histogram is None:
            histogram = self.durations[key] = Histogram(REQUEST_BOUNDS_S)
        histogram.observe(seconds)
