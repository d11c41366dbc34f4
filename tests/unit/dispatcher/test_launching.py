"""From a created experiment to a running attempt."""

from __future__ import annotations

import pytest

from tests.builders import EXPERIMENT_ID, a_spec
from tests.unit.dispatcher.harness import AGENT, KILLED, Harness, a_checkpoint_record, an_intermediate
from trials.wire.messages import Launch, Stop
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.items import Queue, Suggested, SuggestionRequested
from tuner_service.dispatcher.limits import LAUNCH_REPEAT_S
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.seeds import trial_seed
from tuner_service.domain.trial import AttemptStatus, TrialReason, TrialStatus


def test_a_created_experiment_runs_at_once_and_asks_its_worker_for_the_first_trial(h: Harness) -> None:
    effects = h.create()

    assert h.experiment.status is ExperimentStatus.RUNNING
    start, deliver = effects
    assert isinstance(start, e.StartWorker)
    assert (start.tuner_cursor, start.assessor_cursor) == (0, 0)
    assert isinstance(deliver, e.Deliver)
    assert deliver.item == SuggestionRequested(line=2, number=1)
    assert deliver.generation == start.generation


def test_creation_stores_code_search_space_and_idempotency_key_in_its_transaction(h: Harness) -> None:
    spec = a_spec(trial={"code_digest": "c" * 64})
    key = c.IdempotencyKey(key="k", body_digest="d")
    h.handle(c.ExperimentCreated(at=h.at, experiment_id=EXPERIMENT_ID, spec=spec, code=b"tar", idempotency=key))

    assert h.changes.blobs == {"c" * 64: b"tar"}
    assert h.store.queries.search_space(EXPERIMENT_ID) == spec.search_space
    stored = h.store.queries.idempotency_key("k")
    assert stored is not None
    assert (stored.experiment_id, stored.body_digest) == (EXPERIMENT_ID, "d")


def test_an_id_is_never_used_twice(h: Harness) -> None:
    h.create()

    with pytest.raises(ConflictError, match="ids are never used twice"):
        h.create()


def test_suggestions_are_asked_for_one_at_a_time_until_parallelism_is_reached(h: Harness) -> None:
    h.begin(budget={"trials": 9, "parallel": 2})

    assert h.asked_for() == [1]
    h.suggest()
    assert h.asked_for() == [2]
    h.suggest()
    assert h.asked_for() == []


def test_no_more_than_the_budget_is_asked_for(h: Harness) -> None:
    h.run(trials=2, budget={"trials": 2, "parallel": 5})

    assert h.asked_for() == []


def test_a_suggested_trial_waits_until_an_agent_connects(h: Harness) -> None:
    h.create()
    h.ready()
    h.suggest()
    assert h.orders(Launch) == []
    assert h.trial(1).status is TrialStatus.WAITING

    h.connect()

    (launch,) = h.orders(Launch)
    assert h.told_to(AGENT) == [launch]
    assert h.trial(1).status is TrialStatus.RUNNING
    assert h.attempt(1).status is AttemptStatus.STARTING


def test_a_launch_carries_the_parameters_the_seed_of_the_trial_and_a_nonce_of_its_own(h: Harness) -> None:
    h.begin(seed=11)
    h.suggest(lr=0.25)
    (first,) = h.orders(Launch)
    h.suggest(lr=0.5)
    (second,) = h.orders(Launch)

    assert first.spec.parameters == {"lr": 0.25}
    assert first.spec.seed == trial_seed(11, 1)
    assert second.spec.seed == trial_seed(11, 2)
    assert first.nonce != second.nonce
    assert first.lineage == "memory"


def test_a_started_attempt_is_running(h: Harness) -> None:
    h.run()

    attempt = h.attempt(1)
    assert (attempt.status, attempt.started_at) == (AttemptStatus.RUNNING, h.at)
    assert attempt.process is not None


def test_started_twice_is_started_once(h: Harness) -> None:
    h.run()
    since = h.attempt(1).started_at
    h.at += 5
    h.started(1)

    assert h.attempt(1).started_at == since


def test_a_start_nobody_believes_in_is_stopped_at_once(h: Harness) -> None:
    h.run()
    attempt = h.attempt(1)
    h.exit(1, KILLED)

    h.started_as(attempt)

    (stop,) = h.told_to(attempt.agent_id)
    assert stop == Stop(key=attempt.key, nonce=attempt.nonce, grace_s=0.0, reason="not_believed")


def test_an_unconfirmed_launch_is_ordered_again_with_the_same_nonce(h: Harness) -> None:
    h.begin()
    h.suggest()
    (first,) = h.orders(Launch)

    h.after(LAUNCH_REPEAT_S)
    assert h.orders(Launch) == []
    h.after(1)
    assert h.orders(Launch) == [first]
    h.after(1)
    assert h.orders(Launch) == []


