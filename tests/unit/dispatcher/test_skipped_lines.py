"""The way on from a line at which an algorithm raises: it is left out, once, and the journal says so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID
from tests.unit.dispatcher.harness import Harness, a_final, an_intermediate
from trials.wire.records import ParametersMissingRecord
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.items import AlgorithmFault, CustomTrialAdded, Queue, QueueItem, SearchSpaceUpdated
from tuner_service.dispatcher.limits import WORKER_DEATHS_LIMIT
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus

ASSESSED = AlgorithmSpec(name="median_stop")
LONG_S = 60.0


def history(h: Harness, queue: Queue = Queue.TUNER) -> list[QueueItem]:
    """What a rebuilt worker is told."""
    return list(h.store.history(EXPERIMENT_ID, queue, after=0, upto=h.experiment.next_line))


def a_poisoned_line(h: Harness) -> int:
    """Trial 1 runs; a person's trial 2 is in the queue, and the tuner raises when it is told."""
    h.run(trials=1, budget={"trials": 5, "parallel": 1})
    h.add_trial(0.5)
    line = next(item.line for item in h.pending(Queue.TUNER) if isinstance(item, CustomTrialAdded))
    while h.pending(Queue.TUNER)[0].line != line:
        h.suggest()
    h.fault(AlgorithmFault.RAISED)
    return line


def test_the_line_is_left_out_and_everything_else_goes_on(h: Harness) -> None:
    line = a_poisoned_line(h)
    h.skip(Queue.TUNER, line)

    assert h.experiment.status is ExperimentStatus.RUNNING
    assert h.journal("line_skipped") == [{"queue": "tuner", "line": line}]
    assert line not in [item.line for item in h.pending(Queue.TUNER)]
    assert line not in [order.item.line for order in h.orders(e.Deliver)]
    assert line not in [item.line for item in history(h)]
    h.ready()
    h.report(1, a_final(0.5))
    h.exit(1)
    h.take(Queue.TUNER, upto=h.pending(Queue.TUNER)[0].line)
    assert h.statuses()[2] == "running"  # the trial itself is none the worse


def test_a_skipped_line_stays_skipped_when_the_service_is_killed(h: Harness) -> None:
    line = a_poisoned_line(h)
    h.skip(Queue.TUNER, line)
    told = [item.line for item in h.pending(Queue.TUNER)]
    h.restart()

    assert [item.line for item in h.pending(Queue.TUNER)] == told
    assert line not in [item.line for item in history(h)]
    assert len(h.journal("line_skipped")) == 1


def test_a_line_can_be_skipped_once_and_after_a_restart(h: Harness) -> None:
    line = a_poisoned_line(h)
    h.restart()
    h.skip(Queue.TUNER, line)
    with pytest.raises(ConflictError, match=f"line {line} .* is not the one"):
        h.skip(Queue.TUNER, line)


def test_no_other_line_can_be_skipped(h: Harness) -> None:
    line = a_poisoned_line(h)
    for queue, other in ((Queue.TUNER, line + 1), (Queue.TUNER, line - 1), (Queue.TUNER, 1), (Queue.ASSESSOR, line)):
        with pytest.raises(ConflictError):
            h.skip(queue, other)
    assert h.experiment.status is ExperimentStatus.PAUSED
    assert h.journal("line_skipped") == []


def test_nothing_is_skipped_while_the_algorithm_works(h: Harness) -> None:
    h.run(trials=1)
    with pytest.raises(ConflictError):
        h.skip(Queue.TUNER, h.pending(Queue.TUNER)[0].line)


def test_a_request_that_is_skipped_is_asked_again_once_the_tuner_knows_more(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 5, "parallel": 2})
    request = h.pending(Queue.TUNER)[0]
    h.fault(AlgorithmFault.RAISED)
    h.change_space(lr={"type": "float", "low": 0.1, "high": 0.2})
    h.skip(Queue.TUNER, request.line)
    h.ready()

    first, *others = h.pending(Queue.TUNER)
    assert isinstance(first, SearchSpaceUpdated)
    assert h.asked_for()[-1] == 2
    assert [item.line > first.line for item in others] == [True]
    assert request.line not in [item.line for item in history(h)]


