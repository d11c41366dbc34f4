"""The algorithm worker: answered once, replaced when it dies or hangs, and what its faults lead to."""

from __future__ import annotations

import pytest

from tests.builders import EXPERIMENT_ID
from tests.unit.dispatcher.harness import STOPPED, Harness, a_final, an_intermediate
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.items import AlgorithmFault, Queue, Suggested, Taken
from tuner_service.dispatcher.limits import (
    ALGORITHM_RETRIES,
    PAUSED_WORKER_S,
    PING_EVERY_S,
    PING_TIMEOUT_S,
    WORKER_BACKOFF_LIMIT_S,
    WORKER_BACKOFF_S,
    WORKER_DEATHS_LIMIT,
    WORKER_IDLE_DEATHS_LIMIT,
    WORKER_STEADY_S,
)
from tuner_service.dispatcher.state import WorkerPhase
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus

ASSESSED = AlgorithmSpec(name="median_stop")
LONG_S = 60.0  # longer than every pause before a new worker


def generations(h: Harness) -> list[int]:
    return [order.generation for order in h.orders(e.StartWorker)]


# ── answers ─────────────────────────────────────────────────────────────────────────────────────
def test_an_answer_moves_the_cursor_in_the_transaction_that_applies_it(h: Harness) -> None:
    h.begin()
    h.suggest(lr=0.5)

    assert h.experiment.tuner_cursor == 2
    assert h.trial(1).parameters == {"lr": 0.5}
    assert h.trial(1).decided_line == 2


def test_an_answer_counts_once(h: Harness) -> None:
    h.begin()
    (item,) = h.pending(Queue.TUNER)
    h.suggest(lr=0.5)
    h.answer(Queue.TUNER, Suggested(line=item.line, parameters={"lr": 0.9}))

    assert h.trial(1).parameters == {"lr": 0.5}
    assert list(h.statuses()) == [1]


def test_an_answer_out_of_turn_replaces_the_worker(h: Harness) -> None:
    h.begin()
    h.answer(Queue.TUNER, Suggested(line=99, parameters={}))

    assert len(h.orders(e.StopWorker)) == 1
    assert h.journal("worker_replaced") == [{"why": "answered line 99 before line 2", "deaths": 1}]
    assert h.statuses() == {}


def test_what_a_replaced_worker_says_is_dropped(h: Harness) -> None:
    h.begin()
    old = h.xs.worker.generation
    h.worker_dies()
    h.after(1)
    command = c.QueueAnswered(
        at=h.at,
        experiment_id=EXPERIMENT_ID,
        generation=old,
        queue=Queue.TUNER,
        answers=(Suggested(line=2, parameters={}),),
    )

    assert h.handle(command) == []
    assert h.statuses() == {}


@pytest.mark.parametrize(
    "event",
    [
        c.WorkerReady(at=0.0, experiment_id="gone", generation=1),
        c.WorkerPonged(at=0.0, experiment_id="gone", generation=1),
        c.WorkerProgressed(at=0.0, experiment_id="gone", generation=1, queue=Queue.TUNER),
        c.WorkerDied(at=0.0, experiment_id="gone", generation=1, detail=""),
        c.QueueAnswered(at=0.0, experiment_id="gone", generation=1, queue=Queue.TUNER, answers=(Taken(line=1),)),
        c.SnapshotTaken(at=0.0, experiment_id="gone", generation=1, queue=Queue.TUNER, line=1, state="{}"),
        c.AlgorithmFaulted(
            at=0.0,
            experiment_id="gone",
            generation=1,
            queue=Queue.TUNER,
            line=1,
            fault=AlgorithmFault.RAISED,
            message="",
            traceback="",
        ),
    ],
    ids=lambda event: type(event).__name__,
)
def test_the_worker_of_a_deleted_experiment_is_not_heard(h: Harness, event: c.WorkerEvent) -> None:
    assert h.handle(event) == []
    assert not h.changes


def test_a_tuner_without_a_suggestion_is_asked_again_after_the_next_outcome(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 3})
    h.suggest_nothing_yet()
    h.after(1)
    assert h.asked_for() == []

    h.succeed(1)
    assert h.asked_for() == [2]


