"""Syne Tune on the same tasks and the same simulated clock. Imported only by an interpreter that has it.

It has no conditional parameters: every one is always drawn, and those that the drawn options do not bring are ignored.
"""

from __future__ import annotations

import datetime
import logging
from typing import Any

import numpy as np
import syne_tune
from syne_tune import config_space as spaces
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer import baselines
from syne_tune.optimizer.scheduler import SchedulerDecision

from benchmarks.search.clock import Peer, Slot
from benchmarks.search.task import Task
from tuner_service.domain.ranges import Choice, FloatRange, IntRange, Range
from tuner_service.domain.search_space import SearchSpace, parse_search_space

METRIC, EPOCH = "loss", "epoch"
BLACK_BOX = ("syne_bore", "syne_cqr")
MULTI_FIDELITY = ("syne_asha", "syne_bohb", "syne_asha_bore", "syne_asha_cqr")
START = datetime.datetime(2000, 1, 1)  # noqa: DTZ001  # Syne Tune wants one, and nothing depends on it


class SynePeer(Peer):
    def __init__(self, name: str, task: Task, *, seed: int) -> None:
        logging.getLogger().setLevel(logging.ERROR)
        np.random.seed(seed)  # Syne Tune draws brackets from NumPy's own generator
        self._task = task
        self._space = parse_search_space(task.search_space)
        self._names: dict[str, Range] = {}
        _collect(self._space, self._names)
        config = {name: _domain(range_) for name, range_ in self._names.items()}
        self._scheduler = _scheduler(name, config, task, seed)
        self._made = 0

    def suggest(self) -> Slot | None:
        suggestion = self._scheduler.suggest()
        if suggestion is None:
            return None
        trial = Trial(trial_id=self._made, config=suggestion.config, creation_time=START)
        self._made += 1
        self._scheduler.on_trial_add(trial)
        return Slot(parameters=self._space.build(lambda path, r: _value(suggestion.config, path, r)), handle=trial)

    def report(self, slot: Slot, epoch: int, values: dict[str, float]) -> bool:
        if epoch >= self._task.max_epochs:
            return True
        decision = self._scheduler.on_trial_result(slot.handle, self._result(epoch, values))
        return bool(decision == SchedulerDecision.CONTINUE)

    def finish(self, slot: Slot, values: dict[str, float]) -> None:
        self._scheduler.on_trial_complete(slot.handle, self._result(slot.epoch, values))

    def _result(self, epoch: int, values: dict[str, float]) -> dict[str, float]:
        return {METRIC: values[self._task.objectives[0]], EPOCH: epoch}


def _collect(space: SearchSpace, names: dict[str, Range]) -> None:
    """Every parameter that may be there, under its own name; equal ones of sibling options once."""

    def walk(parameters: Any) -> None:
        for parameter in parameters:
            names.setdefault(parameter.name, parameter.range)
            if isinstance(parameter.range, Choice):
                for option in parameter.range.options:
                    walk(option.branch or ())

    walk(space.parameters)


def _domain(range_: Range) -> Any:
    match range_:
        case Choice(ordered=True):
            return spaces.randint(0, len(range_.options) - 1)
        case Choice():
            return spaces.choice(list(range(len(range_.options))))
        case IntRange():
            return (spaces.lograndint if range_.log else spaces.randint)(range_.low, range_.high)
        case FloatRange():
            return (spaces.loguniform if range_.log else spaces.uniform)(range_.low, range_.high)
        case _:
            raise ValueError("tasks have float, int, categorical and ordinal parameters only")


def _value(config: dict[str, Any], path: str, range_: Range) -> Any:
    value = config[path.rpartition("/")[2]]
    if isinstance(range_, IntRange | FloatRange):
        value = min(max(value, range_.low), range_.high)  # BOHB's model may come out past an edge by a rounding
    return int(value) if isinstance(range_, Choice | IntRange) else float(value)


def _scheduler(name: str, config: dict[str, Any], task: Task, seed: int) -> Any:
    common: dict[str, Any] = {"config_space": config, "metric": METRIC, "do_minimize": True, "random_seed": seed}
    steps: dict[str, Any] = {"time_attr": EPOCH, "max_t": task.max_epochs}
    match name:
        case "syne_bore":
            return baselines.BORE(**common)
        case "syne_cqr":
            return baselines.CQR(**common)
        case "syne_asha":
            return baselines.ASHA(**common, **steps)
        case "syne_bohb":
            return baselines.BOHB(**common, **steps)
        case "syne_asha_bore":
            return baselines.ASHABORE(**common, **steps)
        case "syne_asha_cqr":
            return baselines.ASHACQR(**common, **steps)
        case _:
            raise ValueError(f"there is no method {name!r} of Syne Tune here")


def make(name: str, task: Task, seed: int) -> Peer:
    return SynePeer(name, task, seed=seed)


def version() -> str:
    return f"Syne Tune {syne_tune.__version__}"
