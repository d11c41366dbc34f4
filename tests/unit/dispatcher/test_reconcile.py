"""The table "What resume does", row by row: what the rows say against what an agent observes."""

from __future__ import annotations

from typing import Any

from tests.builders import EXPERIMENT_ID, an_attempt
from tests.unit.dispatcher.harness import (
    AGENT,
    EXITED,
    KILLED,
    PROCESS,
    STOPPED,
    Harness,
    a_checkpoint_record,
    a_final,
    an_intermediate,
)
from trials.wire.attempt import AttemptKey
from trials.wire.messages import Forget, Launch, ObservedAttempt, Stop
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.reconcile import (
    Adopt,
    AwaitExit,
    DeclareLost,
    Finding,
    ForgetStray,
    LaunchAgain,
    StopStray,
    reconcile,
)
from tuner_service.domain.trial import Attempt, AttemptStatus

KEY = AttemptKey(experiment_id=EXPERIMENT_ID, number=1, attempt=1)
RUNNING = an_attempt(nonce="n")
STARTING = an_attempt(nonce="n", status=AttemptStatus.STARTING)


def seen(**overrides: Any) -> ObservedAttempt:
    fields = {"key": KEY, "nonce": "n", "lineage": "memory", "process": PROCESS, "exit": None, "spooled": 0}
    return ObservedAttempt(**(fields | overrides))


def findings(*believed: Attempt, observed: tuple[ObservedAttempt, ...] = ()) -> tuple[Finding, ...]:
    return reconcile({a.nonce: a for a in believed}, observed, lineage="memory")


# ── the pure function ───────────────────────────────────────────────────────────────────────────
def test_running_and_alive_is_adopted() -> None:
    assert findings(RUNNING, observed=(seen(),)) == (Adopt(nonce="n", process=PROCESS),)


def test_running_and_ended_is_awaited() -> None:
    assert findings(RUNNING, observed=(seen(exit=EXITED),)) == (AwaitExit(nonce="n"),)


def test_running_and_not_there_is_lost() -> None:
    assert findings(RUNNING) == (DeclareLost(nonce="n"),)


def test_owed_and_never_started_is_launched_again() -> None:
    assert findings(STARTING) == (LaunchAgain(nonce="n"),)


def test_what_has_reported_was_started_though_nobody_said_so() -> None:
    reported = an_attempt(nonce="n", status=AttemptStatus.STARTING, acknowledged=3)

    assert findings(reported) == (DeclareLost(nonce="n"),)


def test_owed_and_alive_is_adopted_by_its_nonce() -> None:
    assert findings(STARTING, observed=(seen(process=None),)) == (Adopt(nonce="n", process=None),)


def test_unknown_and_alive_is_stopped() -> None:
    assert findings(observed=(seen(),)) == (StopStray(key=KEY, nonce="n"),)


def test_unknown_and_ended_is_forgotten() -> None:
    assert findings(observed=(seen(exit=EXITED),)) == (ForgetStray(nonce="n"),)


def test_what_belongs_to_another_lineage_is_left_alone() -> None:
    assert findings(observed=(seen(lineage="another"), seen(nonce="m", lineage="another", exit=EXITED))) == ()


# ── carried out ─────────────────────────────────────────────────────────────────────────────────
def test_an_agent_is_welcomed_before_anything_else_with_what_is_on_disk(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5), an_intermediate(1, 0.5))
    nonce = h.attempt(1).nonce
    h.restart()
    effects = h.connect(h.observed(1))

    assert effects[0] == e.WelcomeAgent(agent_id=AGENT, acknowledged={nonce: 2})


def test_an_adopted_attempt_is_the_same_one_and_its_spool_is_read_on(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5))
    before = h.attempt(1)
    h.restart()
    h.connect(h.observed(1))

    assert h.attempt(1).nonce == before.nonce
    assert h.orders(Launch) == []
    h.report(1, a_final(0.5))
    h.exit(1)
    assert h.statuses() == {1: "succeeded"}


def test_an_attempt_that_started_while_the_service_was_down_is_adopted_and_not_launched_twice(h: Harness) -> None:
    h.begin()
    h.suggest()
    observed = h.observed(1)
    h.restart()
    h.connect(observed)

    assert h.orders(Launch) == []
    assert (h.attempt(1).status, h.attempt(1).process) == (AttemptStatus.RUNNING, PROCESS)