def test_a_tuner_that_waits_for_an_outcome_nobody_can_give_pauses_the_experiment(h: Harness) -> None:
    h.begin()
    h.suggest_nothing_yet()

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.ALGORITHM_FAILED)
    assert "the tuner waits for an outcome" in h.experiment.message
    h.resume()
    assert h.asked_for() == [1]


def test_an_exhausted_space_ends_the_experiment_when_its_last_trial_has(h: Harness) -> None:
    h.run(trials=1)
    h.suggest_no_more()
    assert h.experiment.status is ExperimentStatus.RUNNING
    h.succeed(1)

    assert (h.experiment.status, h.experiment.reason) == (
        ExperimentStatus.COMPLETED,
        ExperimentReason.SPACE_EXHAUSTED,
    )
    assert h.orders(e.StopWorker) == [e.StopWorker(experiment_id=EXPERIMENT_ID)]


# ── snapshots ───────────────────────────────────────────────────────────────────────────────────
def snapshot(h: Harness, queue: Queue, line: int) -> None:
    generation = h.xs.worker.generation
    h.handle(
        c.SnapshotTaken(at=h.at, experiment_id=EXPERIMENT_ID, generation=generation, queue=queue, line=line, state="{}")
    )


@pytest.mark.parametrize("queue", list(Queue))
def test_a_snapshot_is_kept_if_it_covers_no_more_than_what_was_answered(h: Harness, queue: Queue) -> None:
    h.run(assessor=ASSESSED)
    h.report(1, an_intermediate(0, 0.5))
    h.take(Queue.ASSESSOR)
    cursor = {Queue.TUNER: h.experiment.tuner_cursor, Queue.ASSESSOR: h.experiment.assessor_cursor}[queue]
    snapshot(h, queue, cursor + 1)
    assert h.store.snapshot(EXPERIMENT_ID, queue) is None
    snapshot(h, queue, cursor)
    stored = h.store.snapshot(EXPERIMENT_ID, queue)
    assert stored is not None
    assert (stored.line, stored.state) == (cursor, "{}")


# ── deaths ──────────────────────────────────────────────────────────────────────────────────────
def test_a_dead_worker_is_replaced_and_given_everything_unanswered_again(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 2}, assessor=ASSESSED)
    h.report(1, an_intermediate(0, 0.5))
    h.worker_dies()
    assert generations(h) == []
    h.after(1)

    (start,) = h.orders(e.StartWorker)
    assert (start.tuner_cursor, start.assessor_cursor) == (h.experiment.tuner_cursor, 0)
    delivered = [order.item for order in h.orders(e.Deliver)]
    assert delivered == [*h.pending(Queue.TUNER), *h.pending(Queue.ASSESSOR)]
    assert len(delivered) == 2


def test_what_happens_while_there_is_no_worker_is_delivered_to_the_next_one(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 1})
    h.worker_dies()
    h.succeed(1)
    assert h.orders(e.Deliver) == []
    h.after(1)

    assert [order.item for order in h.orders(e.Deliver)] == h.pending(Queue.TUNER)


def test_pauses_before_a_new_worker_grow_up_to_a_bound(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 1, "parallel": 1})  # nothing waits for an answer
    pauses = []
    for _ in range(12):
        h.ready()
        h.worker_dies()
        assert h.xs.worker.respawn_at is not None
        pauses.append(round(h.xs.worker.respawn_at - h.at, 3))
        h.after(LONG_S)
        assert len(generations(h)) == 1

    assert pauses[:3] == [WORKER_BACKOFF_S, 2 * WORKER_BACKOFF_S, 4 * WORKER_BACKOFF_S]
    assert pauses[-1] == WORKER_BACKOFF_LIMIT_S
    assert h.experiment.status is ExperimentStatus.RUNNING


def test_a_steady_worker_starts_the_count_of_deaths_anew(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 1, "parallel": 1})
    h.worker_dies()
    h.after(1)
    h.ready()
    h.after(WORKER_STEADY_S + 1)
    h.worker_dies()

    assert h.xs.worker.deaths == 1


