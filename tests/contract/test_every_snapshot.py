"""Exact resume: from a snapshot as of any line of a story, an algorithm goes on as one that was told all of it.

The stories are drawn at random, and hold what a search may meet: trials that fail, are stopped, added or imported,
values that are no numbers, huge or tiny, and spaces that change. The suites beside this one look at a few lines of
theirs.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.contract.test_advisor import ARGS, Search
from tests.contract.test_tuner import CASES, SPACES, Case, listed
from tuner_service.advisors.registry import ADVISORS, create_advisor
from tuner_service.assessors.registry import ASSESSORS, create_assessor
from tuner_service.dispatcher.items import (
    Answer,
    CustomTrialAdded,
    MetricsReported,
    ResultsImported,
    SearchSpaceUpdated,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    TrialEnded,
)
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.search_space import SearchSpace, parse_search_space
from tuner_service.domain.trial import Decision, Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.tuners.registry import TUNERS, create_tuner
from tuner_service.workers.folds.advisor import AdvisorFold
from tuner_service.workers.folds.folding import AssessorFold, TunerFold

SEED = 3
STRANGE = (math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 0.0, -0.0)
STATUSES = (TrialStatus.SUCCEEDED,) * 5 + (TrialStatus.EARLY_STOPPED, TrialStatus.FAILED, TrialStatus.CANCELED)
ONE = Objective(metric="loss")
FIVE = Objective(
    metric="loss", further=tuple(Objective(metric=f"m{n}", goal=goal) for n, goal in enumerate([*Goal] * 2))
)


def changed(raw: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A space a little different: one parameter is gone or new, as far as none depends on it."""
    if "extra" in raw:
        return {name: described for name, described in raw.items() if name != "extra"}
    return raw | {"extra": {"type": "int", "low": 0, "high": rng.randrange(1, 6)}}


def written(fold: Any) -> str:
    return json.dumps(fold.state_dict())


@dataclass
class TunerStory:
    """Lines that were taken, each as a store gives it back, and a snapshot before each."""

    fold: TunerFold
    raw: dict[str, Any]
    rng: random.Random
    objective: Objective
    failing: float
    lines: list[Any] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    running: dict[int, Parameters] = field(default_factory=dict)
    told: list[Parameters] = field(default_factory=list)
    number: int = 0

    def take(self, make: Callable[..., Any], **fields: Any) -> Answer:
        self.snapshots.append(written(self.fold))
        item = make(line=len(self.lines) + 1, **fields)
        answer = self.fold.take(item)
        if isinstance(answer, Suggested):
            item = make(line=item.line, **fields, recorded=answer.parameters)
        elif isinstance(item, SuggestionRequested):
            self.snapshots.pop()
            return answer  # nothing comes of it, and no store keeps it
        self.lines.append(item)
        return answer

    @property
    def space(self) -> SearchSpace:
        return parse_search_space(self.raw)

    def value(self) -> float:
        return (
            self.rng.choice(STRANGE) if self.rng.random() < 0.15 else round(self.rng.gauss(0, 1), self.rng.randrange(4))
        )

    def outcome(self, number: int, parameters: Parameters, status: TrialStatus, **fields: Any) -> TrialOutcome:
        failed = status is TrialStatus.FAILED
        has_value = not failed and self.rng.random() < 0.95
        self.told.append(parameters)
        return TrialOutcome(
            number=number,
            status=status,
            parameters=parameters,
            value=self.value() if has_value else None,
            step=self.rng.choice((None, 0, 3, 9)),
            own_failure=failed and self.rng.random() < self.failing,
            further_values=tuple(self.value() for _ in self.objective.further) if has_value else (),
            **fields,
        )

    def ask(self) -> None:
        answer = self.take(SuggestionRequested, number=self.number + 1)
        if isinstance(answer, Suggested):
            self.number += 1
            self.running[self.number] = answer.parameters

    def ask_further(self) -> None:
        number = self.rng.choice(list(self.running))
        answer = self.take(SuggestionRequested, number=number, index=1)
        if isinstance(answer, Suggested):
            self.running[number] = answer.parameters

    def add(self) -> None:
        """By a person: anything, also what lies outside the space, or what was tried before."""
        self.number += 1
        choices = [self.space.sample(self.rng), {"elsewhere": [1, "x"]}, *self.told[-3:]]
        self.running[self.number] = self.rng.choice(choices)
        self.take(CustomTrialAdded, number=self.number, parameters=self.running[self.number])

    def end(self) -> None:
        number = self.rng.choice(list(self.running))
        parameters = self.running.pop(number)
        self.take(TrialEnded, outcome=self.outcome(number, parameters, self.rng.choice(STATUSES)))

    def bring(self) -> None:
        outcomes = tuple(
            self.outcome(0, self.space.sample(self.rng), TrialStatus.SUCCEEDED, source="imported")
            for _ in range(self.rng.randrange(1, 4))
        )
        self.take(ResultsImported, outcomes=outcomes)

    def change(self) -> None:
        self.raw = changed(self.raw, self.rng)
        self.take(SearchSpaceUpdated, search_space=self.raw)

    def go(self, length: int) -> TunerStory:
        for _ in range(3 * length):  # a tuner that has nothing to suggest adds no line
            if len(self.lines) >= length:
                break
            beginning = self.number < 6 or not self.running
            acts = [(self.ask, 4.0), (self.add, 0.3), (self.bring, 0.3), (self.change, 0.15)]
            acts += [] if beginning else [(self.end, 4.5), (self.ask_further, 0.3)]
            (act,) = self.rng.choices([act for act, _ in acts], [weight for _, weight in acts])
            act()
        return self


