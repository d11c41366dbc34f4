"""The project's own algorithms on a task: the experiment that a person would start, on simulated time."""

from __future__ import annotations

from typing import Any

from benchmarks.search.outcome import Outcome
from benchmarks.search.task import Task
from benchmarks.search.world import World
from tuner_service.domain.experiment import AlgorithmSpec, Budget, ExperimentSpec, FinalFrom, Objective, TrialTemplate


def run_ours(
    method: str, task: Task, *, seed: int, workers: int, trials: int | None, horizon_s: float | None
) -> Outcome:
    """``method``: a tuner, after a plus an assessor; or ``advisor:`` and an advisor."""
    spec = _spec(method, task, seed=seed, workers=workers, trials=trials)
    return World(task, spec, horizon_s=horizon_s).run()


def _spec(method: str, task: Task, *, seed: int, workers: int, trials: int | None) -> ExperimentSpec:
    tuner, _, assessor = method.partition("+")
    return ExperimentSpec(
        name=f"{task.name} {method}",
        seed=seed,
        objective=Objective(metric=task.objectives[0]),
        search_space=task.search_space,
        tuner=AlgorithmSpec(name=tuner),
        assessor=AlgorithmSpec(name=assessor, args=_steps(assessor, task)) if assessor else None,
        budget=Budget(trials=trials, parallel=workers),
        trial=TrialTemplate(command=("true",), final=FinalFrom.LAST if task.max_epochs > 1 else FinalFrom.REPORTED),
    )


def _steps(name: str, task: Task) -> dict[str, Any]:
    """Options that say how long a trial may be, for those that want to know."""
    return {}