def test_a_worker_that_keeps_dying_on_one_line_pauses_the_experiment(h: Harness) -> None:
    h.begin()
    for _ in range(WORKER_DEATHS_LIMIT - 1):
        h.worker_dies()
        assert h.experiment.status is ExperimentStatus.RUNNING
        h.after(LONG_S)
        h.ready()
    h.worker_dies()

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.WORKER_DIES)
    assert h.experiment.detail == "signal 9"
    assert h.experiment.message == (
        f"signal 9, {WORKER_DEATHS_LIMIT} times in a row without an answer (tuner: line 2 of the journal); "
        "fix the cause, then resume"
    )
    assert len(h.orders(e.StopWorker)) == 1
    h.after(LONG_S)
    assert generations(h) == []


def test_a_worker_whose_history_is_damaged_pauses_the_experiment_at_once_with_the_row(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 4, "parallel": 1})
    h.worker_dies()
    h.after(LONG_S)
    h.worker_dies(damage="a stored Trial (x/1) is damaged in column parameters: why; run `tuner doctor`")

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.ROWS_DAMAGED)
    assert len(h.orders(e.StopWorker)) == 1
    assert h.experiment.message.startswith(
        "its rows are damaged: a stored Trial (x/1) is damaged in column parameters: why; its trials run on; "
    )
    assert "start the service again and resume" in h.experiment.message
    h.after(LONG_S)
    assert generations(h) == []
    h.resume()
    assert len(generations(h)) == 1


def test_a_worker_that_dies_before_it_is_ready_is_not_started_for_ever(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 1, "parallel": 1})
    h.worker_dies()
    for _ in range(WORKER_DEATHS_LIMIT):
        assert h.experiment.status is ExperimentStatus.RUNNING
        h.after(LONG_S)
        h.worker_dies()

    assert h.experiment.reason is ExperimentReason.WORKER_DIES


def test_a_worker_that_keeps_dying_with_nothing_to_answer_pauses_the_experiment_too(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 1, "parallel": 1})
    for _ in range(WORKER_IDLE_DEATHS_LIMIT - 1):
        h.worker_dies()
        assert h.experiment.status is ExperimentStatus.RUNNING
        h.after(LONG_S)
        h.ready()
    h.worker_dies()

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.WORKER_DIES)
    assert "times in a row without an answer; fix" in h.experiment.message


def test_a_person_who_resumes_gives_a_worker_as_many_idle_deaths_again(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 1, "parallel": 1})
    for _ in range(2):
        for _ in range(WORKER_IDLE_DEATHS_LIMIT - 1):
            h.worker_dies()
            assert h.experiment.status is ExperimentStatus.RUNNING
            h.after(LONG_S)
            h.ready()
        h.worker_dies()
        assert h.experiment.reason is ExperimentReason.WORKER_DIES
        h.resume()
        h.ready()


def test_a_steady_life_ends_the_series_of_idle_deaths(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 1, "parallel": 1})
    for _ in range(2 * WORKER_IDLE_DEATHS_LIMIT):
        h.worker_dies()
        h.after(LONG_S)
        h.ready()
        h.after(WORKER_STEADY_S + 1)

    assert h.experiment.status is ExperimentStatus.RUNNING


def test_an_answer_ends_the_series_of_deaths(h: Harness) -> None:
    h.begin(budget={"trials": 99, "parallel": 99})
    for _ in range(2 * WORKER_DEATHS_LIMIT):
        h.worker_dies()
        h.after(LONG_S)
        h.ready()
        h.suggest()

    assert h.experiment.status is ExperimentStatus.RUNNING


def test_resuming_after_deaths_starts_a_worker_with_new_counts(h: Harness) -> None:
    h.begin()
    for _ in range(WORKER_DEATHS_LIMIT):
        h.worker_dies()
        h.after(LONG_S)
        if h.experiment.status is ExperimentStatus.RUNNING:
            h.ready()
    h.resume()

    assert len(generations(h)) == 1
    for _ in range(WORKER_DEATHS_LIMIT - 1):
        h.ready()
        h.worker_dies()
        assert h.experiment.status is ExperimentStatus.RUNNING
        h.after(LONG_S)


def test_a_person_who_resumes_gives_a_worker_that_never_was_ready_as_many_starts_again(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 1, "parallel": 1})
    h.worker_dies()
    for _ in range(WORKER_DEATHS_LIMIT):
        h.after(LONG_S)
        h.worker_dies()
    h.resume()

    for _ in range(WORKER_DEATHS_LIMIT - 1):
        h.worker_dies()
        assert h.experiment.status is ExperimentStatus.RUNNING
        h.after(LONG_S)
    assert [order.item for order in h.orders(e.Deliver)] == h.pending(Queue.TUNER)
    h.ready()
    h.worker_dies()
    assert h.experiment.status is ExperimentStatus.RUNNING


