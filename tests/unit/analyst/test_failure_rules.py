"""The rule that tells people which parameter makes trials fail."""

from __future__ import annotations

import random
from typing import Any

from tests.builders import a_trial
from tests.unit.analyst.test_analyses import analyses, succeeded
from tuner_service.analyst.analyses import RULE_TRIALS
from tuner_service.analyst.failure_rules import failure_rule
from tuner_service.domain.trial import TrialReason, TrialStatus


def test_failures_above_a_number_are_told_by_it() -> None:
    ended = [({"batch": batch, "lr": batch % 7 / 10}, batch > 400) for batch in range(10, 600, 10)]
    rule = failure_rule(ended)
    assert rule is not None
    assert rule.sentence == "trials with batch > 400 fail (19 of 19 did)"


def test_failures_below_a_number_are_told_by_it() -> None:
    rule = failure_rule([({"lr": lr / 100}, lr < 20) for lr in range(60)])
    assert rule is not None
    assert (rule.parameter, rule.relation, rule.value) == ("lr", "<", 0.2)


def test_failures_with_one_option_are_told_by_it() -> None:
    options = ["float32", "float16", None, True]
    rule = failure_rule([({"kind": options[n % 4], "x": n * 37 % 40}, n % 4 == 1) for n in range(40)])
    assert rule is not None
    assert rule.sentence == 'trials with kind is "float16" fail (10 of 10 did)'


def test_a_few_successes_beyond_the_border_do_not_hide_it() -> None:
    ended = [({"batch": batch}, batch > 400 and batch != 500) for batch in range(10, 600, 10)]
    rule = failure_rule(ended)
    assert rule is not None
    assert (rule.value, rule.covered, rule.failed) == (400, 19, 18)


def test_failures_that_strike_anywhere_make_no_rule() -> None:
    rng = random.Random(3)
    assert failure_rule([({"x": rng.random(), "y": rng.random()}, rng.random() < 0.3) for _ in range(200)]) is None


def test_where_nearly_everything_fails_no_parameter_is_blamed() -> None:
    assert failure_rule([({"x": n}, n != 7) for n in range(40)]) is None


def test_few_failures_make_no_rule() -> None:
    assert failure_rule([({"x": n}, n >= 96) for n in range(100)]) is None
    assert failure_rule([]) is None


def a_failure(number: int, reason: TrialReason, **parameters: Any) -> Any:
    return a_trial(number=number, status=TrialStatus.FAILED, reason=reason, parameters=parameters)


def test_what_was_killed_from_outside_is_no_failure_of_a_parameter() -> None:
    fine = [succeeded(number, 0.1, parameters={"batch": number}) for number in range(1, 11)]
    own = [a_failure(number, TrialReason.OUT_OF_MEMORY, batch=number) for number in range(11, 19)]
    lost = [a_failure(number, TrialReason.CRASH_LOOP, batch=number) for number in range(11, 19)]
    found = analyses([*fine, *own]).failures()
    assert (found["ended"], found["failed"], found["rule"]["sentence"]) == (
        18,
        8,
        "trials with batch > 10 fail (8 of 8 did)",
    )
    assert analyses([*fine, *lost]).failures() == {"id": found["id"], "ended": 10, "failed": 0, "rule": None}


def test_of_very_many_trials_the_newest_are_looked_at_and_of_the_others_no_parameters_are_read() -> None:
    found = analyses([succeeded(1, 0.1, parameters={"x": 1}), a_failure(2, TrialReason.OUT_OF_MEMORY, x=2)])
    fine, failed = found.trials.entries
    old, lost = fine._replace(parameters="no JSON"), failed._replace(reason=TrialReason.CRASH_LOOP.value)
    found.trials.entries[:] = [old, failed, *[fine] * (RULE_TRIALS - 2), lost, failed]
    told = found.failures()
    assert (told["ended"], told["failed"]) == (RULE_TRIALS, 2)
