"""The benchmark's own tasks. ``python -m benchmarks.search.make_data`` makes the tables that some of them need.

Black-box and two objectives: grids of configurations that were all really trained. Multi-fidelity: recorded learning
curves; parameters that were not recorded are answered by the nearest ones that were, or by a fit to all (surfaces.py).
"""

from __future__ import annotations

import ast
from functools import partial
from typing import Any

import numpy as np

from benchmarks.search.curves import CURVE_TASKS, DATA, coordinates, sampled
from benchmarks.search.surfaces import SURFACE_TASKS, SmoothTask
from benchmarks.search.task import Parameters, hypervolume
from tuner_service.domain.search_space import parse_search_space

CATEGORICAL = frozenset({"activation_fn_1", "activation_fn_2", "lr_schedule"})
REFERENCE_QUANTILE = 0.9  # of each objective over the whole table: the corner up to which hypervolume counts


class GridTask:
    """A complete grid; ``objectives`` are one or two."""

    def __init__(self, name: str, file: str, *, objectives: tuple[str, ...] = ("loss",)) -> None:
        self.name, self.objectives, self.max_epochs = name, objectives, 1
        with np.load(DATA / f"{file}.npz") as arrays:
            self._columns = {key: arrays[key] for key in ("loss", "second", "seconds")}
            self._names = [str(key) for key in arrays["names"]]
            self._dims = tuple(int(size) for size in arrays["dims"])
            self._choices = [ast.literal_eval(str(text)) for text in arrays["choices"]]
        unordered = file.startswith("nasbench")
        self.search_space: dict[str, Any] = {
            key: {"type": "categorical" if unordered or key in CATEGORICAL else "ordinal", "choices": choices}
            for key, choices in zip(self._names, self._choices, strict=True)
        }
        loss = self._columns["loss"]
        self.best, self.reference = float(loss.min()), float(np.median(loss))
        self.full_seconds = float(self._columns["seconds"].mean())
        self.hv_reference: tuple[float, float] | None = None
        self.hv_best: float | None = None
        if len(objectives) == 2:
            first, second = (self._columns[key] for key in objectives)
            self.hv_reference = (
                float(np.quantile(first, REFERENCE_QUANTILE)),
                float(np.quantile(second, REFERENCE_QUANTILE)),
            )
            points: list[tuple[float, ...]] = list(zip(first.tolist(), second.tolist(), strict=True))
            self.hv_best = hypervolume(points, self.hv_reference)

    def metrics(self, parameters: Parameters, epoch: int, seed: int) -> dict[str, float]:  # noqa: ARG002
        place = self._place(parameters)
        return {key: float(self._columns[key][place]) for key in self.objectives}

    def runtime(self, parameters: Parameters, epoch: int) -> float:  # noqa: ARG002  # there is one
        return float(self._columns["seconds"][self._place(parameters)])

    def _place(self, parameters: Parameters) -> int:
        index = [choices.index(parameters[key]) for key, choices in zip(self._names, self._choices, strict=True)]
        return int(np.ravel_multi_index(index, self._dims))


class RecordedTask:
    """Learning curves of real trainings; the nearest recorded parameters answer."""

    def __init__(self, name: str) -> None:
        task = CURVE_TASKS[name]
        self.name, self.objectives, self.search_space = name, ("loss",), task.space
        with np.load(DATA / f"curves_{name}.npz") as arrays:
            self._error, self._seconds = arrays["error"], arrays["seconds"]
        self.max_epochs = int(self._error.shape[1])
        self._space = parse_search_space(task.space)
        self._recorded = coordinates(task.space, sampled(task.space, len(self._error), seed=0))
        self.best, self.reference = float(self._error.min()), float(np.median(self._error[:, -1]))
        self.full_seconds = float(self._seconds.sum(axis=1).mean())
        self.hv_reference, self.hv_best = None, None
        self._found: dict[str, int] = {}

    def metrics(self, parameters: Parameters, epoch: int, seed: int) -> dict[str, float]:  # noqa: ARG002
        return {"loss": float(self._error[self._nearest(parameters), epoch - 1])}

    def runtime(self, parameters: Parameters, epoch: int) -> float:
        return float(self._seconds[self._nearest(parameters), epoch - 1])

    def _nearest(self, parameters: Parameters) -> int:
        key = repr(parameters)
        if key not in self._found:
            point = np.array(self._space.encode(parameters))
            self._found[key] = int(((self._recorded - point) ** 2).sum(axis=1).argmin())
        return self._found[key]


TASKS: dict[str, Any] = {
    name: partial(GridTask, name, name)
    for name in (
        "hpobench_australian",
        "hpobench_phoneme",
        "hpobench_kc1",
        "hpobench_segment",
        "hpolib_slice_localization",
        "hpolib_parkinsons_telemonitoring",
        "nasbench201_imagenet",
    )
}
TASKS |= {name: partial(RecordedTask, name) for name in CURVE_TASKS}
TASKS |= {name: partial(SmoothTask, name) for name in SURFACE_TASKS}
TASKS |= {
    f"two_{name}": partial(GridTask, f"two_{name}", name, objectives=("loss", "second"))
    for name in ("hpolib_slice_localization", "nasbench201_cifar10", "hpobench_segment")
}
