"""Eight mixed parameters, an outcome for them, and histories of any length: the same ones for everybody."""

from __future__ import annotations

import math
import random
from typing import Any

SPACE: dict[str, Any] = {
    "lr": {"_type": "loguniform", "_value": [1e-5, 1e-1]},
    "momentum": {"_type": "uniform", "_value": [0.0, 1.0]},
    "dropout": {"_type": "quniform", "_value": [0.0, 0.9, 0.1]},
    "layers": {"_type": "randint", "_value": [1, 9]},
    "width": {"type": "int", "low": 16, "high": 1024, "log": True},
    "optimizer": {"_type": "choice", "_value": ["sgd", "adam", "rmsprop", "adagrad"]},
    "activation": {"_type": "choice", "_value": ["relu", "gelu", "tanh"]},
    "decay": {"_type": "loguniform", "_value": [1e-8, 1e-2]},
}
HISTORY_SEED = 4


def loss(parameters: dict[str, Any]) -> float:
    """Smooth, with one best region; which option is chosen shifts it."""
    return float(
        abs(math.log10(parameters["lr"]) + 3)
        + (parameters["momentum"] - 0.7) ** 2
        + parameters["dropout"]
        + 0.1 * abs(parameters["layers"] - 4)
        + 0.2 * abs(math.log2(parameters["width"]) - 8)
        + {"sgd": 0.3, "adam": 0.0, "rmsprop": 0.1, "adagrad": 0.5}[parameters["optimizer"]]
        + {"relu": 0.1, "gelu": 0.0, "tanh": 0.3}[parameters["activation"]]
        + 0.05 * abs(math.log10(parameters["decay"]) + 4)
    )


def drawn(rng: random.Random) -> dict[str, Any]:
    return {
        "lr": 10 ** rng.uniform(-5, -1),
        "momentum": rng.random(),
        "dropout": round(rng.randrange(10) * 0.1, 1),
        "layers": rng.randrange(1, 9),
        "width": round(2 ** rng.uniform(4, 10)),
        "optimizer": rng.choice(["sgd", "adam", "rmsprop", "adagrad"]),
        "activation": rng.choice(["relu", "gelu", "tanh"]),
        "decay": 10 ** rng.uniform(-8, -2),
    }


def history(trials: int) -> list[tuple[dict[str, Any], float]]:
    rng = random.Random(HISTORY_SEED)
    points = [drawn(rng) for _ in range(trials)]
    return [(point, loss(point)) for point in points]
