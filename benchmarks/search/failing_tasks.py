"""Tasks in which some parameters make trials fail, for ``python -m benchmarks.search.failing``.

A little over a quarter of random draws fails (in ``flaky`` a quarter fails and parameters do not matter). The
loss is a bowl in the unit cube of the space; where the best lies inside what works, the bowl's middle is well apart
from what fails; where it lies at the border, the middle is deep inside what fails. Names that end in ``_epochs`` are
the same with learning curves, whose trials fail in their first epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.search.task import Parameters
from tuner_service.domain.search_space import parse_search_space

EPOCHS = 9
FLAKY_PORTION = 0.25

INSIDE, BORDER, FLAKY = "inside", "border", "flaky"

_TRAINING: dict[str, Any] = {
    "lr": {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
    "batch": {"type": "int", "low": 16, "high": 1024, "log": True},
    "width": {"type": "int", "low": 32, "high": 2048, "log": True},
    "dropout": {"type": "float", "low": 0.0, "high": 0.6},
}
_BRANCHES: dict[str, Any] = {
    "model": {
        "_type": "choice",
        "_value": [
            {"_name": "linear", "l2": {"_type": "loguniform", "_value": [1e-6, 1]}},
            {
                "_name": "net",
                "depth": {"_type": "uniform", "_value": [1, 12]},
                "lr": {"_type": "loguniform", "_value": [1e-5, 1]},
            },
        ],
    },
    "noise": {"_type": "uniform", "_value": [0, 1]},
}
_OPTION: dict[str, Any] = {
    "precision": {"type": "categorical", "choices": ["float32", "bfloat16", "float16", "float8"]},
    "lr": {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
    "momentum": {"type": "float", "low": 0.0, "high": 1.0},
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """``middles``: where the bowl has its middle, by the path of the parameter, in the unit cube."""

    kind: str
    space: dict[str, Any]
    middles: dict[str, float]
    fails: Callable[[Parameters], bool]
    offset: Callable[[Parameters], float] = lambda _: 0.0


def _is_large(parameters: Parameters) -> bool:
    return bool(parameters["batch"] > 320)


def _fills_memory(parameters: Parameters) -> bool:
    return bool(parameters["batch"] * parameters["width"] > 100_000)


def _is_deep(parameters: Parameters) -> bool:
    model = parameters["model"]
    return bool(model["_name"] == "net" and model["depth"] > 5.5)


def _is_unlucky(parameters: Parameters) -> bool:
    drawn = hashlib.sha256(repr(sorted(parameters.items())).encode()).digest()
    return drawn[0] < 256 * FLAKY_PORTION


SHAPES = {
    "batch_inside": Shape(
        kind=INSIDE, space=_TRAINING, middles={"lr": 0.6, "batch": 0.4, "width": 0.7, "dropout": 0.3}, fails=_is_large
    ),
    "batch_border": Shape(
        kind=BORDER, space=_TRAINING, middles={"lr": 0.6, "batch": 1.0, "width": 0.7, "dropout": 0.3}, fails=_is_large
    ),
    "memory_inside": Shape(
        kind=INSIDE,
        space=_TRAINING,
        middles={"lr": 0.6, "batch": 0.3, "width": 0.4, "dropout": 0.3},
        fails=_fills_memory,
    ),
    "memory_border": Shape(
        kind=BORDER,
        space=_TRAINING,
        middles={"lr": 0.6, "batch": 0.9, "width": 0.9, "dropout": 0.3},
        fails=_fills_memory,
    ),
    "branch_inside": Shape(
        kind=INSIDE,
        space=_BRANCHES,
        middles={"model/net/depth": 0.15, "model/net/lr": 0.6, "model/linear/l2": 0.4, "noise": 0.5},
        fails=_is_deep,
        offset=lambda parameters: 0.1 * (parameters["model"]["_name"] == "linear"),
    ),
    "branch_border": Shape(
        kind=BORDER,
        space=_BRANCHES,
        middles={"model/net/depth": 0.8, "model/net/lr": 0.6, "model/linear/l2": 0.4, "noise": 0.5},
        fails=_is_deep,
        offset=lambda parameters: 0.5 * (parameters["model"]["_name"] == "linear"),
    ),
    "option_inside": Shape(
        kind=INSIDE,
        space=_OPTION,
        middles={"lr": 0.6, "momentum": 0.9},
        fails=lambda parameters: parameters["precision"] == "float8",
        offset=lambda parameters: {"float32": 0.1, "bfloat16": 0.0, "float16": 0.05}.get(parameters["precision"], 0.0),
    ),
    "flaky": Shape(
        kind=FLAKY,
        space=_TRAINING,
        middles={"lr": 0.6, "batch": 0.4, "width": 0.7, "dropout": 0.3},
        fails=_is_unlucky,
    ),
}


class FailingTask:
    def __init__(self, name: str, shape: Shape, *, epochs: int = 1) -> None:
        self.name, self.kind, self.search_space, self.max_epochs = name, shape.kind, shape.space, epochs
        self.objectives: tuple[str, ...] = ("loss",)
        self.best, self.reference, self.full_seconds = 0.0, 1.0, 10.0 * epochs
        self.hv_reference, self.hv_best = None, None
        self._shape, self._space = shape, parse_search_space(shape.space)
        self._columns = {path: min(self._space.columns_of([path])) for path in shape.middles}

    def fails_at(self, parameters: Parameters) -> int | None:
        return 1 if self._shape.fails(parameters) else None

    def metrics(self, parameters: Parameters, epoch: int, seed: int) -> dict[str, float]:  # noqa: ARG002
        return {"loss": self._loss(parameters) + 0.3 * (1 - epoch / self.max_epochs)}

    def runtime(self, parameters: Parameters, epoch: int) -> float:  # noqa: ARG002  # trials take about as long
        return 10.0 + float(parameters.get("lr", 0.0))

    def _loss(self, parameters: Parameters) -> float:
        there, point = self._space.flatten(parameters) or {}, self._space.encode(parameters) or ()
        apart = [point[self._columns[path]] - middle for path, middle in self._shape.middles.items() if path in there]
        return sum(gap * gap for gap in apart) + self._shape.offset(parameters)


TASKS: dict[str, Any] = {name: partial(FailingTask, name, shape) for name, shape in SHAPES.items()}
TASKS |= {
    f"{name}_epochs": partial(FailingTask, f"{name}_epochs", shape, epochs=EPOCHS) for name, shape in SHAPES.items()
}
