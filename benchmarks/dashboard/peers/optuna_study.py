"""Fills a study of Optuna with trials that have ended: STORAGE TRIALS REPORTS."""

from __future__ import annotations

import random
import sys

import optuna

FLOATS = optuna.distributions.FloatDistribution(0.0, 1.0)


def main() -> None:
    storage, trials, reports = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=storage, study_name="scale")
    drawn = random.Random(0)
    names = [f"x{i}" for i in range(8)]
    made = []
    for _ in range(trials):
        parameters = {name: drawn.random() for name in names}
        value = sum((one - 0.5) ** 2 for one in parameters.values())
        curve = {step: value + 1 / (step + 1) for step in range(reports)}
        made.append(
            optuna.trial.create_trial(
                params=parameters, distributions=dict.fromkeys(names, FLOATS), value=value, intermediate_values=curve
            )
        )
    study.add_trials(made)


main()
