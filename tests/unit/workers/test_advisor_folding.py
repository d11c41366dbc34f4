"""The fold of an advisor's queue: what a decision must be, and by what running trials are judged."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tuner_service.advisors.auto import AutoAdvisor
from tuner_service.advisors.base import Advisor, Choice, Fork, Judgement, Pause, Promote, Start
from tuner_service.assessors.base import Keep, Stop
from tuner_service.dispatcher.items import (
    Answer,
    CustomTrialAdded,
    Decided,
    MetricsReported,
    PauseAdvised,
    Queue,
    SearchSpaceUpdated,
    StopAdvised,
    SuggestionRequested,
    Taken,
    TrialEnded,
    TrialRested,
)
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Decision, DecisionKind, Report, TrialOutcome, TrialStatus
from tuner_service.workers.folds import advisor as advisor_folding
from tuner_service.workers.folds.advisor import AdvisorFold
from tuner_service.workers.inside import OutsideSpaceError
from tuner_service.workers.messages import Answered, message_to_wire, messages_from_wire

SPACE = parse_search_space({"x": {"type": "float", "low": 0, "high": 1}})


class Scripted(Advisor):
    """Answers what the test puts into ``next``; stops at values below 0, pauses at those above 1."""

    def __init__(self, *_: Any) -> None:
        super().__init__(SPACE, Objective(metric="loss"))
        self.next: Any = Start(parameters={"x": 0.5}, until_step=3)
        self.assessed: list[tuple[int, int]] = []
        self.told: list[tuple[str, int, list[int]]] = []

    def suggest(self, number: int, rng: random.Random) -> Choice:
        choice: Choice = self.next
        return choice

    def assess(self, trial: int, reports: Sequence[Report]) -> Judgement:
        self.assessed.append((trial, reports[-1].step))
        value = reports[-1].value
        if value < 0:
            return Stop("bad")
        return Pause("enough") if value > 1 else Keep()

    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        self.told.append(("rested", trial, [report.step for report in reports]))

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        self.told.append(("ended", outcome.number, [report.step for report in reports]))

    def state_dict(self) -> dict[str, Any]:
        return {"assessed": self.assessed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.assessed = [(trial, step) for trial, step in state["assessed"]]


def a_fold(*, deterministic: bool = False) -> tuple[AdvisorFold, Scripted]:
    advisor = Scripted()
    return AdvisorFold(advisor, seed=1, deterministic=deterministic), advisor


@pytest.mark.parametrize("choice", [{"x": 2.0}, Start(parameters={"x": 0.5, "y": 1}), Start(parameters={})])
def test_parameters_outside_the_space_are_the_advisors_fault(choice: Any) -> None:
    advisor = Scripted()
    advisor.next = choice
    with pytest.raises(OutsideSpaceError, match="Mend the advisor"):
        ask(AdvisorFold(advisor, seed=1, space=SPACE), 1)


def test_a_fork_may_not_leave_the_space_unless_the_advisor_says_so() -> None:
    class Wandering(Scripted):
        may_leave_space = True

    for kind, outside in ((Scripted, True), (Wandering, False)):
        advisor = kind()
        fold = AdvisorFold(advisor, seed=1, space=SPACE)
        ask(fold, 1)
        fold.take(TrialRested(line=2, number=1, step=3))
        advisor.next = Fork(trial=1, parameters={"x": -1.0}, until_step=6)
        if outside:
            with pytest.raises(OutsideSpaceError, match=r"x -1\.0 lies outside"):
                ask(fold, 2)
        else:
            assert isinstance(ask(fold, 2), Decided)


def ask(fold: AdvisorFold, number: int) -> Answer:
    return fold.take(SuggestionRequested(line=1, number=number))


def report(fold: AdvisorFold, number: int, *values: float, first: int = 1) -> Answer:
    reports = tuple(Report(step=step, value=value) for step, value in enumerate(values, start=first))
    sequences = tuple(range(1, len(values) + 1))
    return fold.take(MetricsReported(line=2, number=number, reports=reports, sequences=sequences))


def end(fold: AdvisorFold, number: int) -> Answer:
    outcome = TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters={}, value=0.1)
    return fold.take(TrialEnded(line=4, outcome=outcome))


def test_parameters_alone_start_a_trial_that_runs_to_its_end() -> None:
    fold, advisor = a_fold()
    advisor.next = {"x": 0.25}
    decision = Decision(kind=DecisionKind.START, number=4, parameters={"x": 0.25})
    assert ask(fold, 4) == Decided(line=1, decision=decision)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Promote(trial=1), "trial 1 cannot be promoted: it is none that rests"),
        (Fork(trial=1, parameters={"x": 1}), "trial 1 cannot be forked: it is none that has rested and not ended"),
        (Start(parameters={"x": 1}, dropped=(1,)), "trial 1 cannot be dropped: it is none that rests"),
        (Start(parameters={"x": 1}, until_step=1.5), "until_step must be a whole number or None, not 1.5"),  # type: ignore[arg-type]
        (Start(parameters={"x": 1}, until_step=True), "until_step must be a whole number"),
        (Promote(trial=1.0), "a trial must be a whole number, not 1.0"),  # type: ignore[arg-type]
        (Start(parameters={"x": 1}, dropped=(True,)), "a trial must be a whole number, not True"),
        (Start(parameters=7), "suggest\\(\\) must return a dict"),  # type: ignore[arg-type]
    ],
)
def test_a_decision_that_cannot_be_carried_out_is_the_advisors_fault(choice: Any, message: str) -> None:
    fold, advisor = a_fold()
    ask(fold, 1)
    advisor.next = choice
    with pytest.raises((ValueError, TypeError), match=message):
        ask(fold, 2)


def test_where_the_budget_has_no_room_only_a_promotion_can_be_decided() -> None:
    fold, _ = a_fold()
    with pytest.raises(ValueError, match="the budget has room for no new trial"):
        ask(fold, 0)


def test_too_many_trials_at_once_are_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advisor_folding, "DROPPED_LIMIT", 1)
    fold, advisor = a_fold()
    advisor.next = Start(parameters={"x": 1}, dropped=(1, 2))
    with pytest.raises(ValueError, match="2 trials are dropped at once; at most 1 can be"):
        ask(fold, 3)


def test_a_trial_that_rests_is_promoted_once() -> None:
    fold, advisor = a_fold()
    ask(fold, 1)
    report(fold, 1, 0.5, 0.4, 0.3)
    fold.take(TrialRested(line=3, number=1, step=2))
    assert advisor.told == [("rested", 1, [1, 2])], "what it reported beyond its rung is not part of the comparison"
    advisor.next = Promote(trial=1, until_step=9)
    assert isinstance(ask(fold, 2), Decided)
    with pytest.raises(ValueError, match="cannot be promoted"):
        ask(fold, 2)


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    fold, advisor = a_fold()
    for number in (1, 2):
        ask(fold, number)
        fold.take(TrialRested(line=3, number=number, step=2))
    advisor.next = Promote(trial=np.int64(1), until_step=np.int64(9), dropped=(np.int32(2),))  # type: ignore[arg-type]
    decided = ask(fold, 3)
    assert decided == Decided(
        line=1, decision=Decision(kind=DecisionKind.PROMOTE, number=1, until_step=9, dropped=(2,))
    )
    assert messages_from_wire(message_to_wire(Answered(queue=Queue.TUNER, answers=(decided,))))


def test_a_report_may_stop_or_pause_a_trial() -> None:
    fold, _ = a_fold()
    ask(fold, 1)
    assert report(fold, 1, 0.5, -1.0, 0.5) == StopAdvised(line=2, sequence=2, message="bad")
    ask(fold, 2)
    assert report(fold, 2, 0.5, 2.0) == PauseAdvised(line=2, sequence=2, message="enough")
    assert report(fold, 2, 2.0, first=3) == Taken(line=2), "until it is decided anew nothing is asked"


def test_a_verdict_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fold, _ = a_fold()
    monkeypatch.setattr(Scripted, "assess", lambda *_: "stop")
    with pytest.raises(TypeError, match="assess\\(\\) must return"):
        report(fold, 1, 0.5)


def test_reports_of_one_trial_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advisor_folding, "REPORTS_LIMIT", 2)
    fold, _ = a_fold()
    with pytest.raises(OverflowError, match="more than 2 reports"):
        report(fold, 1, 0.1, 0.2, 0.3)


def test_deterministic_the_advisor_learns_of_reports_when_their_trial_rests_or_ends() -> None:
    fold, advisor = a_fold(deterministic=True)
    ask(fold, 1)
    ask(fold, 2)
    report(fold, 2, 0.1, 0.2)
    report(fold, 1, 0.3)
    assert advisor.assessed == []
    fold.take(TrialRested(line=3, number=1, step=1))
    assert advisor.assessed == [(1, 1)]
    end(fold, 2)
    assert advisor.assessed == [(1, 1), (2, 1), (2, 2)]


def test_deterministic_what_comes_after_a_pause_is_left_out() -> None:
    fold, advisor = a_fold(deterministic=True)
    ask(fold, 1)
    assert isinstance(report(fold, 1, 2.0), PauseAdvised)
    report(fold, 1, 0.5, first=2)
    fold.take(TrialRested(line=3, number=1, step=1))
    assert advisor.told == [("rested", 1, [1])]


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_snapshot_in_the_middle_of_trials_forgets_nothing(deterministic: bool) -> None:
    fold, advisor = a_fold(deterministic=deterministic)
    ask(fold, 1)
    report(fold, 1, 0.5, 0.4)
    loaded, other = a_fold(deterministic=deterministic)
    loaded.load_state_dict(json.loads(json.dumps(fold.state_dict())))
    for one in (fold, loaded):
        report(one, 1, 0.3, first=3)
        one.take(TrialRested(line=3, number=1, step=3))
    assert other.told == advisor.told
    assert other.assessed == advisor.assessed


def test_an_advisor_without_snapshots_has_none() -> None:
    class Plain(Scripted):
        state_dict = None  # type: ignore[assignment]

    assert AdvisorFold(Plain(), seed=1).state_dict() is None


def test_losses_are_smaller_for_better_values_and_the_worst_for_what_is_no_number() -> None:
    advisor = Scripted()
    assert [advisor.loss_of(value) for value in (0.5, None, float("nan"))] == [0.5, float("inf"), float("inf")]
    advisor.objective = Objective(metric="loss", goal=Goal.MAXIMIZE)
    assert advisor.loss_of(0.5) == -0.5


# ── another space while trials run ──────────────────────────────────────────────────────────────
WIDE = {name: {"type": "float", "low": 0, "high": 1} for name in "xy"}


def with_ended(trials: int) -> AdvisorFold:
    """Deterministic, with the advisor ``auto``; one more trial runs, which does badly."""
    space = parse_search_space(WIDE)
    fold = AdvisorFold(AutoAdvisor(space, Objective(metric="loss")), seed=1, deterministic=True, space=space)
    for number in range(1, trials + 2):
        parameters = {"x": number % 7 / 7, "y": number % 5 / 5}
        decision = Decision(kind=DecisionKind.START, number=number, parameters=parameters)
        fold.take(SuggestionRequested(line=10 * number, number=number, decision=decision))
        if number <= trials:
            report(fold, number, *(parameters["x"] + parameters["y"] + 1 / epoch for epoch in range(1, 10)))
            outcome = TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=1.0)
            fold.take(TrialEnded(line=10 * number + 1, outcome=outcome))
    return fold


def test_deterministic_options_of_other_types_are_another_space() -> None:
    """Python calls them equal."""
    space = {"x": {"type": "categorical", "choices": [0, 1]}}
    whole = AdvisorFold(AutoAdvisor(parse_search_space(space), Objective(metric="loss")), seed=1, deterministic=True)
    whole.take(SearchSpaceUpdated(line=1, search_space=space))
    start = Decision(kind=DecisionKind.START, number=1, parameters={"x": 1})
    whole.take(SuggestionRequested(line=2, number=1, decision=start))
    whole.take(SearchSpaceUpdated(line=3, search_space={"x": {"type": "categorical", "choices": [False, True]}}))
    loaded = AdvisorFold(AutoAdvisor(parse_search_space(space), Objective(metric="loss")), seed=1, deterministic=True)
    loaded.load_state_dict(json.loads(json.dumps(whole.state_dict())))

    views = [fold._live[1].view for fold in (whole, loaded)]
    assert [view.space.contains({"x": 1}) for view in views if view is not None] == [True, True]


@pytest.mark.parametrize(
    "narrower", [{"x": WIDE["x"]}, {"x": WIDE["x"], "y": {"type": "float", "low": 0, "high": 0.5}}]
)
def test_deterministic_a_running_trial_is_judged_in_the_space_that_it_was_decided_in(narrower: dict[str, Any]) -> None:
    fold, changed = with_ended(20), with_ended(20)
    changed.take(SearchSpaceUpdated(line=500, search_space=narrower))
    loaded = AdvisorFold(AutoAdvisor(parse_search_space(WIDE), Objective(metric="loss")), seed=1, deterministic=True)
    loaded.load_state_dict(json.loads(json.dumps(changed.state_dict())))

    verdicts = [report(one, 21, 3.0, 2.9, 2.8) for one in (fold, changed, loaded)]
    assert verdicts[0] == verdicts[1] == verdicts[2]
    views = [one._live[21].view for one in (fold, changed, loaded)]
    assert all(isinstance(view, AutoAdvisor) for view in views)
    rows = [[point.course.row.tolist() for point in view._inside] for view in views]  # type: ignore[union-attr]
    assert len(rows[0]) > 20
    assert rows[0] == rows[1] == rows[2]


def test_each_decision_makes_one_fork_of_a_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may cost as much as all that the advisor knows."""
    fold, advisor = a_fold(deterministic=True)
    forked: list[int] = []
    fork = Scripted.fork
    monkeypatch.setattr(Scripted, "fork", lambda self: forked.append(1) or fork(self))
    fold.take(SuggestionRequested(line=1, number=1))
    fold.take(TrialRested(line=2, number=1, step=3))
    advisor.next = Promote(trial=1)
    fold.take(SuggestionRequested(line=3, number=2))
    fold.take(CustomTrialAdded(line=4, number=2, parameters={"x": 0.5}))
    assert len(forked) == 3
