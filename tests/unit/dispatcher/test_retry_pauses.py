"""What fails fast is not started again at once: each further attempt of a trial waits twice as long, to a bound."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.unit.dispatcher.harness import CRASHED, KILLED, Harness, a_final, an_intermediate
from trials.wire.messages import Launch
from trials.wire.records import ExitRecord
from tuner_service.dispatcher.endings import retry_pause
from tuner_service.dispatcher.limits import RETRY_PAUSE_LIMIT_S
from tuner_service.domain.trial import TrialStatus

ATTEMPTS = 1_000
TICK_S = 0.25


def a_failing_trial(h: Harness, *, times: int, record: ExitRecord = CRASHED) -> None:
    """That failed so often, each time at once."""
    h.run(budget={"trials": 3, "parallel": 1}, trial={"max_attempts": ATTEMPTS})
    for _ in range(times - 1):
        h.exit(1, record)
        h.after(RETRY_PAUSE_LIMIT_S)
    h.exit(1, record)


def test_the_pauses_grow_from_nothing_to_their_bound() -> None:
    pauses = [retry_pause(failed) for failed in range(1, ATTEMPTS)]
    assert pauses[:9] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert all(earlier <= later <= RETRY_PAUSE_LIMIT_S for earlier, later in pairwise(pauses))


def test_the_first_new_attempt_begins_at_once_and_the_next_one_after_a_pause(h: Harness) -> None:
    a_failing_trial(h, times=1)
    assert h.trial(1).status is TrialStatus.RUNNING
    h.exit(1, CRASHED)
    assert h.trial(1).status is TrialStatus.WAITING
    assert h.trial(1).message.endswith("tried again; waits 1 s before its next attempt")
    assert h.after(0.9) == []
    h.after(0.2)
    assert len(h.orders(Launch)) == 1


def test_a_trial_that_fails_at_once_is_not_started_hundreds_of_times(h: Harness) -> None:
    a_failing_trial(h, times=1)
    began = h.at
    while h.at - began < 240:
        if h.trial(1).status is TrialStatus.RUNNING:
            h.exit(1, CRASHED)
        h.after(TICK_S)
    assert h.trial(1).attempts <= 12


def test_deaths_from_outside_are_counted_until_there_is_progress(h: Harness) -> None:
    a_failing_trial(h, times=4, record=KILLED)
    assert "waits 4 s" in h.trial(1).message
    h.after(4)
    h.report(1, an_intermediate(1, 0.5))
    h.exit(1, KILLED)
    assert h.trial(1).status is TrialStatus.RUNNING


def test_what_was_charged_before_does_not_hold_up_a_trial_that_was_preempted(h: Harness) -> None:
    a_failing_trial(h, times=5)
    h.after(RETRY_PAUSE_LIMIT_S)
    h.report(1, an_intermediate(1, 0.5))
    h.exit(1, KILLED)
    assert h.trial(1).status is TrialStatus.RUNNING


def test_a_pause_outlives_the_service(h: Harness) -> None:
    a_failing_trial(h, times=4)
    h.restart()
    h.connect()
    assert h.trial(1).status is TrialStatus.WAITING
    h.after(3.9)
    assert h.trial(1).status is TrialStatus.WAITING
    h.after(0.2)
    assert h.trial(1).status is TrialStatus.RUNNING


def test_a_trial_that_pauses_can_be_stopped_and_holds_nothing_up(h: Harness) -> None:
    a_failing_trial(h, times=4)
    h.stop_trial(1)
    assert h.statuses()[1] == "canceled"
    assert h.xs.held_until == {}


@pytest.mark.parametrize("resumed", [False, True])
def test_a_person_who_resumes_an_experiment_waits_for_no_pause(h: Harness, resumed: bool) -> None:
    a_failing_trial(h, times=4)
    h.stop()
    if resumed:
        h.resume()
        h.ready()
        assert h.trial(1).status is TrialStatus.RUNNING
        h.report(1, a_final(0.5))
        h.exit(1)
        assert h.statuses()[1] == "succeeded"
    else:
        assert h.statuses()[1] == "paused"
