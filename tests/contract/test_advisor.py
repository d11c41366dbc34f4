"""What every advisor promises; run for each registered one, through the fold that its worker uses."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tuner_service.advisors.registry import ADVISORS, create_advisor
from tuner_service.dispatcher.items import (
    AdvisorItem,
    CustomTrialAdded,
    Decided,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    ResultsImported,
    SearchSpaceUpdated,
    StopAdvised,
    SuggestionRequested,
    TrialEnded,
    TrialRested,
)
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.search_space import parameters_key, parse_search_space
from tuner_service.domain.trial import Decision, DecisionKind, Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.workers.folds.advisor import AdvisorFold

BETA = {"type": "float", "low": 0, "high": 1}
SPACE = {
    "lr": {"_type": "loguniform", "_value": [1e-4, 1]},
    "momentum": {"_type": "quniform", "_value": [0.05, 0.95, 0.1]},
    "layers": {"type": "int", "low": 1, "high": 4},
    "noise": {"_type": "normal", "_value": [0, 1]},
    "optimizer": {"_type": "choice", "_value": ["sgd", {"_name": "adam", "beta": BETA}]},
}
WIDER = {"lr": {"_type": "loguniform", "_value": [1e-5, 10]}, "momentum": {"_type": "uniform", "_value": [0, 1]}}
ARGS: dict[str, dict[str, Any]] = {
    "asha_promote": {"max_step": 9},
    "hyperband": {"max_step": 9},
    "bohb": {"max_step": 9, "min_results": 3},
    "pbt": {"population_size": 4, "interval": 3, "max_step": 12},
    "pb2": {"population_size": 4, "interval": 3, "max_step": 12},
}
LAST_STEP = 12
SEED = 5
Build = Callable[[], AdvisorFold]


SEARCHED: dict[Any, Search] = {}


@pytest.fixture(params=[(name, goal) for name in ADVISORS for goal in Goal], ids=str)
def build(request: pytest.FixtureRequest) -> Build:
    name, goal = request.param

    def make() -> AdvisorFold:
        space, objective = parse_search_space(SPACE), Objective(metric="loss", goal=goal)
        advisor = create_advisor(name, ARGS.get(name, {}), space=space, objective=objective)
        return AdvisorFold(advisor, seed=SEED, space=space)

    return make


@dataclass
class Running:
    decision: Decision
    parameters: Parameters
    step: int


@dataclass
class Search:
    """A whole search: trials run in any order to where they were let run, rest, end, or fail."""

    fold: AdvisorFold
    trials: int = 24
    parallel: int = 3
    failing: float = 0.1
    lines: list[AdvisorItem] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    parameters: dict[int, Parameters] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    running: dict[int, Running] = field(default_factory=dict)
    resting: set[int] = field(default_factory=set)
    rested: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    started: int = 0
    stopped: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def take(self, make: Callable[[int], AdvisorItem]) -> Any:
        item = make(len(self.lines) + 1)
        answer = self.fold.take(item)
        if isinstance(item, SuggestionRequested):
            if not isinstance(answer, Decided):
                return answer  # as in a store, what was answered with nothing is no part of the history
            item = replace(item, decision=answer.decision)
        self.lines.append(item)
        return answer

    def ask(self) -> Any:
        number = self.started + 1 if self.started < self.trials else 0
        answer = self.take(lambda line: SuggestionRequested(line=line, number=number))
        if isinstance(answer, Decided):
            self.check(answer.decision, number)
            self.carry_out(answer.decision)
        return answer

    def check(self, decision: Decision, number: int) -> None:
        """Only what is possible, and inside the space."""
        if decision.kind is DecisionKind.PROMOTE:
            assert decision.number in self.resting
        else:
            assert decision.number == number > 0
            assert parse_search_space(SPACE).contains(decision.parameters or {})
        if decision.kind is DecisionKind.FORK:
            assert decision.forked_from in self.rested - self.ended
        assert set(decision.dropped) <= self.resting
        began = self.steps.get(decision.forked_from or decision.number, 0)
        assert decision.until_step is None or decision.until_step > began

    def carry_out(self, decision: Decision) -> None:
        number = decision.number
        self.decisions.append(decision)
        if decision.kind is not DecisionKind.PROMOTE:
            self.started += 1
            self.parameters[number] = decision.parameters or {}
            self.steps[number] = self.steps[decision.forked_from] if decision.forked_from else 0
        self.resting.discard(number)
        self.running[number] = Running(decision, self.parameters[number], self.steps[number])
        for dropped in decision.dropped:
            self.resting.discard(dropped)
            self.end(dropped, TrialStatus.EARLY_STOPPED, 0.5)

    def value(self, number: int, step: int) -> float:
        rng = random.Random(f"{parameters_key(self.parameters[number])}{step}")
        strange = rng.random() < 0.05
        return rng.choice([math.nan, math.inf, -math.inf]) if strange else rng.random() + 1 / step

    def end(self, number: int, status: TrialStatus, value: float | None) -> None:
        outcome = TrialOutcome(
            number=number,
            status=status,
            parameters=self.parameters[number],
            value=value,
            step=self.steps[number],
            own_failure=status is TrialStatus.FAILED and number % 3 > 0,
        )
        self.ended.add(number)
        self.take(lambda line: TrialEnded(line=line, outcome=outcome))

    def run_one(self) -> None:
        number = self.rng.choice(sorted(self.running))
        run = self.running.pop(number)
        if self.rng.random() < self.failing:
            self.end(number, TrialStatus.FAILED, None)
            return
        until = min(run.decision.until_step or LAST_STEP, LAST_STEP)
        steps = range(run.step + 1, until + 1)
        reports = tuple(Report(step=step, value=self.value(number, step)) for step in steps)
        if reports:
            sequences = tuple(range(1, len(reports) + 1))
            verdict = self.take(
                lambda line: MetricsReported(line=line, number=number, reports=reports, sequences=sequences)
            )
            if isinstance(verdict, StopAdvised):
                last = reports[verdict.sequence - 1]
                self.stopped += 1
                self.steps[number] = last.step
                self.end(number, TrialStatus.EARLY_STOPPED, last.value)
                return
        self.steps[number] = until
        if run.decision.until_step is None or until == LAST_STEP:
            self.end(number, TrialStatus.SUCCEEDED, self.value(number, LAST_STEP))
        else:
            self.resting.add(number)
            self.rested.add(number)
            self.take(lambda line: TrialRested(line=line, number=number, step=until))

    def go(self, rounds: int = 10_000) -> Search:
        for _ in range(rounds):
            waits = False
            while len(self.running) < self.parallel and not waits:
                waits = isinstance(self.ask(), NoSuggestionYet | NoMoreSuggestions)
            if not self.running:
                return self
            self.run_one()
        return self


def next_answers(fold: AdvisorFold, search: Search) -> list[Any]:
    """What an advisor says for some numbers, each as the next; folding the answer changes what the next one is."""
    return [fold.take(SuggestionRequested(line=10_000 + i, number=search.started + 1 + i)) for i in range(6)]


def folded(build: Build, lines: list[AdvisorItem]) -> AdvisorFold:
    fold = build()
    for line in lines:
        fold.take(line)
    return fold


@pytest.fixture
def whole(request: pytest.FixtureRequest, build: Build) -> Search:
    """A search to its end, made once for all tests that look at it."""
    key = request.node.callspec.params["build"]
    if key not in SEARCHED:
        SEARCHED[key] = Search(build()).go()
    return SEARCHED[key]


def test_a_whole_search_uses_its_budget_and_does_not_run_every_trial_to_its_end(whole: Search) -> None:
    search = whole
    kinds = {decision.kind for decision in search.decisions}
    assert DecisionKind.START in kinds
    assert DecisionKind.PROMOTE in kinds or search.stopped
    assert any(decision.until_step is None for decision in search.decisions), "no trial ran to its end"
    assert not search.running
    last = search.ask()
    assert isinstance(last, NoSuggestionYet | NoMoreSuggestions)


def test_the_same_seed_and_history_give_the_same_search(build: Build, whole: Search) -> None:
    """Recorded decisions are those that a rebuilt advisor would make again, each of them."""
    again = build()
    for line in whole.lines:
        if isinstance(line, SuggestionRequested):
            assert again.take(replace(line, decision=None)) == Decided(line=line.line, decision=line.decision)  # type: ignore[arg-type]  # all in the history have one
        else:
            again.take(line)


@pytest.mark.parametrize("rounds", [3, 17, 45])
def test_an_advisor_rebuilt_from_the_lines_goes_on_as_the_first(build: Build, rounds: int) -> None:
    search = Search(build()).go(rounds)
    rebuilt = folded(build, search.lines)
    assert next_answers(rebuilt, search) == next_answers(search.fold, search)


@pytest.mark.parametrize("rounds", [0, 17, 45])
def test_a_snapshot_and_the_later_lines_give_the_same_advisor(build: Build, rounds: int) -> None:
    search = Search(build()).go(rounds)
    until = len(search.lines)
    loaded = build()
    loaded.load_state_dict(json.loads(json.dumps(search.fold.state_dict(), allow_nan=True)))
    search.go(20)
    for line in search.lines[until:]:
        loaded.take(line)
    assert next_answers(loaded, search) == next_answers(search.fold, search)


def test_asking_does_not_change_the_advisor(build: Build) -> None:
    search = Search(build()).go(20)
    advisor, number = search.fold._advisor, search.started + 1
    asked = [advisor.suggest(number, random.Random(1)) for _ in range(2)]
    assert asked[0] == asked[1]


def test_a_trial_is_only_promoted_where_no_new_one_has_room(build: Build) -> None:
    search = Search(build(), trials=6).go()
    assert search.started <= 6


def test_values_that_are_no_numbers_and_failures_are_never_promoted_before_others(build: Build) -> None:
    search = Search(build(), failing=0.5).go()
    assert search.started
    assert not search.running


def test_trials_of_people_and_results_from_elsewhere_are_taken(build: Build) -> None:
    search = Search(build()).go(6)
    space = parse_search_space(SPACE)
    own = space.sample(random.Random(1))
    number = search.started + 1
    search.started, search.parameters[number], search.steps[number] = number, own, 0
    search.take(lambda line: CustomTrialAdded(line=line, number=number, parameters=own))
    outcome = TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters=own, value=0.1, source="imported")
    search.take(lambda line: ResultsImported(line=line, outcomes=(outcome, replace(outcome, value=math.nan))))
    search.end(number, TrialStatus.SUCCEEDED, 0.2)
    search.go()
    assert not search.running
    assert next_answers(folded(build, search.lines), search) == next_answers(search.fold, search)


def test_after_a_change_new_parameters_lie_inside_the_new_space(build: Build) -> None:
    search = Search(build()).go(12)
    search.take(lambda line: SearchSpaceUpdated(line=line, search_space=WIDER))
    inside = parse_search_space(WIDER)
    rebuilt = folded(build, search.lines)
    loaded = build()
    loaded.load_state_dict(json.loads(json.dumps(search.fold.state_dict())))
    answers = next_answers(search.fold, search)
    new = [a.decision for a in answers if isinstance(a, Decided) and a.decision.parameters is not None]
    assert all(inside.contains(decision.parameters or {}) for decision in new)
    assert next_answers(rebuilt, search) == answers == next_answers(loaded, search)


def test_a_thousand_trials_leave_no_more_than_their_results_behind(build: Build) -> None:
    """What is kept grows with the trials themselves, not with what happened to them."""
    sizes = []
    for trials in (30, 90):
        search = Search(build(), trials=trials, failing=0.0).go()
        sizes.append(len(json.dumps(search.fold.state_dict())) / max(1, search.started))
    assert sizes[1] < 3 * sizes[0]
