"""How an advisor's one queue becomes its memory and its answers: a fold, line by line."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trials.wire.values import written_alike
from tuner_service.advisors.base import DROPPED_LIMIT, Advisor, Choice, Fork, Pause, Promote, Start
from tuner_service.assessors.base import Keep, Stop
from tuner_service.dispatcher.items import (
    AdvisorItem,
    Answer,
    CustomTrialAdded,
    Decided,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    PauseAdvised,
    ResultsImported,
    SearchSpaceUpdated,
    StopAdvised,
    SuggestionRequested,
    Taken,
    TrialEnded,
    TrialRested,
)
from tuner_service.domain.search_space import SearchSpace, parse_search_space
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.trial import Decision, DecisionKind, Report
from tuner_service.tuners.base import Exhausted, NotYet, snapshot_of
from tuner_service.workers.faults import MESSAGE_LIMIT
from tuner_service.workers.folds.folding import (
    REPORTS_LIMIT,
    ReportHistory,
    State,
    choice_of,
    load_snapshot,
    nothing_follows,
    plain_copy,
    plain_parameters,
)
from tuner_service.workers.inside import require_inside


@dataclass(slots=True, kw_only=True)
class _Live:
    """A trial that has not ended. ``known``: how many of its reports the advisor was told, where it judges by forks.

    ``view_space``: the space that the fork knows, where that had been changed before it was made.
    """

    reports: list[Report] = field(default_factory=list)
    stopped: bool = False  # or told to rest: what it reports until it was decided anew is not judged
    rests: bool = False
    has_rested: bool = False
    known: int = 0
    view: Advisor | None = None
    view_space: dict[str, Any] | None = None


class AdvisorFold:
    """The advisor's queue.

    Normally the advisor is told everything in journal order. In a deterministic experiment its decisions must not
    depend on how the reports of different trials fell between one another: it is told of a trial's reports when the
    trial rests or ends, and judges them, if it judges at all, by a fork made when the trial was decided.
    """

    def __init__(
        self, advisor: Advisor, *, seed: int, deterministic: bool = False, space: SearchSpace | None = None
    ) -> None:
        """``space``: where parameters have to lie, unless the advisor may leave it; None: anywhere."""
        self._advisor = advisor
        self._space = None if advisor.may_leave_space else space
        self._seed = advisor.experiment_seed = seed
        self._deterministic = deterministic
        self._live: dict[int, _Live] = {}
        self._search_space: dict[str, Any] | None = None  # the newest, where it was changed
        self.on_report = nothing_follows  # called for each report that was assessed

    @property
    def suggests_in_parallel(self) -> bool:
        return False

    @property
    def choice(self) -> str:
        return choice_of(self._advisor)

    def take(self, item: AdvisorItem) -> Answer:
        """Fold one line. A request whose ``decision`` is recorded is not asked again: it stands."""
        match item:
            case SuggestionRequested():
                return self._request(item)
            case MetricsReported():
                return self._judge(item)
            case CustomTrialAdded():
                self._advisor.added(item.number, plain_copy(item.parameters))
                self._fork_for(self._decide_anew(item.number))
            case TrialRested():
                self._rest(item)
            case TrialEnded():
                self._end(item)
            case ResultsImported():
                self._advisor.import_results(item.outcomes)
            case SearchSpaceUpdated():
                self._change_space(item.search_space)
        return Taken(line=item.line)

    # ── decisions ───────────────────────────────────────────────────────────────────────────────
    def _request(self, item: SuggestionRequested) -> Answer:
        if item.decision is not None:
            self._accept(item.decision)
            return Taken(line=item.line)
        choice = self._advisor.suggest(item.number, suggestion_generator(self._seed, item.number))
        if isinstance(choice, NotYet):
            return NoSuggestionYet(line=item.line)
        if isinstance(choice, Exhausted):
            return NoMoreSuggestions(line=item.line)
        decision = self._checked(item.number, choice)
        self._accept(decision)
        return Decided(line=item.line, decision=decision)

    def _checked(self, number: int, choice: Choice) -> Decision:
        """The decision in plain values. ValueError or TypeError for one that cannot be carried out."""
        match choice:
            case Promote():
                number = self._required(choice.trial, "promoted", rests=True)
                kind, parameters, source = DecisionKind.PROMOTE, None, None
            case Fork():
                source = self._required(choice.trial, "forked", rests=False)
                kind, parameters = DecisionKind.FORK, plain_parameters(choice.parameters)
            case Start():
                kind, parameters, source = DecisionKind.START, plain_parameters(choice.parameters), None
            case _:
                return self._checked(number, Start(parameters=choice))  # type: ignore[arg-type]  # parameters alone
        if parameters is not None and self._space is not None:
            require_inside(self._space, parameters, by="the advisor")
        if not number:
            raise ValueError("the budget has room for no new trial: only one that rests can be promoted now")
        until = None if choice.until_step is None else _whole(choice.until_step, "until_step", or_none=" or None")
        dropped = tuple(choice.dropped)
        if len(dropped) > DROPPED_LIMIT:
            raise ValueError(f"{len(dropped)} trials are dropped at once; at most {DROPPED_LIMIT} can be")
        dropped = tuple(self._required(one, "dropped", rests=True) for one in dropped)
        return Decision(
            kind=kind, number=number, parameters=parameters, until_step=until, forked_from=source, dropped=dropped
        )

    def _required(self, number: int, verb: str, *, rests: bool) -> int:
        number = _whole(number, "a trial")
        trial = self._live.get(number)
        if trial is None or not (trial.rests if rests else trial.has_rested):
            what = "rests" if rests else "has rested and not ended"
            raise ValueError(f"trial {number} cannot be {verb}: it is none that {what}")
        return number

    def _accept(self, decision: Decision) -> None:
        trial = self._decide_anew(decision.number)
        for number in decision.dropped:
            self._live[number].rests = False  # until its end is told
        self._advisor.decided(decision)
        self._fork_for(trial)

    def _decide_anew(self, number: int) -> _Live:
        trial = self._live.setdefault(number, _Live())
        trial.rests = trial.stopped = False
        return trial

    def _fork_for(self, trial: _Live) -> None:
        """Who judges it from here on, where that is not the advisor itself."""
        if self._deterministic and self._advisor.judges:
            trial.view, trial.view_space = self._advisor.fork(), self._search_space

    # ── reports ─────────────────────────────────────────────────────────────────────────────────
    def _judge(self, item: MetricsReported) -> Answer:
        trial = self._live.setdefault(item.number, _Live())
        for report, sequence in zip(item.reports, item.sequences, strict=True):
            if trial.stopped and self._deterministic:
                break  # what came after is no part of the trial
            if len(trial.reports) >= REPORTS_LIMIT:
                raise OverflowError(f"trial {item.number} has more than {REPORTS_LIMIT} reports; report less often")
            trial.reports.append(report)
            if trial.stopped or not self._advisor.judges:
                continue
            judge = trial.view or self._advisor
            verdict = judge.assess(item.number, ReportHistory(trial.reports, len(trial.reports)))
            self.on_report()
            match verdict:
                case Keep():
                    continue
                case Stop():
                    trial.stopped = True
                    message = str(verdict.message)[:MESSAGE_LIMIT]
                    return StopAdvised(line=item.line, sequence=sequence, message=message)
                case Pause():
                    trial.stopped = True
                    message = str(verdict.message)[:MESSAGE_LIMIT]
                    return PauseAdvised(line=item.line, sequence=sequence, message=message)
                case _:
                    raise TypeError(f"assess() must return Keep(), Stop(message) or Pause(message), not {verdict!r}")
        return Taken(line=item.line)

    def _rest(self, item: TrialRested) -> None:
        trial = self._live.setdefault(item.number, _Live())
        trial.rests = trial.has_rested = True
        self._tell_reports(item.number, trial)
        # Of an experiment that is not deterministic it may have reported more before it left.
        length = len(trial.reports)
        while length and trial.reports[length - 1].step > item.step:
            length -= 1
        self._advisor.rested(item.number, ReportHistory(trial.reports, length))

    def _end(self, item: TrialEnded) -> None:
        trial = self._live.pop(item.outcome.number, None) or _Live()
        self._tell_reports(item.outcome.number, trial)
        self._advisor.ended(item.outcome, ReportHistory(trial.reports, len(trial.reports)))

    def _tell_reports(self, number: int, trial: _Live) -> None:
        """What a fork has judged: the advisor itself learns it now."""
        if trial.view is None:
            return
        if self._advisor.learns_while_assessing:
            for length in range(trial.known + 1, len(trial.reports) + 1):
                self._advisor.assess(number, ReportHistory(trial.reports, length))
                self.on_report()
        trial.known = len(trial.reports)
        trial.view = None

    # ── snapshots ───────────────────────────────────────────────────────────────────────────────
    def state_dict(self) -> State | None:
        """JSON values for ``load_state_dict``; None where the advisor keeps no snapshots."""
        state = snapshot_of(self._advisor)
        if state is None:
            return None
        live = [
            {
                "number": number,
                "steps": [report.step for report in trial.reports],
                "values": [report.value for report in trial.reports],
                "flags": [trial.stopped, trial.rests, trial.has_rested],
                "known": trial.known,
                "view": None if trial.view is None else snapshot_of(trial.view),
                "view_space": trial.view_space,
            }
            for number, trial in self._live.items()
        ]
        return {"search_space": self._search_space, "advisor": state, "live": live}

    def load_state_dict(self, state: State) -> None:
        """Into a fold that has taken nothing, whose advisor was built as the first one was."""
        first = self._advisor.space
        if state["search_space"] is not None:
            self._change_space(state["search_space"])
        load_snapshot(self._advisor, state["advisor"])
        for told in state["live"]:
            stopped, rests, has_rested = told["flags"]
            self._live[told["number"]] = _Live(
                reports=_reports(told["steps"], told["values"]),
                stopped=stopped,
                rests=rests,
                has_rested=has_rested,
                known=told["known"],
            )
            if told["view"] is not None:
                self._restore_view(self._live[told["number"]], told, first=first)

    def _change_space(self, raw: dict[str, Any]) -> None:
        space = parse_search_space(raw)
        self._advisor.update_search_space(space)
        self._search_space = raw
        self._space = None if self._space is None else space

    def _restore_view(self, trial: _Live, told: State, *, first: SearchSpace) -> None:
        """In the space that it was made in: ``first`` where that had never been changed."""
        self._fork_for(trial)
        trial.view_space = told["view_space"]
        assert trial.view is not None  # noqa: S101  # it was made just now
        if not written_alike(trial.view_space, self._search_space):
            trial.view.update_search_space(first if trial.view_space is None else parse_search_space(trial.view_space))
        load_snapshot(trial.view, told["view"])


def _whole(value: Any, what: str, *, or_none: str = "") -> int:
    """As a number of Python's: those of NumPy are whole numbers, too."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(f"{what} must be a whole number{or_none}, not {value!r}")


def _reports(steps: Sequence[int], values: Sequence[float]) -> list[Report]:
    return [Report(step=step, value=value) for step, value in zip(steps, values, strict=True)]
