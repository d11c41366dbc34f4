"""A tuner whose suggestions depend on no outcome is asked for some before there is room to run them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import a_trial
from tests.unit.dispatcher.harness import Harness
from trials.wire.messages import Launch
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import TrialReason, TrialStatus


def begin(h: Harness, *, trials: int = 20, parallel: int = 2, **overrides: Any) -> None:
    h.create(budget={"trials": trials, "parallel": parallel}, **overrides)
    h.ready(asks_ahead=True)
    h.connect()


def suggest_all(h: Harness) -> None:
    while h.asked_for():
        h.suggest()


def test_as_many_are_suggested_ahead_as_run_at_a_time(h: Harness) -> None:
    begin(h)
    suggest_all(h)

    assert list(h.statuses().values()) == ["running", "running", "waiting", "waiting"]


def test_of_many_that_run_at_a_time_only_a_few_more_are_suggested_ahead(h: Harness) -> None:
    begin(h, parallel=10)
    suggest_all(h)

    assert list(h.statuses().values()) == ["running"] * 10 + ["waiting"] * 4


def test_what_is_suggested_ahead_may_be_saved_with_the_next_step_and_what_starts_may_not(h: Harness) -> None:
    begin(h, trials=4)
    found = []
    while h.asked_for():
        h.suggest()
        found.append((h.statuses()[len(found) + 1], h.could_wait))

    assert found[0] == ("running", False)
    assert found[-1] == ("waiting", True)


def test_the_end_of_a_trial_launches_the_next_one_in_the_same_step(h: Harness) -> None:
    begin(h)
    suggest_all(h)
    h.started(1)

    h.exit(1)

    assert [order.key.number for order in h.orders(Launch)] == [3]
    assert h.asked_for() == [5]


def test_the_budget_is_not_exceeded(h: Harness) -> None:
    begin(h, trials=3)
    suggest_all(h)

    assert list(h.statuses()) == [1, 2, 3]


def test_where_outcomes_matter_nothing_is_suggested_before_there_is_room(h: Harness) -> None:
    h.begin(budget={"trials": 20, "parallel": 2})
    suggest_all(h)

    assert list(h.statuses().values()) == ["running", "running"]


def test_a_deterministic_experiment_is_never_ahead(h: Harness) -> None:
    begin(h, deterministic=True)
    suggest_all(h)

    assert list(h.statuses().values()) == ["running", "running"]


def test_a_suggestion_that_nobody_has_seen_may_be_saved_later_and_a_launch_may_not(h: Harness) -> None:
    begin(h, parallel=1)

    h.suggest()
    assert h.orders(Launch)
    assert not h.changes.only_counts

    h.suggest()
    assert h.statuses() == {1: "running", 2: "waiting"}
    assert h.changes.only_counts


@pytest.mark.parametrize(
    ("status", "reason", "attempts", "only_counts"),
    [
        (TrialStatus.WAITING, TrialReason.SUGGESTED, 0, True),
        (TrialStatus.WAITING, TrialReason.SUGGESTED, 1, False),
        (TrialStatus.WAITING, TrialReason.ADDED, 0, False),
        (TrialStatus.RUNNING, TrialReason.SUGGESTED, 0, False),
    ],
)
def test_only_a_suggestion_that_nobody_has_seen_would_come_again(
    status: TrialStatus, reason: TrialReason, attempts: int, only_counts: bool
) -> None:
    trial = a_trial(status=status, reason=reason, attempts=attempts)

    assert Changes(trials={(trial.experiment_id, trial.number): trial}).only_counts is only_counts