def test_an_attempt_that_is_held_and_has_no_process_yet_stays_starting(h: Harness) -> None:
    h.begin()
    h.suggest()
    h.connect(h.observed(1, process=None))

    assert h.attempt(1).status is AttemptStatus.STARTING


def test_of_an_attempt_that_ended_meanwhile_reports_are_taken_and_then_its_exit(h: Harness) -> None:
    h.run()
    h.restart()
    h.connect(h.observed(1, exit=EXITED, spooled=1))
    assert h.statuses() == {1: "running"}
    h.report(1, a_final(0.5))
    h.exit(1)

    assert h.statuses() == {1: "succeeded"}


def test_a_lost_attempt_is_followed_by_a_new_one_from_the_newest_checkpoint(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5), a_checkpoint_record(0))
    lost = h.attempt(1)
    h.restart()
    h.connect()

    (launch,) = h.orders(Launch)
    assert (launch.key.attempt, [k.step for k in launch.spec.checkpoints]) == (2, [0])
    assert launch.nonce != lost.nonce
    (first, _) = h.store.queries.attempts(h.experiment.id, 1)
    assert first.status is AttemptStatus.LOST
    assert h.trial(1).charged == 0


def test_a_launch_still_owed_is_ordered_with_the_same_nonce(h: Harness) -> None:
    h.begin()
    h.suggest()
    (owed,) = h.orders(Launch)
    h.restart()
    h.connect()

    assert h.orders(Launch) == [owed]


def test_a_launch_owed_to_a_trial_that_was_stopped_meanwhile_is_not_made(h: Harness) -> None:
    h.begin()
    h.suggest()
    h.stop()
    h.restart()
    h.connect()

    assert h.orders(Launch) == []
    assert h.statuses() == {1: "paused"}


def test_a_stopping_attempt_that_is_alive_is_told_to_stop_again(h: Harness) -> None:
    h.run()
    h.stop()
    h.restart()
    h.connect(h.observed(1))

    (stop,) = h.orders(Stop)
    assert stop.reason == "experiment_stopped"


def test_a_stopping_attempt_that_is_gone_has_stopped(h: Harness) -> None:
    h.run()
    h.stop()
    h.restart()
    h.connect()

    assert h.statuses() == {1: "paused"}
    assert h.experiment.status.value == "stopped"


def test_an_ended_trial_that_is_alive_somewhere_is_stopped_with_no_grace(h: Harness) -> None:
    h.run()
    late = h.observed(1)
    h.exit(1, KILLED)
    h.connect(late)

    (stop,) = h.orders(Stop)
    assert (stop.nonce, stop.grace_s, stop.reason) == (late.nonce, 0.0, "not_believed")


def test_an_exit_that_is_in_the_rows_already_is_forgotten(h: Harness) -> None:
    h.run()
    late = h.observed(1, exit=STOPPED)
    h.exit(1, STOPPED)
    h.connect(late, h.observed(1))

    assert [order.nonce for order in h.orders(Forget)] == [late.nonce]


def test_attempts_of_another_agent_are_not_missed(h: Harness) -> None:
    h.run()
    h.connect(agent_id="agent-2")

    assert h.statuses() == {1: "running"}
    assert h.attempt(1).agent_id == AGENT


# ── a copied database ───────────────────────────────────────────────────────────────────────────
def test_a_copied_database_does_not_believe_the_attempts_of_the_original(h: Harness) -> None:
    h.run()
    observed = h.observed(1)
    h.restart(lineage="copy")
    assert h.statuses() == {1: "waiting"}

    h.connect(observed)

    assert h.orders(Stop) == h.orders(Forget) == []
    (launch,) = h.orders(Launch)
    assert (launch.key.attempt, launch.lineage) == (2, "copy")


def test_the_original_goes_on_as_if_there_were_no_copy(h: Harness) -> None:
    h.run()
    mine = h.observed(1)
    h.restart()
    h.connect(mine, seen(nonce="of the copy", lineage="copy"))

    assert h.statuses() == {1: "running"}
    assert h.orders(Stop) == []
