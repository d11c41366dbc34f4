"""A worker that never gets ready, and one whose code is no longer the experiment's."""

from __future__ import annotations

from tests.builders import EXPERIMENT_ID
from tests.unit.dispatcher.harness import Harness
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.limits import ALGORITHM_RETRIES, WORKER_START_LIMIT_S
from tuner_service.dispatcher.state import WorkerPhase
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus

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
