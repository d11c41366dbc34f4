"""A worker that falls silent before it is ready is noticed, too."""

from __future__ import annotations

from tests.unit.dispatcher.harness import Harness
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.limits import PING_EVERY_S, PING_TIMEOUT_S


def test_a_worker_that_answers_nothing_while_it_starts_is_replaced(h: Harness) -> None:
    h.create()
    h.after(PING_EVERY_S + 1)
    assert len(h.orders(e.PingWorker)) == 1
    h.after(PING_TIMEOUT_S + 1)
    assert len(h.orders(e.StopWorker)) == 1


def test_a_worker_that_folds_for_long_and_answers_pings_is_left_to_it(h: Harness) -> None:
    h.create()
    for _ in range(10):
        h.after(PING_EVERY_S + 1)
        (ping,) = h.orders(e.PingWorker)
        h.handle(c.WorkerPonged(at=h.at, experiment_id=ping.experiment_id, generation=ping.generation))

    assert h.journal("worker_replaced") == []
