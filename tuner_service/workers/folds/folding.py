"""How an algorithm's queue becomes its memory and its answers: a fold, line by line. No process, no clock, no file.

``take`` answers every line exactly once. Folding the same lines again gives the same memory, and so does loading
``state_dict`` as of some line and folding the later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, overload

from tuner_service.assessors.base import Assessor, Keep, Stop
from tuner_service.dispatcher.items import (
    Answer,
    AssessorItem,
    CustomTrialAdded,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    ResultsImported,
    SearchSpaceUpdated,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    Taken,
    TrialEnded,
    TunerItem,
)
from tuner_service.domain.search_space import SearchSpace, parse_search_space
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.trial import Parameters, Report
from tuner_service.domain.values import VALUE_DEPTH, value_faults
from tuner_service.tuners.base import Exhausted, NotYet, Suggestion, Tuner, snapshot_of
from tuner_service.workers.faults import MESSAGE_LIMIT
from tuner_service.workers.inside import require_inside

REPORTS_LIMIT = 1_000_000  # of one running trial; one more is the assessor's fault, with a message to report less often

State = dict[str, Any]


def nothing_follows() -> None:
    """For a fold whose progress nobody wants to hear of."""


class TunerFold:
    """The tuner's queue. ``space``: where suggestions have to lie, unless the tuner may leave it; None: anywhere."""

    def __init__(self, tuner: Tuner, *, seed: int, space: SearchSpace | None = None) -> None:
        self._tuner = tuner
        self._space = None if tuner.may_leave_space else space
        self._seed = tuner.experiment_seed = seed
        self._ahead: dict[int, Callable[[], Suggestion]] = {}  # suggestions being computed, by line
        self._observed: dict[int, Callable[[], None]] = {}  # ends of trials that are being told, by line
        self._beside: list[Parameters] = []  # what was suggested for lines computed at the same time
        self._search_space: dict[str, Any] | None = None  # the newest, where it was changed
        self.on_report = nothing_follows  # a tuner is told of none

    def take(self, item: TunerItem) -> Answer:
        """Fold one line. A request with ``recorded`` parameters is not asked again: they stand."""
        match item:
            case SuggestionRequested(recorded=None):
                return self._suggest(item)
            case SuggestionRequested():
                self._tuner.recorded(item.number, plain_copy(item.recorded))
            case CustomTrialAdded():
                self._tuner.pending(item.number, plain_copy(item.parameters))
            case TrialEnded():
                self._observed.pop(item.line, partial(self._tuner.observe, item.outcome))()
            case ResultsImported():
                self._tuner.import_results(item.outcomes)
            case SearchSpaceUpdated():
                self._change_space(item.search_space)
        return Taken(line=item.line)

    def suggest_ahead(self, items: Sequence[SuggestionRequested], pool: Executor) -> None:
        """Begin to compute, at the same time, what these lines ask for; the next to be taken are exactly they."""
        self._beside = []
        self._ahead = {item.line: pool.submit(self._ask, item).result for item in items}

    def observe_ahead(self, items: Sequence[TrialEnded], pool: Executor) -> None:
        """Likewise, of the ends of trials; each is done when its line was taken."""
        self._observed = {item.line: pool.submit(self._tuner.observe, item.outcome).result for item in items}

    @property
    def suggests_in_parallel(self) -> bool:
        return self._tuner.suggests_in_parallel

    @property
    def observes_in_parallel(self) -> bool:
        return self._tuner.observes_in_parallel

    @property
    def asks_ahead(self) -> bool:
        return not self._tuner.needs_outcomes

    @property
    def choice(self) -> str:
        return choice_of(self._tuner)

    def state_dict(self) -> State | None:
        """JSON values for ``load_state_dict``; None where the tuner keeps no snapshots."""
        state = snapshot_of(self._tuner)
        return None if state is None else {"search_space": self._search_space, "tuner": state}

    def load_state_dict(self, state: State) -> None:
        """Into a fold that has taken nothing, whose tuner was built as the first one was."""
        if state["search_space"] is not None:
            self._change_space(state["search_space"])
        load_snapshot(self._tuner, state["tuner"])

    def _change_space(self, raw: dict[str, Any]) -> None:
        space = parse_search_space(raw)
        self._tuner.update_search_space(space)
        self._search_space = raw
        self._space = None if self._space is None else space

    def _suggest(self, item: SuggestionRequested) -> Answer:
        ahead = self._ahead.pop(item.line, None)
        suggestion = self._ask(item) if ahead is None else ahead()
        if ahead is not None and suggestion in self._beside:
            suggestion = self._ask(item)  # by now it knows of the others
        match suggestion:
            case NotYet():
                return NoSuggestionYet(line=item.line)
            case Exhausted():
                return NoMoreSuggestions(line=item.line)
            case _:
                parameters = plain_parameters(suggestion)
                if self._space is not None:
                    require_inside(self._space, parameters, by="the tuner")
                self._tuner.pending(item.number, plain_copy(parameters))
                if ahead is not None:
                    self._beside.append(parameters)
                return Suggested(line=item.line, parameters=parameters)

    def _ask(self, item: SuggestionRequested) -> Suggestion:
        return self._tuner.suggest(item.number, suggestion_generator(self._seed, item.number, item.index))


