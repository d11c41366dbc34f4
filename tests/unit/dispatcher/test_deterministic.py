"""The line of decisions of a deterministic experiment: request n knows the outcomes up to n - parallel."""

from __future__ import annotations

import itertools

import pytest

from tests.unit.dispatcher.harness import STOPPED, Harness, a_final, an_intermediate
from tuner_service.dispatcher.items import MetricsReported, Queue, SuggestionRequested
from tuner_service.dispatcher.limits import METRICS_A_REPORT
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentStatus
from tuner_service.domain.trial import TrialStatus


def decisions(h: Harness) -> list[str]:
    """The tuner's line: r1 for the request of trial 1, t1 for its outcome."""
    names = []
    for line in h.store.queries.journal(h.experiment.id):
        if line.kind == "suggestion_requested":
            names.append(f"r{line.payload['number']}")
        elif line.kind == "trial_ended":
            names.append(f"t{line.payload['outcome']['number']}")
    return names


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_the_line_is_the_same_whatever_ends_first(h: Harness, order: tuple[int, ...]) -> None:
    h.run(trials=3, budget={"trials": 5, "parallel": 3}, deterministic=True)
    for number in order:
        h.succeed(number)
        if h.asked_for():
            h.start_next()
    while h.asked_for():
        h.start_next()
    for number in (5, 4):
        h.succeed(number)

    assert decisions(h) == ["r1", "r2", "r3", "t1", "r4", "t2", "r5", "t3", "t4", "t5"]
    assert h.experiment.status is ExperimentStatus.COMPLETED


def test_an_outcome_is_not_told_while_a_suggestion_is_outstanding(h: Harness) -> None:
    h.run(trials=2, deterministic=True)
    h.succeed(1)
    h.succeed(2)
    assert h.asked_for() == [3]
    assert h.told() == [1]

    h.suggest()
    assert h.told() == [1, 2]
    assert h.asked_for() == [4]


def test_an_outcome_waits_for_those_with_lower_numbers(h: Harness) -> None:
    h.run(trials=2, deterministic=True)
    h.succeed(2)
    assert h.told() == []
    assert h.trial(2).status is TrialStatus.SUCCEEDED
    h.succeed(1)
    assert h.told() == [1]


def test_outcomes_not_told_yet_survive_a_restart(h: Harness) -> None:
    h.run(trials=2, deterministic=True)
    h.succeed(2)
    h.restart()
    h.ready()
    h.connect(h.observed(1))
    h.succeed(1)
    h.suggest()

    assert h.told() == [1, 2]


def test_while_it_is_paused_the_line_waits_at_the_next_request(h: Harness) -> None:
    h.run(trials=2, deterministic=True)
    h.pause()
    h.succeed(2)
    h.succeed(1)
    assert h.told() == [1]
    assert h.asked_for() == []

    h.resume()
    assert h.asked_for() == [3]
    assert decisions(h) == ["r1", "r2", "t1", "r3"]


def test_a_stop_and_a_resume_leave_the_line_as_it_would_have_been(h: Harness) -> None:
    h.run(trials=2, budget={"trials": 3, "parallel": 2}, deterministic=True)
    h.succeed(2)
    h.stop()
    h.exit(1, STOPPED)
    assert h.statuses() == {1: "paused", 2: "succeeded"}
    h.resume()
    h.succeed(1)
    h.start_next()
    h.succeed(3)

    assert decisions(h) == ["r1", "r2", "t1", "r3", "t2", "t3"]
    assert h.experiment.status is ExperimentStatus.COMPLETED


def test_a_tuner_that_has_nothing_to_propose_yet_is_asked_again_after_the_next_outcome(h: Harness) -> None:
    h.run(trials=1, deterministic=True)
    h.suggest_nothing_yet()
    assert h.asked_for() == []
    h.succeed(1)

    assert decisions(h) == ["r1", "r2", "t1", "r2"]


def test_the_assessor_is_told_where_a_trial_is_decided(h: Harness) -> None:
    h.begin(deterministic=True, assessor=AlgorithmSpec(name="median_stop"))

    assert h.pending(Queue.ASSESSOR) == [SuggestionRequested(line=2, number=1)]


def test_parallelism_and_duration_are_part_of_the_result_and_cannot_change(h: Harness) -> None:
    h.begin(deterministic=True)

    for budget in ({"parallel": 5}, {"duration_s": 5.0}):
        with pytest.raises(ConflictError, match="is deterministic"):
            h.resume(**budget)
    h.resume(trials=50)
    assert h.experiment.spec.budget.trials == 50


def test_a_report_after_the_stop_is_acknowledged_and_not_kept(h: Harness) -> None:
    h.run(deterministic=True, assessor=AlgorithmSpec(name="median_stop"))
    h.report(1, an_intermediate(0, 0.5))
    h.advise_stop(1)
    h.report(1, an_intermediate(1, 0.1), a_final(0.1))

    assert h.attempt(1).acknowledged == 3
    assert h.changes.metrics == []
    assert h.trial(1).final == {}


def test_the_best_does_not_depend_on_which_of_equals_ended_first(h: Harness) -> None:
    h.run(trials=2, deterministic=True)
    h.succeed(2, 0.5)
    h.succeed(1, 0.5)

    assert h.experiment.best_number == 1


# ── what waits ──────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("deterministic", [False, True])
def test_metrics_beside_the_objective_wait_only_where_a_trial_may_be_cut_off(h: Harness, deterministic: bool) -> None:
    h.run(deterministic=deterministic, assessor=AlgorithmSpec(name="median_stop"))
    h.report(1, an_intermediate(0, 0.5, accuracy=0.1), an_intermediate(1, 0.5, accuracy=0.2))
    for _ in range(2):
        (item,) = [item for item in h.pending(Queue.ASSESSOR) if isinstance(item, MetricsReported)]
        whole = ({"loss": 0.5, "accuracy": 0.1}, {"loss": 0.5, "accuracy": 0.2})
        assert item.values == (whole if deterministic else ())
        h.restart()


def test_reports_of_many_metrics_count_as_several_where_they_wait_whole(h: Harness) -> None:
    h.run(deterministic=True, assessor=AlgorithmSpec(name="median_stop"))
    many = {f"m{n}": 0.5 for n in range(10 * METRICS_A_REPORT - 1)}
    h.report(1, an_intermediate(0, 0.5, **many), an_intermediate(1, 0.5, **many))
    assert h.xs.queues[Queue.ASSESSOR].reports == 2 + 20
    h.restart()
    assert h.xs.queues[Queue.ASSESSOR].reports == 2 + 20
    h.ready()
    h.take(Queue.ASSESSOR)
    assert h.xs.queues[Queue.ASSESSOR].reports == 0
