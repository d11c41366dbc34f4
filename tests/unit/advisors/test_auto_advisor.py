"""``auto`` as an advisor: it stops what will not end well, keeps slow starters, and goes on exactly."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tuner_service.advisors.auto import CHECKED_EVERY, CHECKS_LIMIT, REPORTS_AT_FIRST_RUNG, AutoAdvisor
from tuner_service.advisors.base import Start
from tuner_service.assessors.base import Keep, Stop
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.trial import Decision, DecisionKind, Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.tuners import model_surrogate
from tuner_service.tuners.base import NotYet

SPACE: dict[str, Any] = {"x": {"type": "float", "low": 0, "high": 1}, "y": {"type": "float", "low": 0, "high": 1}}
EPOCHS = 9


def an_advisor() -> AutoAdvisor:
    return AutoAdvisor(parse_search_space(SPACE), Objective(metric="loss"))


def loss(parameters: Parameters, epoch: int) -> float:
    """Good ones end near 0, and whoever ends well is behind at the first epoch."""
    end = abs(parameters["x"] - 0.3) + abs(parameters["y"] - 0.6)
    return end + (1.0 - end / 2) * (EPOCHS - epoch) / EPOCHS


def reports_of(parameters: Parameters, count: int) -> list[Report]:
    return [Report(step=epoch, value=loss(parameters, epoch)) for epoch in range(1, count + 1)]


def run(advisor: AutoAdvisor, number: int) -> tuple[Parameters, bool]:
    """One trial to its end, or to where it is stopped: its parameters, and whether it was."""
    choice = advisor.suggest(number, suggestion_generator(5, number))
    assert isinstance(choice, Start)
    advisor.decided(Decision(kind=DecisionKind.START, number=number, parameters=choice.parameters))
    told: Sequence[Report] = ()
    for count in range(1, EPOCHS + 1):
        told = reports_of(choice.parameters, count)
        if isinstance(advisor.assess(number, told), Stop):
            break
    stopped = len(told) < EPOCHS
    status = TrialStatus.EARLY_STOPPED if stopped else TrialStatus.SUCCEEDED
    value = told[-1].value
    outcome = TrialOutcome(number=number, status=status, parameters=choice.parameters, value=value, step=len(told))
    advisor.ended(outcome, told)
    return choice.parameters, stopped


def test_it_finds_the_minimum_and_stops_most_of_what_does_not_lead_there() -> None:
    advisor = an_advisor()
    found = [run(advisor, number) for number in range(1, 26)]
    assert min(loss(parameters, EPOCHS) for parameters, _ in found) < 0.1
    assert sum(stopped for _, stopped in found) >= 5
    assert advisor.choice.startswith("gp")


def test_nothing_is_stopped_before_there_are_some_to_compare_with() -> None:
    advisor = an_advisor()
    for number, x in enumerate((0.3, 0.9), start=1):
        parameters = {"x": x, "y": 0.6}
        advisor.decided(Decision(kind=DecisionKind.START, number=number, parameters=parameters))
        assert isinstance(advisor.assess(number, reports_of(parameters, 1)), Keep)


def told(advisor: AutoAdvisor, number: int, values: Sequence[float], parameters: Parameters) -> int:
    """A trial reports ``values`` until it is stopped; how many it came to report."""
    advisor.added(number, parameters)
    reports = [Report(step=step, value=value) for step, value in enumerate(values, start=1)]
    for count in range(1, len(reports) + 1):
        stopped = isinstance(advisor.assess(number, reports[:count]), Stop)
        if stopped or count == len(reports):
            status = TrialStatus.EARLY_STOPPED if stopped else TrialStatus.SUCCEEDED
            value = reports[count - 1].value
            outcome = TrialOutcome(number=number, status=status, parameters=parameters, value=value, step=count)
            advisor.ended(outcome, reports[:count])
            return count
    raise AssertionError("a trial reports something")


def points(count: int) -> list[Parameters]:
    rng = random.Random(1)
    return [{"x": rng.random(), "y": rng.random()} for _ in range(count)]


def test_where_parameters_tell_nothing_of_losses_most_trials_are_drawn_at_random() -> None:
    advisor, rng = an_advisor(), random.Random(3)
    for number, parameters in enumerate(points(40), start=1):
        end = rng.random()
        told(advisor, number, [end + 1 / step for step in range(1, EPOCHS + 1)], parameters)
    assert advisor.choice.startswith("random and gp")


def test_the_first_trials_at_a_rung_are_compared_again_when_others_have_come() -> None:
    advisor = an_advisor()
    bad, *others = points(8)
    advisor.added(1, bad)
    reports = [Report(step=step, value=5.0) for step in range(1, EPOCHS + 1)]
    assert isinstance(advisor.assess(1, reports[:1]), Keep)
    for number, parameters in enumerate(others, start=2):
        advisor.added(number, parameters)
        advisor.assess(number, [Report(step=1, value=1.0 + number / 10)])
    assert isinstance(advisor.assess(1, reports[:2]), Stop)


def test_a_trial_whose_course_ended_badly_before_is_stopped_though_it_is_ahead_of_most() -> None:
    advisor, rng = an_advisor(), random.Random(4)
    numbers = iter(range(1, 200))
    for parameters in points(60):
        end = rng.random()
        told(advisor, next(numbers), [end + 1.0] * (EPOCHS - 1) + [end], parameters)
    number = next(n for n in numbers if n % CHECKED_EVERY)
    assert told(advisor, number, [1.3] * (EPOCHS - 1) + [0.3], {"x": 0.5, "y": 0.5}) < EPOCHS


def test_the_trials_that_check_the_models_make_no_more_than_their_portion_of_the_reports() -> None:
    advisor = an_advisor()
    for number in range(1, 100):
        run(advisor, number)
    made = {number: len(losses) for number, _, losses, _ in advisor.state_dict()["courses"]}
    checks = [count for number, count in made.items() if number % CHECKED_EVERY == 0]
    assert sum(checks) <= CHECKS_LIMIT * sum(made.values()) + EPOCHS
    assert {min(checks) < EPOCHS, max(checks) == EPOCHS} == {True}


def test_parameters_that_change_under_way_leave_what_was_reported_with_the_old_ones_known() -> None:
    advisor = an_advisor()
    old, new, *_ = points(2)
    advisor.added(1, old)
    advisor.assess(1, [Report(step=1, value=1.0)])
    advisor.ended(
        TrialOutcome(number=1, status=TrialStatus.SUCCEEDED, parameters=new, value=0.5), [Report(step=1, value=0.5)]
    )
    other = an_advisor()
    other.load_state_dict(json.loads(json.dumps(advisor.state_dict())))
    assert other.state_dict() == advisor.state_dict()


def test_when_the_budget_has_room_for_no_new_trial_it_waits() -> None:
    assert isinstance(an_advisor().suggest(0, suggestion_generator(5, 1)), NotYet)


def test_a_snapshot_taken_while_trials_run_goes_on_as_the_search_itself_does() -> None:
    advisor = an_advisor()
    for number in range(1, 13):
        run(advisor, number)
    parameters = {"x": 0.2, "y": 0.2}
    advisor.decided(Decision(kind=DecisionKind.START, number=13, parameters=parameters))
    advisor.assess(13, reports_of(parameters, 1))
    other = an_advisor()
    other.load_state_dict(json.loads(json.dumps(advisor.state_dict())))
    assert [run(other, number) for number in (14, 15)] == [run(advisor, number) for number in (14, 15)]


def test_a_fork_learns_nothing_that_the_advisor_is_told_and_tells_it_nothing() -> None:
    advisor = an_advisor()
    for number in range(1, 12):
        run(advisor, number)
    fork, before = advisor.fork(), json.dumps(advisor.state_dict())
    parameters = {"x": 0.9, "y": 0.9}
    fork.added(12, parameters)
    fork.assess(12, reports_of(parameters, 1))
    assert json.dumps(advisor.state_dict()) == before
    run(advisor, 12)
    assert len(fork.state_dict()["points"]) < len(advisor.state_dict()["points"])


def test_a_trial_that_reports_nothing_counts_at_its_end() -> None:
    advisor = an_advisor()
    for number in range(1, 13):
        parameters = {"x": number / 12, "y": 0.6}
        advisor.added(number, parameters)
        outcome = TrialOutcome(
            number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=loss(parameters, EPOCHS)
        )
        advisor.ended(outcome, ())
    choice = advisor.suggest(13, suggestion_generator(5, 13))
    assert isinstance(choice, Start)
    assert abs(choice.parameters["x"] - 0.3) < 0.3


def test_the_trial_with_which_rungs_move_is_compared_with_at_the_new_ones_before_a_restart_and_after_it() -> None:
    advisor = an_advisor()
    first, *others, asked = points(3)
    long = [Report(step=step, value=0.1) for step in range(1, 2 * REPORTS_AT_FIRST_RUNG + 1)]
    advisor.added(1, first)
    advisor.ended(TrialOutcome(number=1, status=TrialStatus.SUCCEEDED, parameters=first, value=0.1), long)
    for number, parameters in enumerate(others, start=2):
        advisor.added(number, parameters)
        advisor.assess(number, long[:2])
    advisor.added(3, asked)
    restarted = an_advisor()
    restarted.load_state_dict(json.loads(json.dumps(advisor.state_dict())))
    behind = [Report(step=step, value=0.9) for step in (1, 2)]
    verdict = advisor.assess(3, behind)
    assert isinstance(verdict, Stop)
    assert restarted.assess(3, behind) == verdict


def test_results_from_elsewhere_are_no_trials_that_check_the_models() -> None:
    advisor, rng = an_advisor(), random.Random(4)
    imported = [
        TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters=parameters, value=1.0 + rng.random())
        for parameters in points(200)
    ]
    advisor.import_results(imported)
    numbers = iter(range(1, 200))
    for parameters in points(60):
        end = rng.random()
        told(advisor, next(numbers), [end + 1.0] * (EPOCHS - 1) + [end], parameters)
    number = next(n for n in numbers if n % CHECKED_EVERY == 0)
    assert told(advisor, number, [1.02] * (EPOCHS - 1) + [0.02], {"x": 0.5, "y": 0.5}) == EPOCHS


def test_where_no_trial_of_another_space_has_come_to_a_rung_it_draws_at_random() -> None:
    advisor = an_advisor()
    long = [Report(step=step, value=1 / step) for step in range(1, 4 * REPORTS_AT_FIRST_RUNG + 1)]
    for number, parameters in enumerate(points(12), start=1):
        advisor.added(number, parameters)
        outcome = TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=0.1)
        advisor.ended(outcome, long)
    advisor.update_search_space(parse_search_space({"z": SPACE["x"]}))
    for number in range(13, 30):
        advisor.added(number, {"z": number / 40})
        advisor.assess(number, long[:1])
    choice = advisor.suggest(30, suggestion_generator(5, 30))
    assert isinstance(choice, Start)
    assert advisor.space.contains(choice.parameters)
    assert advisor.choice


def test_a_fork_does_not_fit_again_what_the_advisor_has_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    advisor = an_advisor()
    for number in range(1, 31):
        run(advisor, number)
    advisor.suggest(31, random.Random(1))
    fitted: list[int] = []
    fit = model_surrogate.fit
    monkeypatch.setattr(model_surrogate, "fit", lambda *args: fitted.append(1) or fit(*args))
    fork, (parameters,) = advisor.fork(), points(1)
    fork.suggest(31, random.Random(1))
    assert not fitted
    told(fork, 31, [5.0] * EPOCHS, parameters)
    assert fork.suggest(32, random.Random(2)) != advisor.suggest(32, random.Random(2))
