"""What a benchmark task is, and how tasks are read from a file.

A task is any object with the attributes and methods of ``Task`` below. A file of tasks has either ``TASKS``, a dict of
name -> task or of name -> function that makes one. Tasks of an older shape (``space`` as a list of dicts, ``curve`` of
parameters) are adapted.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Parameters = dict[str, Any]


class Task(Protocol):
    """All objectives are minimised. ``reference`` is the median of random configurations, ``best`` the best known.

    ``hv_reference`` and ``hv_best`` belong to tasks with several objectives: the reference point, and the hypervolume
    of the best known front.
    """

    name: str
    search_space: dict[str, Any]
    objectives: tuple[str, ...]
    max_epochs: int
    best: float
    reference: float
    full_seconds: float  # of a mean full training
    hv_reference: tuple[float, float] | None
    hv_best: float | None

    def metrics(self, parameters: Parameters, epoch: int, seed: int) -> dict[str, float]:
        """The objectives after ``epoch`` epochs, from 1."""
        ...

    def runtime(self, parameters: Parameters, epoch: int) -> float:
        """Seconds that epoch ``epoch`` alone takes."""
        ...


def load_file(path: Path) -> dict[str, Any]:
    """name -> function without arguments that makes the task. TypeError where the file has no ``TASKS``."""
    name = f"search_tasks_{abs(hash(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))  # for what stands beside it
    spec.loader.exec_module(module)
    made = getattr(module, "TASKS", None)
    if not isinstance(made, dict):
        raise TypeError(f"{path} has no TASKS, a dict of name -> task")
    load = getattr(module, "load", None)
    return {key: (lambda key=key, value=value: _made(key, value, load)) for key, value in made.items()}


def _made(name: str, value: Any, load: Any) -> Task:
    task = load(name) if load is not None else value() if callable(value) else value
    if hasattr(task, "search_space"):
        task.name = name
        return task  # type: ignore[no-any-return]  # the file is not ours to type
    return TableTask(name, task)


class TableTask:
    """The older shape: ``space``, ``curve(cfg)``, ``objectives(cfg)``, ``max_epoch``, ``best``, ``ref``."""

    def __init__(self, name: str, inner: Any) -> None:
        self.name, self.inner = name, inner
        self.kind = inner.kind
        self.search_space = space_of(inner.space)
        self.names = [p["name"] for p in inner.space]
        self.objectives: tuple[str, ...] = ("loss", "second") if self.kind == "mo" else ("loss",)
        self.max_epochs = 1 if self.kind == "mo" else int(inner.max_epoch)
        self.best, self.reference = float(inner.best), float(inner.ref)
        self.full_seconds = float(inner.full_seconds)
        self.hv_reference = tuple(inner.hv_ref) if self.kind == "mo" else None
        self.hv_best = inner.hv_best if self.kind == "mo" else None

    def _inner_parameters(self, parameters: Parameters) -> Parameters:
        return {name: parameters.get(name) for name in self.names}

    def metrics(self, parameters: Parameters, epoch: int, seed: int) -> dict[str, float]:  # noqa: ARG002
        inner = self._inner_parameters(parameters)
        if self.kind == "mo":
            return dict(zip(self.objectives, map(float, self.inner.objectives(inner)), strict=True))
        return {"loss": self.inner.objective(inner, epoch)}

    def runtime(self, parameters: Parameters, epoch: int) -> float:
        return float(self.inner.epoch_runtime(self._inner_parameters(parameters), epoch))


def space_of(parameters: list[dict[str, Any]]) -> dict[str, Any]:
    """A list of {name, type, low, high, log, choices, cond} as a search space."""
    return {p["name"]: _written(p) for p in parameters}


def _written(p: dict[str, Any]) -> dict[str, Any]:
    when = {"when": {p["cond"][0]: list(p["cond"][1])}} if p.get("cond") else {}
    if p["type"] in {"cat", "ord"}:
        kind = "categorical" if p["type"] == "cat" else "ordinal"
        return {"type": kind, "choices": list(p["choices"]), **when}
    kind = "int" if p["type"] == "int" else "float"
    return {"type": kind, "low": p["low"], "high": p["high"], "log": bool(p.get("log", False)), **when}


# ── scores ──────────────────────────────────────────────────────────────────────────────────────
def regret(task: Task, value: float) -> float:
    """0 for the best known value, 1 for the median random configuration; never below 0."""
    return max(0.0, (value - task.best) / (task.reference - task.best))


def hypervolume(points: list[tuple[float, ...]], reference: tuple[float, ...]) -> float:
    """Of two minimised objectives, up to ``reference``."""
    inside = sorted(p for p in points if all(a < b for a, b in zip(p, reference, strict=True)))
    volume, height = 0.0, reference[1]
    for first, second in inside:
        if second < height:
            volume += (reference[0] - first) * (height - second)
            height = second
    return volume


def loss_of(task: Task, evaluations: list[dict[str, float]]) -> float:
    """How far what was found is from the best known: regret, or 1 - hypervolume / best with two objectives."""
    if len(task.objectives) == 1:
        values = [e[task.objectives[0]] for e in evaluations]
        finite = [v for v in values if math.isfinite(v)]
        return regret(task, min(finite)) if finite else math.inf
    assert task.hv_reference is not None
    assert task.hv_best is not None
    points = [tuple(e[name] for name in task.objectives) for e in evaluations]
    return max(0.0, 1.0 - hypervolume(points, task.hv_reference) / task.hv_best)


def median(values: list[float]) -> float:
    return float(np.median(values)) if values else math.nan