@pytest.mark.parametrize("deterministic", [False, True])
def test_reports_at_which_the_assessor_raises_are_left_out(h: Harness, deterministic: bool) -> None:
    h.run(assessor=ASSESSED, deterministic=deterministic, budget={"trials": 1, "parallel": 1})
    h.take(Queue.ASSESSOR)
    h.report(1, an_intermediate(0, 0.5))
    line = h.pending(Queue.ASSESSOR)[0].line
    h.fault(AlgorithmFault.RAISED, queue=Queue.ASSESSOR)
    h.report(1, an_intermediate(1, 0.4), a_final(0.4))
    h.exit(1)
    h.skip(Queue.ASSESSOR, line)
    h.ready()
    h.take(Queue.ASSESSOR)

    assert h.statuses() == {1: "succeeded"}
    assert line not in [item.line for item in history(h, Queue.ASSESSOR)]


def test_a_space_that_the_tuner_does_not_support_is_left_out_of_a_failed_experiment(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 5, "parallel": 1})
    h.change_space(lr={"type": "float", "low": 0.1, "high": 0.2})
    line = h.pending(Queue.TUNER)[0].line
    h.fault(AlgorithmFault.NOT_SUPPORTED)
    h.report(1, a_final(0.5))
    h.exit(1)
    assert h.experiment.status is ExperimentStatus.FAILED
    h.skip(Queue.TUNER, line)

    assert h.experiment.status is ExperimentStatus.RUNNING
    assert line not in [item.line for item in h.pending(Queue.TUNER)]


SMALLER = {"lr": {"type": "float", "low": 0.1, "high": 0.2}}
GROWS = {"budget": {"trials": 1, "parallel": 1}, "trial": {"define_by_run": True}, "search_space": SMALLER}


def a_refused_space(h: Harness) -> int:
    """The tuner raises when it is told the space that waits for it."""
    item = h.pending(Queue.TUNER)[0]
    while not isinstance(item, SearchSpaceUpdated):
        h.suggest()
        item = h.pending(Queue.TUNER)[0]
    h.fault(AlgorithmFault.RAISED)
    return item.line


def spaces(h: Harness) -> list[dict[str, Any]]:
    return [item.search_space for item in h.pending(Queue.TUNER) if isinstance(item, SearchSpaceUpdated)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_space_that_was_left_out_is_the_newest_no_more_and_can_be_sent_again(h: Harness, restarted: bool) -> None:
    h.run(trials=1, budget={"trials": 5, "parallel": 1})
    before = h.store.queries.search_space(EXPERIMENT_ID)
    h.change_space(**SMALLER)
    line = a_refused_space(h)
    if restarted:
        h.restart()
    h.skip(Queue.TUNER, line)
    assert h.store.queries.search_space(EXPERIMENT_ID) == before

    h.change_space(**SMALLER)
    assert spaces(h) == [SMALLER]
    assert h.store.queries.search_space(EXPERIMENT_ID) == SMALLER


@pytest.mark.parametrize("restarted", [False, True])
def test_a_space_grows_again_by_what_was_left_out(h: Harness, restarted: bool) -> None:
    """Else its script would ask for ever for what nobody gives it."""
    missing = ParametersMissingRecord(parameters={"size": {"type": "bool"}}, beside={}, at=0.0)
    h.run(trials=1, **GROWS)
    h.report(1, missing)
    line = a_refused_space(h)
    if restarted:
        h.restart()
        h.connect(h.observed(1))
    h.skip(Queue.TUNER, line)
    h.report(1, missing)

    assert spaces(h) == [SMALLER | {"size": {"type": "bool"}}]


def test_a_later_space_stays_the_newest_when_one_before_it_is_left_out(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 5, "parallel": 1})
    h.change_space(**SMALLER)
    h.change_space(lr={"type": "bool"})
    h.skip(Queue.TUNER, a_refused_space(h))
    h.change_space(lr={"type": "bool"})

    assert spaces(h) == [{"lr": {"type": "bool"}}]


def test_a_space_that_the_tuner_took_is_not_told_again_after_another_was_left_out(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 5, "parallel": 1})
    h.change_space(**SMALLER)
    h.take(Queue.TUNER)
    h.change_space(lr={"type": "bool"})
    h.skip(Queue.TUNER, a_refused_space(h))
    h.change_space(**SMALLER)

    assert spaces(h) == []


def test_the_line_at_which_the_worker_dies_is_named_and_can_be_skipped(h: Harness) -> None:
    h.run(trials=1)
    line = h.pending(Queue.TUNER)[0].line
    for _ in range(WORKER_DEATHS_LIMIT):
        h.worker_dies()
        h.after(LONG_S)
        if h.experiment.status is ExperimentStatus.RUNNING:
            h.ready()

    assert h.experiment.reason is ExperimentReason.WORKER_DIES
    assert h.journal("algorithm_faulted")[-1]["line"] == line
    h.skip(Queue.TUNER, line)
    assert h.experiment.status is ExperimentStatus.RUNNING
