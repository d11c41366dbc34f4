"""Pictures of each kind, of many trials, of none, and of values and names that no picture has room for."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tuner_service.figures.drawing import DRAWN, draw

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

HOSTILE = "a$\\frac{1}{0}$<script>" + "x" * 300


def views(count: int) -> dict[str, Any]:
    chance = random.Random(1)
    numbers = list(range(1, count + 1))
    values: list[Any] = [chance.random() / number for number in numbers]
    for place in range(0, count, 7):
        values[place] = ("NaN", "Infinity", "-Infinity", None)[place % 4]
    finite = [(n, v) for n, v in zip(numbers, values, strict=True) if isinstance(v, float)]
    codes = [chance.randrange(-1, 2) for _ in numbers]
    best = min(finite, key=lambda one: one[1])[0] if finite else 0
    table = {
        "number": numbers,
        "value": values,
        "parameters.lr": [10 ** chance.uniform(-5, -1) for _ in numbers],
        f"parameters.{HOSTILE}": {"words": ["sgd", HOSTILE], "codes": codes},
        "parameters.layers": [None if n % 3 else n for n in numbers],
    }
    statuses = ["early_stopped", "succeeded", "failed", "running"]
    curves = [
        {
            "number": n,
            "status": statuses[n % 4],
            "steps": list(range(20)),
            "values": [math.exp(-s / (5 + n)) + chance.random() / 20 if s != 9 else "NaN" for s in range(20)],
            "complete": True,
        }
        for n in numbers[:40]
    ]
    point = {"number": best, "value": 0.1, "values": [0.1], "parameters": {}}
    return {
        "table": {"columns": table},
        "best": {
            "id": "8f3k2",
            "objective": {"metric": "loss", "goal": "minimize"},
            "best": point if finite else None,
            "history": {"numbers": [n for n, _ in finite], "values": [v for _, v in finite]},
        },
        "curves": {"id": "8f3k2", "metric": "loss", "curves": curves, "left_out": 1_234 if count else 0},
        "importance": {
            "id": "8f3k2",
            "metric": "loss",
            "importance": {"lr": 0.6, HOSTILE: 0.3, "layers": 0.1} if count else {},
            "message": "" if count else "0 trials have a value; with 10 it can be told",
        },
        "slices": {
            "id": "8f3k2",
            "objective": {"metric": "loss", "goal": "minimize"},
            "slices": {
                name: {"numbers": numbers, "parameter": column, "values": [[value] for value in values]}
                for name, column in (
                    ("lr", table["parameters.lr"]),
                    (HOSTILE, ["a" if n % 2 else "b" for n in numbers]),
                )
                if count
            },
        },
        "pareto": {
            "id": "8f3k2",
            "objectives": [{"metric": "loss", "goal": "minimize"}, {"metric": "speed", "goal": "maximize"}],
            "front": [{"values": [0.2, 3.0]}, {"values": [0.1, "Infinity"]}] if count else [],
            "others": [{"values": [chance.random(), 3 * chance.random()]} for _ in numbers],
        },
        "timeline": {
            "lanes": [{"agent": "a", "kind": "core", "name": str(place)} for place in range(1, 5 if count else 1)],
            "columns": {
                "number": numbers,
                "attempt": [1] * count,
                "status": {"words": ["exited", "running"], "codes": [int(n > count - 4) for n in numbers]},
                "lane": [n % 4 for n in numbers],
                "share": [1] * count,
                "start_s": [(n // 4) * 10.0 for n in numbers],
                "end_s": [None if n > count - 4 else (n // 4) * 10.0 + 5 + 4 * chance.random() for n in numbers],
            },
            "now_s": 10.0 * (count // 4) + 9,
        },
    }


@pytest.mark.parametrize("form", ["png", "svg"])
@pytest.mark.parametrize("count", [0, 1, 100])
@pytest.mark.parametrize("kind", sorted(DRAWN))
def test_each_kind_is_drawn_of_nothing_of_one_and_of_many(kind: str, count: int, form: str) -> None:
    picture = draw(kind, views(count), form=form)
    assert picture.startswith(b"\x89PNG" if form == "png" else b"<?xml")
    assert b"<script>" not in picture