# ── faults ──────────────────────────────────────────────────────────────────────────────────────
def test_a_tuner_that_raises_pauses_with_its_traceback_and_the_line_while_trials_go_on(h: Harness) -> None:
    h.run(trials=1)
    line = h.pending(Queue.TUNER)[0].line
    h.fault(AlgorithmFault.RAISED)

    experiment = h.experiment
    assert (experiment.status, experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.ALGORITHM_FAILED)
    assert experiment.message == f"tuner, journal line {line}: division by zero"
    assert experiment.detail == "Traceback …"
    assert h.statuses() == {1: "running"}
    h.report(1, an_intermediate(0, 0.5), a_final(0.5))
    h.exit(1)
    assert h.statuses() == {1: "succeeded"}
    assert h.orders(e.Deliver) == []


def test_a_fault_while_the_algorithm_is_built_names_no_line(h: Harness) -> None:
    h.create(assessor=ASSESSED)
    h.fault(AlgorithmFault.RAISED, queue=Queue.ASSESSOR, line=0)

    assert h.experiment.message == "assessor: division by zero"


def test_after_the_fix_resume_starts_a_new_worker_with_the_same_lines(h: Harness) -> None:
    h.begin()
    waiting = h.pending(Queue.TUNER)
    h.fault(AlgorithmFault.RAISED)
    h.resume()

    assert len(generations(h)) == 1
    assert [order.item for order in h.orders(e.Deliver)] == waiting


def test_a_space_that_the_tuner_cannot_search_fails_the_experiment(h: Harness) -> None:
    h.begin()
    h.fault(AlgorithmFault.NOT_SUPPORTED)

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.FAILED, ExperimentReason.NOT_SUPPORTED)
    assert len(h.orders(e.StopWorker)) == 1


def test_a_temporary_fault_is_tried_again_with_a_new_worker_a_bounded_number_of_times(h: Harness) -> None:
    h.begin()
    for _ in range(ALGORITHM_RETRIES):
        h.fault(AlgorithmFault.TEMPORARY)
        assert h.experiment.status is ExperimentStatus.RUNNING
        h.after(LONG_S)
        assert len(generations(h)) == 1
        h.ready()
    h.fault(AlgorithmFault.TEMPORARY)

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.ALGORITHM_FAILED)
    assert "(tried 4 times)" in h.experiment.message


def test_an_answer_gives_the_next_line_its_own_retries(h: Harness) -> None:
    h.begin(budget={"trials": 99, "parallel": 99})
    for _ in range(2 * ALGORITHM_RETRIES):
        h.fault(AlgorithmFault.TEMPORARY)
        h.after(LONG_S)
        h.ready()
        h.suggest()

    assert h.experiment.status is ExperimentStatus.RUNNING


def test_a_tuner_that_raises_while_the_experiment_is_paused_waits_for_the_resume(h: Harness) -> None:
    h.begin()
    h.pause()
    h.fault(AlgorithmFault.RAISED)
    assert h.experiment.reason is ExperimentReason.REQUESTED
    h.after(LONG_S)
    assert generations(h) == []

    h.resume()
    assert len(generations(h)) == 1


@pytest.mark.parametrize("trouble", ["dies", "hangs"])
def test_a_worker_that_is_given_up_while_the_experiment_stops_does_not_hold_up_the_stop(
    h: Harness, trouble: str
) -> None:
    h.run(assessor=ASSESSED, deterministic=True, budget={"trials": 1, "parallel": 1})
    h.report(1, an_intermediate(0, 0.5), a_final(0.5))
    h.exit(1)
    h.stop()
    assert h.experiment.status is ExperimentStatus.STOPPING  # the last report is not assessed yet
    for _ in range(WORKER_DEATHS_LIMIT):
        if trouble == "dies":
            h.worker_dies()
        else:
            h.fault(AlgorithmFault.TEMPORARY, queue=Queue.ASSESSOR)
        h.after(LONG_S)
        if not h.experiment.status.has_ended:
            h.ready()

    assert h.experiment.status is ExperimentStatus.STOPPED
    h.resume()
    h.ready()
    h.take(Queue.ASSESSOR)
    assert h.statuses() == {1: "succeeded"}


