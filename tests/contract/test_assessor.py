"""What every assessor promises; run for each registered one."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence

import pytest

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.assessors.registry import ASSESSORS, create_assessor
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus

Build = Callable[[], Assessor]


@pytest.fixture(params=[(name, goal) for name in ASSESSORS for goal in Goal], ids=str)
def build(request: pytest.FixtureRequest) -> Build:
    name, goal = request.param
    return lambda: create_assessor(name, {}, objective=Objective(metric="loss", goal=goal))


def a_curve(number: int, steps: int = 12) -> list[Report]:
    rng = random.Random(number)
    level = rng.random()
    values = [level + rng.random() / step for step in range(1, steps + 1)]
    if number % 5 == 0:
        values[steps // 2] = rng.choice([math.nan, math.inf, -math.inf])
    return [Report(step=step, value=value) for step, value in enumerate(values, start=1)]


def an_end(number: int, status: TrialStatus = TrialStatus.SUCCEEDED) -> TrialOutcome:
    return TrialOutcome(number=number, status=status, parameters={"x": number}, value=0.5, step=12)


def judge(assessor: Assessor, number: int, reports: Sequence[Report]) -> list[Verdict]:
    """The verdicts on one trial until it is stopped."""
    verdicts: list[Verdict] = []
    for length in range(1, len(reports) + 1):
        verdicts.append(assessor.assess(number, reports[:length]))
        if isinstance(verdicts[-1], Stop):
            break
    return verdicts


def teach(assessor: Assessor, numbers: range) -> Assessor:
    statuses = [TrialStatus.SUCCEEDED, TrialStatus.SUCCEEDED, TrialStatus.FAILED, TrialStatus.EARLY_STOPPED]
    for number in numbers:
        reports = a_curve(number)
        verdicts = judge(assessor, number, reports)
        assessor.ended(an_end(number, statuses[number % 4]), reports[: len(verdicts)])
    return assessor


def verdicts_after(assessor: Assessor) -> list[list[Verdict]]:
    return [judge(assessor, number, a_curve(number)) for number in range(500, 530)]


def test_a_verdict_is_keep_or_stop_with_a_message(build: Build) -> None:
    given = [verdict for verdicts in verdicts_after(teach(build(), range(1, 40))) for verdict in verdicts]
    assert all(isinstance(verdict, Keep | Stop) for verdict in given)
    assert all(verdict.message for verdict in given if isinstance(verdict, Stop))


def test_the_first_trials_are_kept_when_there_is_nothing_to_compare_with(build: Build) -> None:
    assert all(isinstance(verdict, Keep) for verdict in judge(build(), 1, a_curve(1)))


def test_the_same_story_gives_the_same_verdicts(build: Build) -> None:
    assert verdicts_after(teach(build(), range(1, 40))) == verdicts_after(teach(build(), range(1, 40)))


def test_a_snapshot_and_the_later_story_give_the_same_assessor(build: Build) -> None:
    live = teach(build(), range(1, 20))
    loaded = build()
    loaded.load_state_dict(json.loads(json.dumps(live.state_dict())))  # type: ignore[attr-defined]  # ours have both
    assert verdicts_after(teach(loaded, range(20, 40))) == verdicts_after(teach(live, range(20, 40)))


def test_a_snapshot_in_the_middle_of_a_trial_forgets_nothing_of_it(build: Build) -> None:
    live, reports = teach(build(), range(1, 20)), a_curve(700)
    for length in range(1, 4):
        live.assess(700, reports[:length])
    loaded = build()
    loaded.load_state_dict(json.loads(json.dumps(live.state_dict())))  # type: ignore[attr-defined]  # ours have both
    assert [loaded.assess(700, reports[:n]) for n in range(4, 8)] == [
        live.assess(700, reports[:n]) for n in range(4, 8)
    ]


def test_a_fork_knows_nothing_of_what_comes_later_and_changes_nothing(build: Build) -> None:
    base, same = teach(build(), range(1, 20)), teach(build(), range(1, 20))
    expected = verdicts_after(same)
    fork = base.fork()
    teach(base, range(20, 60))
    assert verdicts_after(fork) == expected
    other = teach(build(), range(1, 20))
    teach(other.fork(), range(20, 60))
    assert verdicts_after(other) == expected


def test_values_that_are_no_numbers_are_tolerated(build: Build) -> None:
    assessor = build()
    strange = [Report(step=step, value=value) for step, value in enumerate([math.nan, math.inf, -math.inf])]
    for number in range(1, 20):
        judge(assessor, number, strange)
        assessor.ended(an_end(number), strange)
    assert judge(assessor, 20, strange)
    assessor.ended(an_end(20, TrialStatus.FAILED), [])


def test_a_trial_without_reports_may_end(build: Build) -> None:
    assessor = build()
    assessor.ended(an_end(1), [])
    assert isinstance(assessor.assess(2, a_curve(2)[:1]), Keep)
