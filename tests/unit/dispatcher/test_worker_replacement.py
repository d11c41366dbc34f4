"""A worker that never gets ready, and one whose code is no longer the experiment's."""

from __future__ import annotations

import pytest

from tests.builders import EXPERIMENT_ID
from tests.unit.dispatcher.harness import Harness, an_intermediate
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.items import Queue
from tuner_service.dispatcher.limits import ALGORITHM_RETRIES, WORKER_BACKOFF_LIMIT_S, WORKER_START_LIMIT_S
from tuner_service.dispatcher.state import WorkerPhase
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus

CODE = "c" * 64


def resume_with_code(h: Harness) -> list[e.Effect]:
    return h.handle(c.ExperimentResumed(at=h.at, experiment_id=EXPERIMENT_ID, code=b"new", code_digest=CODE))


def test_a_worker_that_is_never_ready_is_replaced_and_then_the_experiment_is_paused(h: Harness) -> None:
    h.create()
    for _ in range(ALGORITHM_RETRIES):
        h.after(WORKER_START_LIMIT_S + 1)
        h.after(10)  # the pause before the next one
        assert h.xs.worker.phase is WorkerPhase.STARTING
    h.after(WORKER_START_LIMIT_S + 1)

    assert h.experiment.status is ExperimentStatus.PAUSED
    assert h.experiment.reason is ExperimentReason.ALGORITHM_HANGS
    assert "history" in h.experiment.message


def progress(h: Harness, queue: Queue = Queue.TUNER) -> list[e.Effect]:
    generation = h.xs.worker.generation
    return h.handle(c.WorkerProgressed(at=h.at, experiment_id=EXPERIMENT_ID, generation=generation, queue=queue))


def test_a_worker_that_comes_on_in_its_history_is_given_the_time_for_all_of_it(h: Harness) -> None:
    h.create()
    for _ in range(5):
        h.after(WORKER_START_LIMIT_S - 1)
        assert progress(h) == []
        assert not h.changes
    assert not h.journal("worker_replaced")
    h.after(WORKER_START_LIMIT_S + 1)
    assert h.journal("worker_replaced")


def test_a_line_of_history_may_take_as_long_as_the_algorithm_may(h: Harness) -> None:
    h.create(algorithm_timeout_s=2 * WORKER_START_LIMIT_S)
    h.after(2 * WORKER_START_LIMIT_S)
    assert not h.journal("worker_replaced")


def test_each_report_of_a_line_has_its_own_time(h: Harness) -> None:
    """What trials reported while their agent was cut off comes at once, and is judged one by one."""
    h.run(assessor=AlgorithmSpec(name="median_stop"), algorithm_timeout_s=30.0, budget={"trials": 1, "parallel": 1})
    h.report(1, *(an_intermediate(step, 0.5) for step in range(100)))
    for _ in range(5):
        h.after(29)
        progress(h, Queue.ASSESSOR)
    assert not h.journal("worker_replaced")
    h.after(31)
    (replaced,) = h.journal("worker_replaced")
    assert replaced["why"].startswith("the assessor did not answer")


def test_new_code_starts_a_new_worker_for_a_running_experiment(h: Harness) -> None:
    h.begin()
    before = h.xs.worker.generation

    effects = resume_with_code(h)

    started = [effect for effect in effects if isinstance(effect, e.StartWorker)]
    assert [order.generation for order in started] == [before + 1]
    assert started[0].spec.trial.code_digest == CODE


def test_new_code_starts_a_new_worker_for_a_paused_experiment_whose_worker_lives(h: Harness) -> None:
    h.begin()
    h.pause()
    before = h.xs.worker.generation

    resume_with_code(h)

    assert h.xs.worker.generation == before + 1
    assert h.experiment.status is ExperimentStatus.RUNNING


# ── another time for an answer ──────────────────────────────────────────────────────────────────
def test_a_search_whose_tuner_took_too_long_goes_on_with_more_time(h: Harness) -> None:
    h.begin(algorithm_timeout_s=30.0)
    for _ in range(ALGORITHM_RETRIES + 1):
        h.ready()
        h.after(31)
        h.after(31)
    assert h.experiment.reason is ExperimentReason.ALGORITHM_HANGS

    h.handle(c.ExperimentResumed(at=h.at, experiment_id=EXPERIMENT_ID, algorithm_timeout_s=300.0))
    assert h.journal("experiment_changed")[-1] == {"algorithm_timeout": 300.0}
    h.ready()
    for _ in range(9):
        h.after(31)
        h.handle(c.WorkerPonged(at=h.at, experiment_id=EXPERIMENT_ID, generation=h.xs.worker.generation))
    h.suggest()
    assert h.experiment.status is ExperimentStatus.RUNNING
    assert len(h.journal("worker_replaced")) == ALGORITHM_RETRIES


@pytest.mark.parametrize(("timeout_s", "anew"), [(30.0, False), (60.0, False), (20.0, True)])
def test_a_running_search_takes_it_and_its_worker_is_started_anew_where_it_is_to_speak_more_often(
    h: Harness, timeout_s: float, anew: bool
) -> None:
    h.begin(algorithm_timeout_s=30.0)
    h.ready()
    before = h.xs.worker.generation
    h.handle(c.ExperimentResumed(at=h.at, experiment_id=EXPERIMENT_ID, algorithm_timeout_s=timeout_s))

    assert h.experiment.spec.algorithm_timeout_s == timeout_s
    assert (h.xs.worker.generation > before) is anew
    assert bool(h.changes) is (timeout_s != 30.0)


def test_a_worker_that_has_died_a_thousand_times_after_an_answer_each_is_replaced_all_the_same(h: Harness) -> None:
    h.begin()
    h.xs.worker.deaths = 1_100  # what it waits for is doubled by each, which no float holds
    h.worker_dies()
    h.after(WORKER_BACKOFF_LIMIT_S + 1)

    assert h.orders(e.StartWorker)
