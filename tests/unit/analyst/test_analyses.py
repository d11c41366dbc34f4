"""What is told of a search: the best, the front, slices, curves, and whether going on is worth it."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, START, a_spec, a_trial, an_experiment
from tests.memory_store import MemoryStore
from tuner_service.analyst.analyses import POINTS_LIMIT, Analyses, outlook
from tuner_service.analyst.importance import TRIALS_LIMIT
from tuner_service.analyst.kept_curves import KeptCurves
from tuner_service.analyst.kept_trials import KeptTrials
from tuner_service.dispatcher.changes import Changes, MetricRow
from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.trial import TrialStatus

TWO = Objective(metric="loss", further=(Objective(metric="speed", goal=Goal.MAXIMIZE),))


def analyses(trials: list[Any], **spec: Any) -> Analyses:
    store, experiment = MemoryStore(), an_experiment(spec=a_spec(**spec))
    changes = Changes()
    changes.experiments[EXPERIMENT_ID] = experiment
    changes.trials.update({(EXPERIMENT_ID, trial.number): trial for trial in trials})
    store.commit(changes)
    kept = KeptTrials(store.queries, EXPERIMENT_ID)
    kept.refresh(lambda: None)
    return Analyses(experiment=experiment, trials=kept, search_space=experiment.spec.search_space)


def curves_of(found: Analyses, metrics: list[MetricRow], *, limit: int, points: int) -> Any:
    store = MemoryStore()
    changes = Changes(experiments={EXPERIMENT_ID: found.experiment}, metrics=metrics)
    changes.trials.update({(EXPERIMENT_ID, e.number): a_trial(number=e.number) for e in found.trials.entries})
    store.commit(changes)
    kept = KeptCurves(store.queries, EXPERIMENT_ID, reports_are_cut=False)
    return found.curves(kept, limit=limit, points=points, check=lambda: None)


def succeeded(number: int, value: float, **more: Any) -> Any:
    fields = {"number": number, "status": TrialStatus.SUCCEEDED, "value": value, "ended_at": START + number}
    return a_trial(**(fields | more))


def test_the_best_comes_with_how_it_was_come_to() -> None:
    values = [0.9, math.nan, 0.5, 0.7, 0.4]
    trials = [succeeded(number, value) for number, value in enumerate(values, start=1)]
    found = analyses([*trials, a_trial(number=9)]).best()
    assert (found["best"]["number"], found["best"]["value"]) == (5, 0.4)
    assert found["best"]["parameters"] == {"lr": 0.01, "batch": 32}
    assert found["history"] == {"numbers": [1, 3, 4, 5], "values": [0.9, 0.5, 0.5, 0.4]}
    assert found["front"] == []
    assert found["outlook"]["trials"] == 4


def test_the_best_of_a_maximised_objective_is_the_largest() -> None:
    objective = Objective(metric="accuracy", goal=Goal.MAXIMIZE)
    found = analyses([succeeded(1, 0.5), succeeded(2, math.inf), succeeded(3, 0.75)], objective=objective).best()
    assert found["best"]["number"] == 2
    assert found["history"]["values"] == [0.5, "Infinity", "Infinity"]


def test_nothing_is_told_of_a_search_without_values() -> None:
    nothing = analyses([])
    assert nothing.best()["best"] is None
    assert nothing.best()["outlook"] is None
    assert nothing.pareto()["hypervolume"] is None
    assert nothing.slices()["slices"] == {}
    assert curves_of(nothing, [], limit=5, points=5)["curves"] == []


def test_the_front_has_what_nothing_beats_and_its_volume() -> None:
    points = [(1.0, 1.0), (2.0, 3.0), (3.0, 2.0), (4.0, 4.0), (1.0, 0.5)]
    trials = [
        succeeded(number, loss, final={"loss": loss, "speed": speed}) for number, (loss, speed) in enumerate(points, 1)
    ]
    found = analyses([*trials, succeeded(9, 1.0, final={"loss": 1.0})], objective=TWO).pareto()
    assert [one["number"] for one in found["front"]] == [1, 2, 4]
    assert [one["values"] for one in found["front"]] == [[1.0, 1.0], [2.0, 3.0], [4.0, 4.0]]
    assert found["reference"] == pytest.approx([4.3, 0.15])
    assert found["hypervolume"] == pytest.approx((2 - 1) * 0.85 + (4 - 2) * 2.85 + 0.3 * 3.85)
    assert len(found["others"]) == 5


def test_slices_put_the_values_beside_each_parameter() -> None:
    nested = {"lr": 0.1, "layer": {"_name": "conv", "kernel": 3}}
    found = analyses([succeeded(1, 0.5, parameters=nested), succeeded(2, 0.25, parameters={"lr": 0.2})]).slices()
    assert found["slices"]["lr"] == {"numbers": [1, 2], "parameter": [0.1, 0.2], "values": [[0.5], [0.25]]}
    assert found["slices"]["layer.kernel"]["numbers"] == [1]


def test_long_lists_are_thinned_and_keep_their_ends() -> None:
    found = analyses([succeeded(number, 1 / number) for number in range(1, POINTS_LIMIT + 101)])
    history = found.best()["history"]
    assert len(history["numbers"]) == POINTS_LIMIT
    assert (history["numbers"][0], history["numbers"][-1]) == (1, POINTS_LIMIT + 100)
    assert len(found.slices()["slices"]["lr"]["numbers"]) == POINTS_LIMIT


def test_curves_are_of_the_best_and_the_newest_trials() -> None:
    trials = [succeeded(number, value, last_step=30) for number, value in enumerate([0.1, 0.9, 0.8, 0.7, 0.6], 1)]
    metrics = [
        MetricRow(
            experiment_id=EXPERIMENT_ID,
            number=number,
            attempt=1,
            sequence=step,
            line=1,
            step=step,
            values={"loss": 1 / step},
            first=True,
            objective=1 / step,
            at=START,
        )
        for number in range(1, 6)
        for step in range(1, 31)
    ]
    found = curves_of(analyses([*trials, a_trial(number=6)]), metrics, limit=2, points=10)
    assert [curve["number"] for curve in found["curves"]] == [1, 5]
    assert found["left_out"] == 3
    assert (
        len(found["curves"][0]["steps"]) == 8
    )  # a falling curve: the ends, and two of each stretch, some of which are equal
    assert (found["curves"][0]["steps"][0], found["curves"][0]["steps"][-1]) == (1, 30)
    everything = curves_of(analyses(trials), metrics, limit=10, points=100)["curves"]
    assert [len(curve["steps"]) for curve in everything] == [30] * 5


def test_where_the_newest_trials_are_the_best_ones_more_curves_fill_the_limit() -> None:
    trials = [succeeded(number, 1.0 / number, last_step=1) for number in range(1, 7)]
    found = curves_of(analyses(trials), [], limit=4, points=10)
    assert [curve["number"] for curve in found["curves"]] == [3, 4, 5, 6]
    assert found["left_out"] == 2


def test_what_importance_is_asked_about_is_of_one_objective() -> None:
    trials = [succeeded(n, float(n), final={"loss": float(n), "speed": 10.0 * n}) for n in (1, 2)]
    found = analyses([*trials, succeeded(3, math.inf, final={"loss": math.inf, "speed": 1.0})], objective=TWO)
    assert found.importance_input(None)["losses"] == [1.0, 2.0]
    assert found.importance_input("speed")["losses"] == [-10.0, -20.0, -1.0]
    assert len(found.importance_input("speed")["parameters"]) == 3


# ── the outlook ─────────────────────────────────────────────────────────────────────────────────
def test_nothing_is_said_of_a_few_trials() -> None:
    assert outlook([1.0, 0.5, 0.2], 10) is None


def test_a_search_that_still_improves_is_worth_going_on_with() -> None:
    found = outlook([1 / n for n in range(1, 41)], 40)
    assert found is not None
    assert found["since_improvement"] == 0
    assert found["message"].startswith("worth going on")
    assert found["chance_of_improvement"] > 0.95


def test_a_search_that_has_stood_still_promises_little() -> None:
    found = outlook([0.1] + [1.0] * 79, 10)
    assert found is not None
    assert (found["since_improvement"], found["improvements_in_later_half"]) == (79, 0)
    assert found["message"].startswith("little more")


def test_without_a_budget_it_is_asked_about_half_as_many_trials_more() -> None:
    found = outlook([1.0, 0.9, 0.9, 0.8, 0.8, 0.8, 0.8, 0.8], None)
    assert found is not None
    assert found["more_trials"] == 4


def test_the_chance_is_about_right_for_independent_draws() -> None:
    """Of n + k independent draws the best is among the last k with probability k / (n + k)."""
    chances, better = [], 0
    for seed in range(300):
        rng = random.Random(seed)
        seen = [rng.random() for _ in range(40)]
        found = outlook(seen, 20)
        assert found is not None
        chances.append(found["chance_of_improvement"])
        better += min(rng.random() for _ in range(20)) < min(seen)
    assert better / 300 == pytest.approx(1 / 3, abs=0.08)
    assert better / 300 - 0.05 < sum(chances) / 300 < better / 300 + 0.2


def test_a_value_of_a_later_phase_stands_beside_the_parameters_of_that_phase() -> None:
    phased = succeeded(
        1, 0.1, parameters={"lr": 0.5}, further_parameters=({"lr": 0.25},), wanted_index=1, reported_index=1
    )
    found = analyses([phased, succeeded(2, 0.9, parameters={"lr": 0.75})])
    assert found.best()["best"]["parameters"] == {"lr": 0.25}
    assert found.slices()["slices"]["lr"]["parameter"] == [0.25, 0.75]
    assert found.importance_input(None)["parameters"] == [{"lr": 0.25}, {"lr": 0.75}]
    assert found.pareto()["front"][0]["parameters"] == {"lr": 0.25}


def test_importance_is_of_many_trials_those_that_lie_evenly_and_of_few_nothing() -> None:
    few = analyses([succeeded(n, float(n), parameters={"lr": 0.001 * n, "batch": 16}) for n in range(1, 9)])
    assert few.importance(None)["importance"] == {}
    assert "with 10 it can be told" in few.importance(None)["message"]
    parameters = [{"lr": 0.001 + 0.09 * (n % 50) / 50, "batch": 32} for n in range(TRIALS_LIMIT + 100)]
    many = analyses([succeeded(n, given["lr"], parameters=given) for n, given in enumerate(parameters, 1)])
    found = many.importance("loss")
    assert (found["metric"], found["trials"]) == ("loss", TRIALS_LIMIT)
    assert found["importance"]["lr"] > 0.9


@pytest.mark.parametrize(
    ("further", "points", "measured"), [(1, 900, True), (2, 400, True), (2, 500, False), (3, 60, False)]
)
def test_the_volume_of_a_front_is_told_while_its_work_is_bounded(further: int, points: int, measured: bool) -> None:
    names = [f"m{place}" for place in range(further)]
    objective = Objective(metric="loss", further=tuple(Objective(metric=name) for name in names))
    trials = []
    for n in range(1, points + 1):
        rest = {name: float(points - n if place == 0 else 0) for place, name in enumerate(names)}
        trials.append(succeeded(n, float(n), final={"loss": float(n), **rest}))
    found = analyses(trials, objective=objective).pareto()
    assert len(found["front"]) == points
    assert (found["hypervolume"] is not None) is measured
