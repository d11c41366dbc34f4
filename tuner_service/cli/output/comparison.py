"""Experiments side by side: what came of each, and the settings in which they differ."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from tuner_service.cli.output.descriptions import inputs_shown
from tuner_service.cli.output.tables import Row, aligned, clip, duration_text, first_objective, number_text

# What was asked for; the rest of a view is what came of it, or a label.
SETTINGS = (
    "objective", "search_space", "tuner", "assessor", "advisor", "budget", "trial", "seed", "deterministic",
    "algorithm_timeout", "workers", "warm_start", "quota_group", "priority", "preemptible", "executor",
)  # fmt: skip
BY_DIGEST = ("datasets", "models", "pretrained_from")  # fields of a trial whose assets "inputs" names as people do
MAX_CELL = 40
BEST_MARK = " *"


def comparison_of(views: Sequence[Row]) -> list[Row]:
    """One row for each experiment; ``differs`` holds its settings that are not the same for all."""
    settings = [_settings(view) for view in views]
    names = list(dict.fromkeys(name for found in settings for name in found))
    differing = [name for name in names if len({_key(found.get(name)) for found in settings}) > 1]
    best = _best_of(views)
    return [
        {
            "id": view["id"],
            "name": view["name"],
            "status": view["status"],
            "metric": first_objective(view)["metric"],
            "best": view["best"],
            "is_best": best is not None and (view["best"] or {}).get("value") == best,
            "counts": view["counts"],
            "running_s": view["running_s"],
            "differs": {name: found.get(name) for name in differing},
        }
        for view, found in zip(views, settings, strict=True)
    ]


def _settings(view: Row) -> dict[str, Any]:
    asked = {name: view.get(name) for name in SETTINGS}
    if asked["trial"]:
        asked["trial"] = {name: value for name, value in asked["trial"].items() if name not in BY_DIGEST}
    return _flat(asked) | {f"inputs.{name}": shown for name, shown in inputs_shown(view.get("inputs") or {}).items()}


def _best_of(views: Sequence[Row]) -> float | None:
    """The best value of all; None where they do not search for the same."""
    objectives = [first_objective(view) for view in views]
    values = [number for view in views if (number := _number((view["best"] or {}).get("value"))) is not None]
    if not values or any(one != objectives[0] for one in objectives):
        return None
    return max(values) if objectives[0]["goal"] == "maximize" else min(values)


def _number(value: Any) -> float | None:
    """Infinities are texts in JSON, and NaN is no best."""
    number = None if value is None else float(value)
    return None if number is None or math.isnan(number) else number


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for name, item in value.items():
        flat |= _flat(item, f"{prefix}.{name}" if prefix else str(name))
    return flat


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def comparison_text(rows: Sequence[Row]) -> str:
    """A column for each experiment."""
    lines: list[tuple[str, list[str]]] = [
        ("id", [row["id"] for row in rows]),
        ("status", [row["status"] for row in rows]),
        (_value_title(rows), [_best_text(row) for row in rows]),
        ("best trial", [str((row["best"] or {}).get("number", "-")) for row in rows]),
        ("succeeded", [str(row["counts"].get("succeeded", 0)) for row in rows]),
        ("early stopped", [str(row["counts"].get("early_stopped", 0)) for row in rows]),
        ("failed", [str(row["counts"].get("failed", 0)) for row in rows]),
        ("running", [duration_text(row["running_s"]) for row in rows]),
    ]
    found = [(row["best"] or {}).get("parameters") or {} for row in rows]
    lines += _section("parameters of the best trial", found)
    lines += _section("settings that differ", [row["differs"] for row in rows])
    cells = [[title, *(clip(cell, MAX_CELL) for cell in values)] for title, values in lines]
    titles = ["", *(clip(row["name"], MAX_CELL) for row in rows)]
    return aligned(titles, cells, right=[False] * len(titles))


def _value_title(rows: Sequence[Row]) -> str:
    metrics = {row["metric"] for row in rows}
    return f"best {metrics.pop()}" if len(metrics) == 1 else "best value"


def _best_text(row: Row) -> str:
    value = (row["best"] or {}).get("value")
    return number_text(value) + (BEST_MARK if row["is_best"] else "")


def _section(title: str, found: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Nothing where there is nothing to show."""
    names = list(dict.fromkeys(name for values in found for name in values))
    if not names:
        return []
    rows = [(f"  {name}", [_cell(values.get(name)) for values in found]) for name in names]
    return [(title, [""] * len(found)), *rows]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return number_text(value)
