"""The search benchmark: whole experiments on simulated time, and the figures made of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from benchmarks.search import scoring
from benchmarks.search.__main__ import OWN_TASKS
from benchmarks.search.curves import DATA, sampled
from benchmarks.search.one import run
from benchmarks.search.report import tables
from benchmarks.search.roles import ROLES
from benchmarks.search.surfaces import SURFACE_TASKS, SmoothTask
from benchmarks.search.task import hypervolume, load_file, loss_of, space_of

WHERE = {"processor": "p", "cores": 2, "date": "2026-01-01"}


class Bowl:
    """Better the closer x is to 0.3, and the longer it trains; a second objective pulls the other way."""

    name = "bowl"
    search_space: dict[str, Any] = {"x": {"type": "float", "low": 0, "high": 1}}  # noqa: RUF012  # never changed
    best, reference, full_seconds = 0.0, 0.35, 40.0
    hv_reference, hv_best = (1.0, 1.0), 0.9

    def __init__(self, *, epochs: int = 1, objectives: tuple[str, ...] = ("loss",)) -> None:
        self.max_epochs, self.objectives = epochs, objectives

    def metrics(self, parameters: dict[str, Any], epoch: int, seed: int) -> dict[str, float]:
        values = {"loss": abs(parameters["x"] - 0.3) + 0.5 * (1 - epoch / self.max_epochs), "size": parameters["x"]}
        return {name: values[name] for name in self.objectives}

    def runtime(self, parameters: dict[str, Any], epoch: int) -> float:
        return 40.0 / self.max_epochs


def a_job(method: str, **fields: Any) -> dict[str, Any]:
    return {"method": method, "seed": 1, "workers": 4, "budget": 20} | fields


def test_a_black_box_search_runs_its_trials_through_the_dispatcher() -> None:
    found = run(a_job("random"), Bowl())
    assert found["trials"] == 20
    curve = found["curve"]
    assert curve[0] is None
    assert all(later <= earlier for earlier, later in itertools.pairwise(curve[10:]))


def test_a_search_of_trials_that_report_ends_with_the_simulated_time() -> None:
    plain = run(a_job("random", budget=3), Bowl(epochs=8))
    assert plain["trials"] == 4 * 4  # in the last instant each worker begins another
    assert plain["epochs"] == 4 * 3 * 8
    stopped = run(a_job("random+median_stop", budget=6), Bowl(epochs=8))
    assert stopped["trials"] > 4 * 6


def test_an_advisor_that_lets_trials_rest_goes_on_where_they_were() -> None:
    found = run(a_job("advisor:asha_promote", budget=3), Bowl(epochs=9))
    assert found["epochs"] <= 4 * 3 * 9
    assert found["trials"] > 12


def test_two_objectives_are_scored_by_their_hypervolume() -> None:
    found = run(a_job("random"), Bowl(objectives=("loss", "size")))
    assert 0.0 <= found["curve"][-1] < 1.0


def test_the_same_seed_gives_the_same_search() -> None:
    assert run(a_job("random"), Bowl())["curve"] == run(a_job("random"), Bowl())["curve"]


@pytest.mark.parametrize("name", sorted(SURFACE_TASKS))
def test_a_fitted_task_answers_between_what_was_recorded_as_the_recorded_ones_do(name: str) -> None:
    task, again = SmoothTask(name), SmoothTask(name)
    rows = sampled(task.search_space, 40, seed=0)
    with np.load(DATA / f"surface_{name}.npz") as arrays:
        recorded = arrays["losses"][: len(rows), -1]
    answers = [task.metrics(row, task.max_epochs, 0)["loss"] for row in rows]
    assert np.corrcoef(answers, recorded)[0, 1] > 0.8
    assert answers == [again.metrics(row, task.max_epochs, 0)["loss"] for row in rows]
    others = [task.metrics(row, 9, 0)["loss"] for row in sampled(task.search_space, 200, seed=9)]
    assert task.best < min(others) < task.reference < max(others)
    assert all(task.runtime(row, 1) > 0 for row in rows)


def test_hypervolume_of_two_steps_is_their_union() -> None:
    assert hypervolume([(0.0, 0.5), (0.5, 0.0), (0.6, 0.6)], (1.0, 1.0)) == pytest.approx(0.75)


def test_loss_is_normalised_between_the_best_and_the_median_random() -> None:
    assert loss_of(Bowl(), [{"loss": 0.35}]) == pytest.approx(1.0)
    assert loss_of(Bowl(), [{"loss": 0.35}, {"loss": 0.0}]) == 0.0


def test_a_list_of_parameters_becomes_a_search_space() -> None:
    listed = [
        {"name": "kind", "type": "cat", "choices": ["a", "b"]},
        {"name": "eta", "type": "float", "low": 0.1, "high": 1.0, "log": True, "cond": ("kind", ["b"])},
    ]
    assert space_of(listed)["eta"]["when"] == {"kind": ["b"]}


def test_ranks_and_times_to_target_follow_from_the_curves() -> None:
    def a_run(method: str, seed: int, end: float) -> Any:
        job = {"task": "t", "method": method, "seed": seed}
        return job, {"curve": [None] * 50 + [end] * 50, "trials": 10, "own_s": 0.1, "choice": ""}

    runs = [a_run("optuna_random", seed, 0.5) for seed in range(3)] + [a_run("auto", seed, 0.2) for seed in range(3)]
    found = scoring.summary(runs, {"t": "multi_fidelity"})["kinds"]["multi_fidelity"]["methods"]
    assert found["auto"]["rank"]["100"] == 1.0
    assert found["optuna_random"]["rank"]["100"] == 2.0
    assert found["auto"]["time_to_target"] == 0.51
    assert found["auto"]["loss_at"]["100"] == 0.2


def test_methods_whose_every_run_went_alike_are_one() -> None:
    runs = [
        ({"task": task, "method": method, "seed": 0}, {"curve": [value] * 100, "trials": 1, "own_s": own})
        for task in ("net_a", "hpolib_b")
        for method, value, own in (("auto", 0.1, 1.0), ("one", 0.5, 2.0), ("other", 0.5, 3.0), ("third", 0.7, 1.0))
    ]

    found = scoring.summary(runs, dict.fromkeys(("net_a", "hpolib_b"), "black_box"))["kinds"]["black_box"]

    assert found["same"] == {"one": ["other"]}
    assert list(found["methods"]) == ["auto", "one", "third"]
    assert found["methods"]["third"]["rank"]["100"] == 3  # nobody is counted twice
    text = tables({"kinds": {"black_box": found}, "machine": WHERE, "versions": {}, "command": "c"})
    assert "| one = other |" in text
    assert "| hpolib_b | rules were chosen on it |" in text
    assert "net_a; the column" in text


def test_every_task_of_the_project_says_whether_rules_were_chosen_on_it() -> None:
    assert all(any(name.startswith(begin) for begin in ROLES) for name in load_file(OWN_TASKS))
