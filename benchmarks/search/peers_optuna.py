"""Optuna on the same tasks and the same simulated clock: its samplers, and its pruners where trials report epochs."""

from __future__ import annotations

import warnings
from typing import Any

import optuna

from benchmarks.search.clock import Peer, Slot
from benchmarks.search.task import Task
from tuner_service.domain.ranges import Choice, FloatRange, IntRange, Range
from tuner_service.domain.search_space import parse_search_space

BLACK_BOX = ("optuna_random", "optuna_tpe", "optuna_tpe_multivariate", "optuna_gp", "optuna_cmaes", "optuna_auto")
MULTI_FIDELITY = (
    "optuna_random",
    "optuna_tpe",
    "optuna_tpe_multivariate",
    "optuna_random+median",
    "optuna_tpe+median",
    "optuna_tpe+halving",
    "optuna_tpe+hyperband",
)
MULTI_OBJECTIVE = ("optuna_random", "optuna_tpe", "optuna_tpe_multivariate", "optuna_nsga2", "optuna_gp")


class OptunaPeer(Peer):
    """``name``: a sampler, and after a plus a pruner."""

    def __init__(self, name: str, task: Task, *, seed: int) -> None:
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler_name, _, pruner_name = name.removeprefix("optuna_").partition("+")
        self._task = task
        self._space = parse_search_space(task.search_space)
        self._study = optuna.create_study(
            directions=["minimize"] * len(task.objectives),
            sampler=_sampler(sampler_name, seed, task, conditional=self._space.is_conditional),
            pruner=_pruner(pruner_name, task),
        )

    def suggest(self) -> Slot | None:
        trial = self._study.ask()
        return Slot(parameters=self._space.build(lambda path, r: _ask(trial, path, r)), handle=trial)

    def report(self, slot: Slot, epoch: int, values: dict[str, float]) -> bool:
        trial = slot.handle
        trial.report(values[self._task.objectives[0]], epoch)
        if not trial.should_prune():
            return True
        self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return False

    def finish(self, slot: Slot, values: dict[str, float]) -> None:
        self._study.tell(slot.handle, [values[name] for name in self._task.objectives])


def _ask(trial: Any, path: str, range_: Range) -> Any:
    """Asked for as a person would write it: equal parameters of sibling options share a name."""
    name = path.rpartition("/")[2]
    match range_:
        case Choice(ordered=True):
            return trial.suggest_int(name, 0, len(range_.options) - 1)
        case Choice():
            return trial.suggest_categorical(name, list(range(len(range_.options))))
        case IntRange():
            return trial.suggest_int(name, range_.low, range_.high, log=range_.log, step=range_.step)
        case FloatRange():
            return trial.suggest_float(name, range_.low, range_.high, log=range_.log, step=range_.step)
        case _:
            raise ValueError(f"{path}: tasks have float, int, categorical and ordinal parameters only")


def _sampler(name: str, seed: int, task: Task, *, conditional: bool) -> Any:
    samplers = optuna.samplers
    match name:
        case "random":
            return samplers.RandomSampler(seed=seed)
        case "tpe":
            return samplers.TPESampler(seed=seed)
        case "tpe_multivariate":
            return samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
        case "gp":
            return samplers.GPSampler(seed=seed, deterministic_objective=True)
        case "cmaes":
            return samplers.CmaEsSampler(seed=seed)
        case "nsga2":
            return samplers.NSGAIISampler(seed=seed, population_size=20)
        case "auto":  # the rule of OptunaHub's AutoSampler, from what is in Optuna itself
            categorical = any(
                isinstance(p.range, Choice) and not p.range.ordered
                for p in parse_search_space(task.search_space).parameters
            )
            return _sampler(
                "tpe_multivariate" if conditional or categorical else "gp", seed, task, conditional=conditional
            )
        case _:
            raise ValueError(f"there is no sampler {name!r} here")


def _pruner(name: str, task: Task) -> Any:
    match name:
        case "":
            return optuna.pruners.NopPruner()
        case "median":
            return optuna.pruners.MedianPruner()
        case "halving":
            return optuna.pruners.SuccessiveHalvingPruner()
        case "hyperband":
            return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=task.max_epochs)
        case _:
            raise ValueError(f"there is no pruner {name!r} here")


def make(name: str, task: Task, seed: int) -> Peer:
    return OptunaPeer(name, task, seed=seed)


def version() -> str:
    return f"Optuna {optuna.__version__}"