def test_an_algorithm_that_raises_while_the_experiment_stops_does_not_hold_up_the_stop(h: Harness) -> None:
    h.run(assessor=ASSESSED, deterministic=True)
    h.report(1, an_intermediate(0, 0.5), a_final(0.5))
    h.exit(1)
    h.stop()
    h.fault(AlgorithmFault.RAISED, queue=Queue.ASSESSOR)

    assert h.experiment.status is ExperimentStatus.STOPPED


def test_while_it_stops_the_worker_that_died_is_replaced_to_assess_what_is_left(h: Harness) -> None:
    h.run(assessor=ASSESSED, deterministic=True)
    h.report(1, an_intermediate(0, 0.5), a_final(0.5))
    h.exit(1)
    h.stop()
    h.worker_dies()
    assert h.experiment.status is ExperimentStatus.STOPPING
    h.after(LONG_S)
    h.ready()
    h.take(Queue.ASSESSOR)

    assert h.statuses() == {1: "succeeded"}
    assert h.experiment.status is ExperimentStatus.STOPPED


# ── hangs ───────────────────────────────────────────────────────────────────────────────────────
def test_an_algorithm_that_does_not_answer_in_time_is_replaced_and_asked_again(h: Harness) -> None:
    h.begin(algorithm_timeout_s=30.0)
    h.after(30)
    assert h.orders(e.StopWorker) == []
    h.after(1)
    assert len(h.orders(e.StopWorker)) == 1
    h.after(1)

    assert [order.item for order in h.orders(e.Deliver)] == h.pending(Queue.TUNER)
    (replaced,) = h.journal("worker_replaced")
    assert replaced["why"] == "the tuner did not answer journal line 2 within 30 s"


def test_an_algorithm_that_hangs_again_and_again_pauses_the_experiment(h: Harness) -> None:
    h.begin(algorithm_timeout_s=30.0)
    for _ in range(ALGORITHM_RETRIES + 1):
        h.after(31)
        h.after(LONG_S)
        h.ready()

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.ALGORITHM_HANGS)


def test_the_time_to_answer_begins_when_the_worker_is_ready(h: Harness) -> None:
    h.create(algorithm_timeout_s=30.0)
    h.after(100)
    assert h.orders(e.StopWorker) == []
    h.ready()
    h.after(29)
    assert h.orders(e.StopWorker) == []


def test_every_answer_gives_the_next_line_its_own_time(h: Harness) -> None:
    h.begin(algorithm_timeout_s=9.0, budget={"trials": 9, "parallel": 9})
    for _ in range(5):
        h.after(8)
        h.suggest()

    assert h.journal("worker_replaced") == []


def test_ready_twice_is_ready_once(h: Harness) -> None:
    h.begin()
    since = h.xs.worker.ready_at
    h.at += 5
    h.ready()

    assert h.xs.worker.ready_at == since


# ── pings ───────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def silent(h: Harness) -> Harness:
    """A worker that has nothing to answer and was not heard for a while."""
    h.run(trials=1, budget={"trials": 1, "parallel": 1})
    h.after(PING_EVERY_S)
    assert h.orders(e.PingWorker) == []
    h.after(1)
    return h


def test_a_silent_worker_is_asked_once_whether_it_lives(silent: Harness) -> None:
    assert silent.orders(e.PingWorker) == [
        e.PingWorker(experiment_id=EXPERIMENT_ID, generation=silent.xs.worker.generation)
    ]
    silent.after(1)
    assert silent.orders(e.PingWorker) == []


def test_a_worker_that_answers_the_ping_lives(silent: Harness) -> None:
    generation = silent.xs.worker.generation
    silent.handle(c.WorkerPonged(at=silent.at, experiment_id=EXPERIMENT_ID, generation=generation))
    silent.after(PING_TIMEOUT_S)

    assert silent.xs.worker.phase is WorkerPhase.READY
    assert silent.journal("worker_replaced") == []


def test_a_worker_that_does_not_is_replaced(silent: Harness) -> None:
    silent.after(PING_TIMEOUT_S)
    assert silent.orders(e.StopWorker) == []
    silent.after(1)
    assert len(silent.orders(e.StopWorker)) == 1

    silent.after(1)
    assert len(generations(silent)) == 1


