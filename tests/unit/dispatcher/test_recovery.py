"""A dispatcher built anew from the rows goes on where the last one was."""

from __future__ import annotations

from tests.unit.dispatcher.harness import CRASHED, KILLED, Harness, an_intermediate
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.items import AlgorithmFault, Queue
from tuner_service.domain.experiment import AlgorithmSpec


def test_a_running_experiment_is_continued_by_itself(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 2}, assessor=AlgorithmSpec(name="median_stop"))
    h.report(1, an_intermediate(0, 0.5))
    waiting = [*h.pending(Queue.TUNER), *h.pending(Queue.ASSESSOR)]
    h.restart()

    (start,) = h.orders(e.StartWorker)
    assert (start.tuner_cursor, start.assessor_cursor) == (2, 0)
    assert [order.item for order in h.orders(e.Deliver)] == waiting


def test_generations_and_nonces_of_another_life_are_new(h: Harness) -> None:
    h.run()
    generation, nonce = h.xs.worker.generation, h.attempt(1).nonce
    h.restart()
    h.exit(1, KILLED)
    h.connect()

    assert h.xs.worker.generation > generation
    assert h.attempt(1).nonce != nonce


def test_a_request_that_was_answered_is_not_asked_again(h: Harness) -> None:
    h.run(trials=2)
    h.restart()
    h.ready()

    assert h.asked_for() == []
    h.connect(h.observed(1), h.observed(2))
    h.succeed(1)
    assert h.asked_for() == [3]


def test_a_tuner_that_waited_waits_after_a_restart_too(h: Harness) -> None:
    h.run(trials=1)
    h.suggest_nothing_yet()
    h.restart()
    assert h.asked_for() == []

    h.connect(h.observed(1))
    h.succeed(1)
    assert h.asked_for() == [2]


def test_an_experiment_paused_for_its_algorithm_gets_no_worker_before_the_resume(h: Harness) -> None:
    h.begin()
    h.fault(AlgorithmFault.RAISED)
    h.restart()
    assert h.effects == []
    h.resume()
    assert len(h.orders(e.StartWorker)) == 1


def test_an_experiment_whose_first_trials_failed_alike_keeps_its_worker(h: Harness) -> None:
    h.run(trials=2)
    h.exit(1, CRASHED)
    h.exit(2, CRASHED)
    assert h.experiment.reason.value == "identical_failures"
    h.worker_dies()
    h.after(10)
    assert len(h.orders(e.StartWorker)) == 1
    h.restart()
    assert len(h.orders(e.StartWorker)) == 1


def test_recovering_twice_owes_the_same_and_changes_no_row_but_the_clock(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 9, "parallel": 2})
    first = [type(effect) for effect in h.restart()]
    rows = h.store.load()
    second = [type(effect) for effect in h.restart()]

    assert first == second
    assert h.store.load() == rows


def test_the_dispatcher_is_busy_until_every_experiment_has_ended(h: Harness) -> None:
    assert not h.dispatcher.is_busy
    h.begin()
    assert h.dispatcher.is_busy
    h.stop()
    assert not h.dispatcher.is_busy


def test_counts_and_seen_steps_are_those_of_the_rows(h: Harness) -> None:
    h.run(trials=2)
    h.succeed(1)
    h.report(2, an_intermediate(0, 0.5), an_intermediate(5, 0.5))
    h.restart()

    assert h.experiment.counts == {"succeeded": 1, "running": 1}
    assert h.xs.seen_steps == {2: {0, 5}}