QUICK = {label: case for label, case in CASES.items() if case.name != "gp"}  # of which the suite beside looks at some
TUNED = [
    *((label, "flat", ONE, 0.0) for label in QUICK),
    *((label, "conditional", ONE, 0.7) for label in QUICK),
    *((label, "constrained", ONE, 0.0) for label, case in QUICK.items() if case.name not in {"auto", "grid"}),
    *((label, "conditional", FIVE, 0.0) for label, case in QUICK.items() if TUNERS[case.name].several_objectives),
]
EVERY = {"auto": 9, "bohb": 9}  # one line in so many is begun from


@pytest.mark.parametrize(("label", "name", "objective", "failing"), TUNED)
def test_a_tuner_goes_on_from_a_snapshot_as_of_any_line(
    label: str, name: str, objective: Objective, failing: float
) -> None:
    """``failing``: how many of the failures are the trials' own doing; each suggestion is weighed then."""
    case: Case = CASES[label]

    def build() -> TunerFold:
        space = parse_search_space(SPACES[name])
        args = {"parameters": listed(space)} if case.name == "batch" else case.args
        return TunerFold(create_tuner(case.name, args, space=space, objective=objective), seed=SEED)

    rng = random.Random(f"{label} {name}")
    story = TunerStory(build(), SPACES[name], rng, objective, failing).go(45)
    ask = SuggestionRequested(line=10_000, number=10_000)
    expected = story.fold.take(ask)
    assert len(story.lines) > 30
    for line in range(0, len(story.lines), EVERY.get(case.name, 6 if failing else 2)):
        resumed = build()
        resumed.load_state_dict(json.loads(story.snapshots[line]))
        for item in story.lines[line:]:
            resumed.take(item)
        assert resumed.take(ask) == expected, f"from line {line} of {len(story.lines)}"


# ── advisors ────────────────────────────────────────────────────────────────────────────────────
class Eventful(Search):
    """Values of every size, and a space that changes."""

    def check(self, decision: Decision, number: int) -> None:
        """The suite of advisors has."""

    def value(self, number: int, step: int) -> float:
        rng = random.Random(f"{number} {step}")
        return rng.choice(STRANGE) if rng.random() < 0.1 else rng.random() + 1 / step


