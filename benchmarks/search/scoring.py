"""From runs to figures: regret at several budgets, rank, spread, time to target, own seconds."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

SHARES = (25, 50, 100)  # hundredths of the budget
SPREAD = 1.96  # deviations of the 95% interval
TARGET_METHOD = "optuna_random"  # its median final loss on a task is the target there
UNKNOWN = 1e3  # the loss before the first evaluation has ended

Run = tuple[dict[str, Any], dict[str, Any]]


def summary(runs: list[Run], kinds: dict[str, str]) -> dict[str, Any]:
    """{"kinds": {kind: {"methods": {method: figures}, "tasks": {task: {method: loss at the end, …}}}}}."""
    by_kind: dict[str, list[Run]] = defaultdict(list)
    for job, found in runs:
        by_kind[kinds[job["task"]]].append((job, found))
    return {"kinds": {kind: _of_kind(found) for kind, found in sorted(by_kind.items())}}


def _of_kind(runs: list[Run]) -> dict[str, Any]:
    curves: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(dict)
    details: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for job, found in runs:
        curve = [UNKNOWN if value is None else value for value in found["curve"]]
        curves[job["task"], job["method"]][job["seed"]] = curve
        details[job["method"]].append(found)
    tasks = sorted({task for task, _ in curves})
    same = _same(curves, tasks, list(details))
    methods = [method for method in details if method not in {other for others in same.values() for other in others}]
    curves = {key: by_seed for key, by_seed in curves.items() if key[1] in methods}
    targets = {task: _target(curves.get((task, TARGET_METHOD), {})) for task in tasks}
    ranks = _ranks(curves, tasks, methods)
    figures = {}
    for method in methods:
        per_task = {task: curves[task, method] for task in tasks if (task, method) in curves}
        figures[method] = _figures(per_task, targets) | _costs(details[method]) | {"rank": ranks[method]}
    return {
        "methods": figures,
        "tasks": {t: {m: _ends(curves[t, m]) for m in methods if (t, m) in curves} for t in tasks},
        "targets": targets,
        "same": same,
        "curves": {m: _mean_curve(curves, m) for m in methods},
    }


def _same(curves: Any, tasks: list[str], methods: list[str]) -> dict[str, list[str]]:
    """{method: the later ones whose every run went as its own did}: they are one method under several names."""
    found: dict[str, list[str]] = {}
    for place, method in enumerate(methods):
        if any(method in others for others in found.values()):
            continue
        mine = [curves.get((task, method)) for task in tasks]
        others = [other for other in methods[place + 1 :] if [curves.get((task, other)) for task in tasks] == mine]
        if others:
            found[method] = others
    return found


def _target(curves: dict[int, list[float]]) -> float | None:
    return float(np.median([curve[-1] for curve in curves.values()])) if curves else None


def _figures(per_task: dict[str, dict[int, list[float]]], targets: dict[str, float | None]) -> dict[str, Any]:
    """Means over tasks of means over seeds; ``spread``: the 95% interval's half width at the end, seeds alone."""
    at = {}
    for share in SHARES:
        values = [np.mean([min(c[share - 1], UNKNOWN) for c in curves.values()]) for curves in per_task.values()]
        at[str(share)] = round(float(np.mean(values)), 5)
    errors = [np.var([c[-1] for c in cs.values()], ddof=1) / len(cs) for cs in per_task.values() if len(cs) > 1]
    spread = SPREAD * math.sqrt(sum(errors)) / len(per_task) if errors else None
    times = [
        _time_to(curve, target)
        for task, curves in per_task.items()
        if (target := targets[task]) is not None
        for curve in curves.values()
    ]
    return {
        "loss_at": at,
        "spread": None if spread is None else round(spread, 5),
        "time_to_target": round(float(np.mean(times)), 4) if times else None,
    }


def _time_to(curve: list[float], target: float) -> float:
    """The share of the budget at which the target was met; all of it where it never was."""
    return next((index / 100 for index, value in enumerate(curve, start=1) if value <= target), 1.0)


def _costs(details: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "trials": round(float(np.mean([d["trials"] for d in details])), 1),
        "own_s": round(float(np.mean([d["own_s"] for d in details])), 3),
        "runs": len(details),
        "choice": next((d["choice"] for d in details if d.get("choice")), ""),
    }


def _ranks(curves: Any, tasks: list[str], methods: list[str]) -> dict[str, dict[str, float]]:
    """Mean rank over the (task, seed) cells that every method has; equal losses share their mean rank."""
    found: dict[str, dict[str, float]] = {method: {} for method in methods}
    for share in SHARES:
        rows = []
        for task in tasks:
            cells = [curves.get((task, method), {}) for method in methods]
            common = sorted(set.intersection(*(set(cell) for cell in cells)))
            rows += [_ranked([cell[seed][share - 1] for cell in cells]) for seed in common]
        if rows:
            for method, rank in zip(methods, np.mean(rows, axis=0), strict=True):
                found[method][str(share)] = round(float(rank), 3)
    return found


def _ranked(values: list[float]) -> list[float]:
    array = np.array(values)
    return [float((array < value).sum() + ((array == value).sum() + 1) / 2) for value in array]


def _ends(curves: dict[int, list[float]]) -> dict[str, Any]:
    """Of one task: the mean at each share, and the 95% interval's half width at the end."""
    values = np.array([curves[seed] for seed in sorted(curves)])
    deviation = float(values[:, -1].std(ddof=1)) if len(values) > 1 else 0.0
    return {
        "loss_at": {str(share): round(float(values[:, share - 1].mean()), 5) for share in SHARES},
        "half_width": round(SPREAD * deviation / math.sqrt(len(values)), 5),
    }


def _mean_curve(curves: Any, method: str) -> list[float]:
    found = [np.mean(list(by_seed.values()), axis=0) for (_, m), by_seed in curves.items() if m == method]
    return [round(float(value), 5) for value in np.mean(found, axis=0)]
