"""The project's own algorithms on a task: the experiment that a person would start, on simulated time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.search.outcome import Limits, Outcome
from benchmarks.search.task import Task
from benchmarks.search.world import World
from tuner_service.advisors.registry import ADVISORS
from tuner_service.assessors.registry import ASSESSORS
from tuner_service.domain.algorithm_options import RegisteredAlgorithm
from tuner_service.domain.experiment import AlgorithmSpec, Budget, ExperimentSpec, FinalFrom, Objective, TrialTemplate

FAILURES = 1_000_000  # failed trials are counted, and end nothing here


def run_ours(method: str, task: Task, limits: Limits, *, seed: int) -> Outcome:
    """``method``: a tuner, after a plus an assessor; or ``advisor:`` and an advisor."""
    return World(task, _spec(method, task, limits, seed=seed), limits).run()


def _spec(method: str, task: Task, limits: Limits, *, seed: int) -> ExperimentSpec:
    advisor = method.removeprefix("advisor:") if method.startswith("advisor:") else ""
    tuner, _, assessor = method.partition("+")
    if tuner == "auto" and not assessor and task.max_epochs > 1:
        advisor = "auto"  # as an experiment without a choice of its own has it
    first, *further = [Objective(metric=name) for name in task.objectives]
    return ExperimentSpec(
        name=f"{task.name} {method}",
        seed=seed,
        objective=replace(first, further=tuple(further)),
        search_space=task.search_space,
        tuner=AlgorithmSpec(name="random" if advisor else tuner),
        assessor=AlgorithmSpec(name=assessor, args=_steps(ASSESSORS, assessor, task)) if assessor else None,
        advisor=AlgorithmSpec(name=advisor, args=_steps(ADVISORS, advisor, task)) if advisor else None,
        budget=Budget(trials=limits.trials, parallel=limits.workers, failures=FAILURES),
        trial=TrialTemplate(command=("true",), final=FinalFrom.LAST if task.max_epochs > 1 else FinalFrom.REPORTED),
    )


def _steps(registered: Mapping[str, RegisteredAlgorithm], name: str, task: Task) -> dict[str, Any]:
    """How long a trial may be, for those that want to know."""
    options = {option.name for option in registered[name].options}
    return {"max_step": task.max_epochs} if "max_step" in options else {}