def test_a_launch_is_not_repeated_while_its_agent_is_away(h: Harness) -> None:
    h.begin()
    h.suggest()
    h.disconnect()

    h.after(LAUNCH_REPEAT_S + 1)

    assert h.orders(Launch) == []


def test_a_trial_that_was_stopped_before_it_started_is_told_to_stop_again_and_not_launched(h: Harness) -> None:
    h.begin()
    h.suggest()
    h.stop_trial(1)

    h.after(LAUNCH_REPEAT_S + 1)

    assert h.orders(Launch) == []
    assert len(h.orders(Stop)) == 1
    h.after(1)
    assert h.orders(Stop) == []


# ── placement ───────────────────────────────────────────────────────────────────────────────────
def test_trials_that_name_cores_share_those_of_an_agent(h: Harness) -> None:
    h.create(budget={"trials": 9, "parallel": 4}, trial={"cpus": 2.0})
    h.ready()
    h.connect(cpus=4)

    for _ in range(3):
        h.suggest()

    assert h.statuses() == {1: "running", 2: "running", 3: "waiting"}


def test_a_freed_core_goes_to_the_lowest_waiting_number(h: Harness) -> None:
    h.create(budget={"trials": 9, "parallel": 4}, trial={"cpus": 1.0, "max_attempts": 9})
    h.ready()
    h.connect(cpus=2)
    for _ in range(4):
        h.suggest()
    h.exit(2, KILLED)

    assert h.statuses() == {1: "running", 2: "running", 3: "waiting", 4: "waiting"}
    assert h.attempt(2).key.attempt == 2


def test_the_agent_with_the_most_free_cores_is_taken(h: Harness) -> None:
    h.create(budget={"trials": 9, "parallel": 4}, trial={"cpus": 2.0})
    h.ready()
    h.connect(agent_id="small", cpus=2)
    h.connect(agent_id="large", cpus=5)
    for _ in range(3):
        h.suggest()

    assert [h.attempt(n).agent_id for n in (1, 2, 3)] == ["large", "large", "small"]


def test_cores_of_another_experiment_count(h: Harness) -> None:
    h.create(budget={"trials": 9, "parallel": 4}, trial={"cpus": 2.0})
    h.handle(c.ExperimentCreated(at=h.at, experiment_id="other", spec=a_spec(trial={"cpus": 1.0})))
    h.ready()
    h.connect(cpus=2)
    h.suggest()
    other = h.dispatcher.state.experiments["other"]
    line = other.queues[Queue.TUNER].pending[0].line

    h.handle(
        c.QueueAnswered(
            at=h.at,
            experiment_id="other",
            generation=other.worker.generation,
            queue=Queue.TUNER,
            answers=(Suggested(line=line, parameters={}),),
        )
    )

    assert [t.status for t in h.store.queries.trials("other")] == [TrialStatus.WAITING]


def test_a_trial_without_named_cores_fits_everywhere(h: Harness) -> None:
    h.create(budget={"trials": 9, "parallel": 3})
    h.ready()
    h.connect(cpus=1)
    for _ in range(3):
        h.suggest()

    assert set(h.statuses().values()) == {"running"}


# ── attempts after the first ────────────────────────────────────────────────────────────────────
def test_a_new_attempt_is_given_the_checkpoints_newest_first(h: Harness) -> None:
    h.run(trial={"keep_last": 2})
    h.report(1, an_intermediate(0, 0.5), a_checkpoint_record(0), an_intermediate(1, 0.4), a_checkpoint_record(1))
    h.exit(1, KILLED)

    (launch,) = h.orders(Launch)
    assert [ref.step for ref in launch.spec.checkpoints] == [1, 0]
    assert launch.key.attempt == 2
    assert h.attempt(1).restored_step == 1
    assert h.trial(1).reason is TrialReason.LAUNCHED


def test_the_seed_is_the_same_for_every_attempt(h: Harness) -> None:
    h.begin()
    h.suggest()
    (first,) = h.orders(Launch)
    h.exit(1, KILLED)
    (second,) = h.orders(Launch)

    assert first.spec.seed == second.spec.seed
    assert first.nonce != second.nonce


def test_a_parallelism_lowered_meanwhile_holds_for_trials_that_wait(h: Harness) -> None:
    h.run(trials=2, trial={"max_attempts": 9})
    h.disconnect()
    h.exit(2, KILLED)
    h.resume(parallel=1)
    h.connect(h.observed(1))

    assert h.statuses() == {1: "running", 2: "waiting"}
    h.succeed(1)
    assert h.statuses() == {1: "succeeded", 2: "running"}


def test_a_command_nobody_knows_is_a_bug_and_not_ignored(h: Harness) -> None:
    class Unheard:
        at = 0.0

    with pytest.raises(AssertionError):
        h.dispatcher.handle(Unheard())  # type: ignore[arg-type]  # that is the point
