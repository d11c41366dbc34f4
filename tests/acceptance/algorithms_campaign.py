"""The promise of exact resume for every registered algorithm, on real processes.

Each is given a deterministic search that is run once untouched and once while ten processes of it are killed at random
moments; both must end with the same rows. tests/simulation/test_every_algorithm.py tries the same on virtual time.

    python -m tests.acceptance.algorithms_campaign [--only advisor:pbt] [--kills 10] [--trials 10] [--seed 1]
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tests.acceptance.campaign import difference, experiment_file, run_killed, run_untouched
from tuner_service.advisors.registry import ADVISORS
from tuner_service.assessors.registry import ASSESSORS
from tuner_service.tuners.registry import TUNERS

REGISTERED = {"tuner": TUNERS, "assessor": ASSESSORS, "advisor": ADVISORS}
# Options with which an algorithm has something to do in some ten trials of twelve steps.
ARGS: dict[str, dict[str, Any]] = {
    "tuner:batch": {"parameters": [{"lr": 0.001 * number, "width": number} for number in range(1, 30)]},
    "tuner:tpe": {"n_startup_trials": 3},
    "assessor:median_stop": {"min_trials": 2, "start_step": 1},
    "assessor:percentile": {"min_trials": 2, "percentile": 50.0},
    "assessor:threshold": {"upper": 1.2},
    "assessor:patience": {"patience": 3, "min_delta": 0.02},
    "assessor:curve_fitting": {"max_step": 12, "gap": 3},
    "advisor:asha_promote": {"min_step": 2, "max_step": 12, "reduction_factor": 2},
    "advisor:hyperband": {"min_step": 2, "max_step": 12, "reduction_factor": 2},
    "advisor:bohb": {"min_step": 2, "max_step": 12, "reduction_factor": 2, "min_results": 3},
    "advisor:pbt": {"population_size": 3, "interval": 3, "max_step": 11},
    "advisor:pb2": {"population_size": 3, "interval": 3, "max_step": 11},
}


def cases() -> list[str]:
    return [f"{kind}:{name}" for kind, registered in REGISTERED.items() for name in registered]


def a_search(case: str, *, trials: int) -> dict[str, Any]:
    """The experiment file of the campaign with this algorithm in it."""
    kind, _, name = case.partition(":")
    content = experiment_file(trials=trials, deterministic=True, tuner="random")
    if kind != "assessor":
        del content["assessor"]
    if kind == "advisor":
        del content["tuner"]
    return content | {kind: {"name": name, "args": ARGS.get(case, {})}}


def check(case: str, *, trials: int, kills: int, seed: int) -> str:
    """A sentence for the first difference; empty where there is none."""
    content = a_search(case, trials=trials)
    expected, _ = run_untouched(content)
    rows, killed = run_killed(content, seed=seed, most=kills)
    found = difference(expected, rows)
    return f"{found} (killed {killed})" if found else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", choices=cases(), action="append")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failed = 0
    for case in arguments.only or cases():
        found = check(case, trials=arguments.trials, kills=arguments.kills, seed=arguments.seed)
        failed += bool(found)
        print(f"{case}: {found or 'the same'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
