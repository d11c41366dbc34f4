"""For every registered algorithm: an experiment killed at ten random moments gives what the one never killed gives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import a_spec
from tests.simulation.histories import STEPS, best_of, check_ended, check_search
from tests.simulation.world import Faults, World, final_rows
from tuner_service.advisors.registry import ADVISORS
from tuner_service.assessors.registry import ASSESSORS
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentSpec
from tuner_service.tuners.registry import TUNERS

KILLS = 10
TEN_KILLS = Faults(
    kill_service=0.03, kill_worker=0.02, kill_agent=0.2, kill_supervisor=0.01, kill_trial=0.03, most_kills=KILLS
)
# Options with which an algorithm has something to do in a dozen trials of nine steps.
TRIALS = {"gp": 5}  # whose model takes its time
TUNER_ARGS: dict[str, dict[str, Any]] = {
    "batch": {"parameters": [{"lr": 0.001 * number, "batch": 16 + number} for number in range(1, 13)]},
    "tpe": {"n_startup_trials": 3},
    "gp": {"n_startup_trials": 3},
}
ASSESSOR_ARGS: dict[str, dict[str, Any]] = {
    "median_stop": {"min_trials": 2},
    "percentile": {"min_trials": 2, "percentile": 50.0},
    "threshold": {"upper": 1.6},
    "patience": {"patience": 2, "min_delta": 0.05},
    "curve_fitting": {"max_step": STEPS, "start_step": 5, "gap": 3},
}
ADVISOR_ARGS: dict[str, dict[str, Any]] = {
    "auto": {"n_startup_trials": 3},
    "asha_promote": {"max_step": 8, "reduction_factor": 2},
    "hyperband": {"max_step": 8, "reduction_factor": 2},
    "bohb": {"max_step": 8, "reduction_factor": 2, "min_results": 3},
    "pbt": {"population_size": 3, "interval": 2, "max_step": 7},
    "pb2": {"population_size": 3, "interval": 2, "max_step": 7},
}


def a_case(kind: str, name: str) -> ExperimentSpec:
    given: dict[str, Any] = {"tuner": AlgorithmSpec(name="random")}
    args = {"tuner": TUNER_ARGS, "assessor": ASSESSOR_ARGS, "advisor": ADVISOR_ARGS}[kind].get(name, {})
    given[kind] = AlgorithmSpec(name=name, args=args)
    budget = {"trials": TRIALS.get(name, 8), "parallel": 3, "failures": 50}
    return a_spec(seed=11, deterministic=True, budget=budget, **given)


CASES = [
    *(("tuner", name) for name in TUNERS),
    *(("assessor", name) for name in ASSESSORS),
    *(("advisor", name) for name in ADVISORS),
]


def finished(spec: ExperimentSpec, *, seed: int, faults: Faults) -> World:
    world = World(seed=seed, spec=spec, steps=STEPS, faults=faults)
    world.run()
    check_ended(world)
    return world


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda part: part)
def test_an_experiment_killed_ten_times_gives_the_suggestions_of_the_one_never_killed(kind: str, name: str) -> None:
    spec = a_case(kind, name)
    peaceful = finished(spec, seed=1, faults=Faults())
    killed = finished(spec, seed=2, faults=TEN_KILLS)
    assert killed.kills == KILLS
    assert final_rows(killed) == final_rows(peaceful)
    assert best_of(killed) == best_of(peaceful)
    check_search(killed, spec)
