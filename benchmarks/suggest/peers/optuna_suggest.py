"""Optuna, in memory: seconds of one ask, and of the tell after it. FOLDER TRIALS ASKED SAMPLER."""

import json
import sys
import time
import warnings
from pathlib import Path

import optuna

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from benchmarks.suggest.space import history, loss  # the path comes first

warnings.simplefilter("ignore")
optuna.logging.set_verbosity(optuna.logging.ERROR)
_, _, trials, asked, sampler = sys.argv
DISTRIBUTIONS = {
    "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
    "momentum": optuna.distributions.FloatDistribution(0, 1),
    "dropout": optuna.distributions.FloatDistribution(0, 0.9, step=0.1),
    "layers": optuna.distributions.IntDistribution(1, 8),
    "width": optuna.distributions.IntDistribution(16, 1024, log=True),
    "optimizer": optuna.distributions.CategoricalDistribution(["sgd", "adam", "rmsprop", "adagrad"]),
    "activation": optuna.distributions.CategoricalDistribution(["relu", "gelu", "tanh"]),
    "decay": optuna.distributions.FloatDistribution(1e-8, 1e-2, log=True),
}
SAMPLERS = {
    "tpe": lambda: optuna.samplers.TPESampler(seed=1),
    "tpe, multivariate": lambda: optuna.samplers.TPESampler(seed=1, multivariate=True, constant_liar=True),
    "gp": lambda: optuna.samplers.GPSampler(seed=1),
    "cma_es": lambda: optuna.samplers.CmaEsSampler(seed=1, warn_independent_sampling=False),
    "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=1),
    "random": lambda: optuna.samplers.RandomSampler(seed=1),
    "quasi_random": lambda: optuna.samplers.QMCSampler(seed=1, scramble=True),
}
study = optuna.create_study(sampler=SAMPLERS[sampler]())
study.add_trials(
    [
        optuna.trial.create_trial(params=point, distributions=DISTRIBUTIONS, value=value)
        for point, value in history(int(trials))
    ]
)
times, told = [], []
for _ in range(int(asked) + 1):
    begun = time.perf_counter()
    trial = study.ask(DISTRIBUTIONS)
    times.append(time.perf_counter() - begun)
    value = loss(trial.params)
    begun = time.perf_counter()
    study.tell(trial, value)
    told.append(time.perf_counter() - begun)
print(json.dumps({"first_s": times[0], "s": times[1:], "told_s": told[1:]}))