def choice_of(algorithm: object) -> str:
    """What an algorithm that chooses among others as it goes does now, and why; for people. Empty of any other."""
    return str(getattr(algorithm, "choice", ""))


class ReportHistory(Sequence[Report]):
    """The first ``length`` reports of a trial, without a copy of them; later ones do not show."""

    __slots__ = ("_length", "_reports")

    def __init__(self, reports: list[Report], length: int) -> None:
        self._reports, self._length = reports, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Report: ...
    @overload
    def __getitem__(self, index: slice) -> list[Report]: ...
    def __getitem__(self, index: int | slice) -> Report | list[Report]:
        if isinstance(index, slice):
            return [self._reports[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(f"there are {self._length} reports")
        return self._reports[index if index >= 0 else self._length + index]


@dataclass(slots=True, kw_only=True)
class _LiveTrial:
    """``view`` judges it in a deterministic experiment; ``version``: how many ends the view was told of."""

    reports: list[Report] = field(default_factory=list)
    stopped: bool = False
    view: Assessor | None = None
    version: int = 0


class AssessorFold:
    """The assessor's queue.

    Normally one assessor is told everything in journal order. In a deterministic experiment verdicts must not depend
    on how the reports of different trials fell between one another: the *base* is told of a trial only when that
    has ended (each of its reports in order, then its end), and a trial is judged by its own fork of the base, made
    at the line where the trial was decided (or at its first report, where no such line came). So a verdict depends
    on the trial's own reports and on the ends told before it was decided, and on nothing else.

    Once a trial is stopped its further reports are left out.
    """

    choice = ""  # no assessor chooses as it goes

    def __init__(self, assessor: Assessor, *, deterministic: bool = False) -> None:
        self._base = assessor
        self._deterministic = deterministic
        self._live: dict[int, _LiveTrial] = {}
        self._version = 0
        self.on_report = nothing_follows  # called for each report that was assessed

    def take(self, item: AssessorItem) -> Answer:
        """Fold one line."""
        match item:
            case SuggestionRequested() | CustomTrialAdded():
                further = isinstance(item, SuggestionRequested) and item.index > 0
                if self._deterministic and not further:
                    self._live[item.number] = self._new_trial()
                return Taken(line=item.line)
            case MetricsReported():
                return self._judge(item)
            case TrialEnded():
                self._end(item)
                return Taken(line=item.line)

    def state_dict(self) -> State | None:
        """JSON values for ``load_state_dict``; None where the assessor keeps no snapshots."""
        base = snapshot_of(self._base)
        if base is None:
            return None
        views: dict[str, State | None] = {}
        live = []
        for number, trial in self._live.items():
            key = None
            if trial.view is not None:
                # Views of one version differ only by what they learned of their own trials.
                key = f"trial {number}" if self._base.learns_while_assessing else f"version {trial.version}"
                if key not in views:
                    views[key] = snapshot_of(trial.view)
            steps, values = [r.step for r in trial.reports], [r.value for r in trial.reports]
            live.append([number, steps, values, trial.stopped, trial.version, key])
        return {"base": base, "version": self._version, "views": views, "live": live}

    def load_state_dict(self, state: State) -> None:
        """Into a fold that has taken nothing, whose assessor was built as the first one was."""
        load_snapshot(self._base, state["base"])
        self._version = state["version"]
        for number, steps, values, stopped, version, key in state["live"]:
            view = None
            if key is not None:
                view = self._base.fork()
                load_snapshot(view, state["views"][key])
            reports = [Report(step=step, value=value) for step, value in zip(steps, values, strict=True)]
            self._live[number] = _LiveTrial(reports=reports, stopped=stopped, view=view, version=version)

    def _new_trial(self) -> _LiveTrial:
        return _LiveTrial(view=self._base.fork() if self._deterministic else None, version=self._version)

    def _judge(self, item: MetricsReported) -> Answer:
        trial = self._live.get(item.number)
        if trial is None:
            trial = self._live[item.number] = self._new_trial()
        judge = trial.view or self._base
        for report, sequence in zip(item.reports, item.sequences, strict=True):
            if trial.stopped:
                break
            if len(trial.reports) >= REPORTS_LIMIT:
                raise OverflowError(f"trial {item.number} has more than {REPORTS_LIMIT} reports; report less often")
            trial.reports.append(report)
            verdict = judge.assess(item.number, ReportHistory(trial.reports, len(trial.reports)))
            self.on_report()
            match verdict:
                case Keep():
                    continue
                case Stop():
                    trial.stopped = True
                    return StopAdvised(line=item.line, sequence=sequence, message=str(verdict.message)[:MESSAGE_LIMIT])
                case _:
                    raise TypeError(f"assess() must return Keep() or Stop(message), not {verdict!r}")
        return Taken(line=item.line)

    def _end(self, item: TrialEnded) -> None:
        number = item.outcome.number
        trial = self._live.pop(number, None) or _LiveTrial()
        if self._deterministic and self._base.learns_while_assessing:
            for length in range(1, len(trial.reports) + 1):
                self._base.assess(number, ReportHistory(trial.reports, length))
                self.on_report()
        self._base.ended(item.outcome, ReportHistory(trial.reports, len(trial.reports)))
        self._version += 1


def plain_parameters(suggested: Any) -> Parameters:
    """A copy in plain JSON values: NumPy as Python numbers and lists, tuples as lists. TypeError names the rest."""
    if not isinstance(suggested, dict):
        raise TypeError(f"suggest() must return a dict of parameters, NotYet() or Exhausted(), not {suggested!r}")
    plain: Parameters = plain_copy(suggested)
    for pointer, message in value_faults(plain):
        raise TypeError(f"parameters{pointer} {message}")
    return plain


def plain_copy(value: Any, depth: int = 0) -> Any:
    """``value`` in plain JSON values as far as it has any: what is recorded was accepted, and is not refused again."""
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    if depth > VALUE_DEPTH:
        return value  # refused by whoever looks at the whole
    match value:
        case bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case list() | tuple():
            return [plain_copy(item, depth + 1) for item in value]
        case dict():
            return {key: plain_copy(item, depth + 1) for key, item in value.items()}
        case _:
            return value


def load_snapshot(algorithm: object, state: Any) -> None:
    """TypeError where the class has lost its load_state_dict since the snapshot was taken."""
    load = getattr(algorithm, "load_state_dict", None)
    if load is None:
        raise TypeError(f"{type(algorithm).__name__} has no load_state_dict, and there is a snapshot of it")
    load(state)