@pytest.mark.parametrize("deterministic", [False, True], ids=["as it comes", "deterministic"])
@pytest.mark.parametrize("name", ADVISORS)
def test_an_advisor_goes_on_from_a_snapshot_as_of_any_line(name: str, deterministic: bool) -> None:
    raw = {key: described for key, described in SPACES["flat"].items() if key not in {"fixed", "scale"}}

    def build() -> AdvisorFold:
        space = parse_search_space(raw)
        advisor = create_advisor(name, ARGS.get(name, {}), space=space, objective=ONE)
        return AdvisorFold(advisor, seed=SEED, deterministic=deterministic, space=space)

    search = Eventful(build(), trials=30)
    snapshots: dict[int, str] = {}
    for number in range(40):
        snapshots[len(search.lines)] = written(search.fold)
        if number in {15, 30}:
            space = changed(raw, random.Random(0)) if number == 15 else raw
            search.take(lambda line, space=space: SearchSpaceUpdated(line=line, search_space=space))
        search.go(1)
    asks = [SuggestionRequested(line=10_000 + i, number=search.started + 1 + i) for i in range(3)]
    expected = [search.fold.take(ask) for ask in asks]
    for line in list(snapshots)[:: EVERY.get(name, 2)]:
        resumed = build()
        resumed.load_state_dict(json.loads(snapshots[line]))
        for item in search.lines[line:]:
            resumed.take(item)
        assert [resumed.take(ask) for ask in asks] == expected, f"from line {line} of {len(search.lines)}"


# ── assessors ───────────────────────────────────────────────────────────────────────────────────
def reported_lines(fold: AssessorFold, rng: random.Random) -> tuple[list[Any], list[Answer], list[str]]:
    """Trials that report beside one another, in any order, and what an assessor answers to each line."""
    lines: list[Any] = []
    answers: list[Answer] = []
    snapshots: list[str] = []
    running: dict[int, list[Report]] = {}
    number = 0

    def take(make: Callable[..., Any], **fields: Any) -> Answer:
        snapshots.append(written(fold))
        lines.append(make(line=len(lines) + 1, **fields))
        answers.append(fold.take(lines[-1]))
        return answers[-1]

    def end(trial: int, status: TrialStatus) -> None:
        reports = running.pop(trial)
        value = reports[-1].value if reports and status is not TrialStatus.FAILED else None
        take(TrialEnded, outcome=TrialOutcome(number=trial, status=status, parameters={}, value=value))

    for _ in range(160):
        if len(running) < 4:
            number += 1
            running[number] = []
            take(SuggestionRequested, number=number, recorded={})
            continue
        trial = rng.choice(list(running))
        if len(running[trial]) >= 12 or rng.random() < 0.03:
            end(trial, rng.choice(STATUSES))
            continue
        some = [a_report(rng, trial, len(running[trial]) + i) for i in range(1, rng.randrange(2, 4))]
        running[trial] += some
        sequences = tuple(report.step for report in some)
        answer = take(MetricsReported, number=trial, reports=tuple(some), sequences=sequences)
        if isinstance(answer, StopAdvised):
            running[trial] = running[trial][: answer.sequence]
            end(trial, TrialStatus.EARLY_STOPPED)
    return lines, answers, snapshots


def a_report(rng: random.Random, trial: int, step: int) -> Report:
    value = rng.choice(STRANGE) if rng.random() < 0.05 else trial % 5 + rng.random() + 3 / step
    return Report(step=step, value=value)


def answered(fold: AssessorFold, lines: Sequence[Any]) -> list[Answer]:
    return [fold.take(line) for line in lines]


@pytest.mark.parametrize("deterministic", [False, True], ids=["as it comes", "deterministic"])
@pytest.mark.parametrize("name", ASSESSORS)
def test_an_assessor_goes_on_from_a_snapshot_as_of_any_line(name: str, deterministic: bool) -> None:
    def build() -> AssessorFold:
        return AssessorFold(create_assessor(name, {}, objective=ONE), deterministic=deterministic)

    lines, answers, snapshots = reported_lines(build(), random.Random(name))
    for line, snapshot in enumerate(snapshots):
        resumed = build()
        resumed.load_state_dict(json.loads(snapshot))
        assert answered(resumed, lines[line:]) == answers[line:], f"from line {line} of {len(lines)}"