def test_a_worker_that_answers_neither_its_line_nor_pings_pauses_the_experiment_in_the_end(h: Harness) -> None:
    h.begin(algorithm_timeout_s=600.0)
    for _ in range(ALGORITHM_RETRIES + 1):
        h.ready()
        h.after(PING_EVERY_S + 1)
        h.after(PING_TIMEOUT_S + 1)
        h.after(LONG_S)

    assert (h.experiment.status, h.experiment.reason) == (ExperimentStatus.PAUSED, ExperimentReason.ALGORITHM_HANGS)
    assert "did not answer within" in h.experiment.message


def test_an_ended_experiment_has_no_worker(h: Harness) -> None:
    h.begin()
    h.stop()
    assert h.orders(e.StopWorker) == [e.StopWorker(experiment_id=EXPERIMENT_ID)]
    assert h.experiment.status is ExperimentStatus.STOPPED
    h.after(LONG_S)
    assert h.effects == []


def test_a_worker_due_after_the_experiment_has_ended_is_not_started(h: Harness) -> None:
    h.run()
    h.worker_dies()
    h.stop()
    h.exit(1, STOPPED)
    assert len(h.orders(e.StopWorker)) == 1
    h.after(LONG_S)

    assert generations(h) == []


# ── paused experiments ──────────────────────────────────────────────────────────────────────────
@pytest.fixture
def resting(h: Harness) -> Harness:
    """Paused, nothing runs, and its worker was let go."""
    h.run(trials=1, budget={"trials": 9, "parallel": 1})
    h.pause()
    h.succeed(1)
    h.take(Queue.TUNER)
    h.after(1)
    h.after(PAUSED_WORKER_S - 0.5)
    assert h.orders(e.StopWorker) == []
    h.after(1)
    assert len(h.orders(e.StopWorker)) == 1
    return h


def test_a_paused_experiment_keeps_its_worker_while_trials_run(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 1})
    h.pause()
    for _ in range(4):
        h.after(PAUSED_WORKER_S)
        h.handle(c.WorkerPonged(at=h.at, experiment_id=EXPERIMENT_ID, generation=h.xs.worker.generation))

    assert h.xs.worker.phase is WorkerPhase.READY


def test_a_paused_experiment_with_nothing_to_do_lets_its_worker_go_and_resumes_with_another(resting: Harness) -> None:
    resting.after(LONG_S)
    assert generations(resting) == []
    resting.resume()
    assert len(generations(resting)) == 1
    resting.ready()
    resting.suggest()
    assert resting.experiment.status is ExperimentStatus.RUNNING


def test_what_is_told_to_a_paused_experiment_wakes_a_worker_that_rests_again_afterwards(resting: Harness) -> None:
    resting.add_trial()
    assert len(generations(resting)) == 1
    assert [order.item for order in resting.orders(e.Deliver)] == resting.pending(Queue.TUNER)
    resting.ready()
    resting.take(Queue.TUNER)
    resting.after(1)
    resting.after(PAUSED_WORKER_S)
    assert len(resting.orders(e.StopWorker)) == 1


def test_a_service_that_starts_gives_no_worker_to_a_paused_experiment_with_nothing_to_do(resting: Harness) -> None:
    resting.restart()
    assert generations(resting) == []


def test_a_tuner_that_was_given_up_while_paused_is_not_woken_before_a_person_resumes(resting: Harness) -> None:
    resting.add_trial()
    resting.ready()
    resting.fault(AlgorithmFault.RAISED)
    resting.after(1)
    resting.after(PAUSED_WORKER_S)
    assert len(resting.orders(e.StopWorker)) == 1
    resting.add_trial(0.03)
    resting.after(LONG_S)
    assert generations(resting) == []
    resting.resume()
    assert len(generations(resting)) == 1


def test_a_worker_that_dies_while_nothing_is_to_be_done_is_not_replaced_until_there_is(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 1})
    h.pause()
    h.succeed(1)
    h.take(Queue.TUNER)
    h.worker_dies()
    h.after(LONG_S)
    assert generations(h) == []
    h.add_trial()
    assert len(generations(h)) == 1
