"""Tasks whose learning curves are fitted to many real trainings, so that coming closer to a good point pays.

Some thousand random configurations are trained and recorded, and a Gaussian process over the parameters, one for all
epochs, carries their curves on to everything between them. Recorded curves alone (curves.py) answer with the nearest of
some hundred: there, searching near a good point gains nothing, which is not so in practice.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.search.curves import DATA, EPOCHS, MLP_SPACE, digits, network, sampled, split
from benchmarks.search.task import Parameters
from tuner_service.domain.search_space import parse_search_space

CONFIGURATIONS = 1_500
LENGTHS, MISMATCHES, NOISES = (0.4, 0.8, 1.6), (0.3, 1.0), (1e-3, 1e-2, 1e-1)  # what the fit chooses among
LOSS_LIMIT = 1.0  # log10 of the loss relative to that of chance: what diverged is no worse
BEST_ROUNDS, BEST_DRAWN, BEST_KEPT = 40, 2_000, 40  # of the search for the best value there is

TREES_SPACE: dict[str, Any] = {
    "learning_rate": {"type": "float", "low": 0.005, "high": 1.0, "log": True},
    "max_leaf_nodes": {"type": "int", "low": 2, "high": 64, "log": True},
    "min_samples_leaf": {"type": "int", "low": 1, "high": 100, "log": True},
    "l2_regularization": {"type": "float", "low": 1e-6, "high": 100.0, "log": True},
    "max_features": {"type": "float", "low": 0.2, "high": 1.0},
    "max_bins": {"type": "int", "low": 4, "high": 255, "log": True},
}

Epochs = Iterator[tuple[float, float]]  # after each: the loss relative to that of chance, and its seconds
Points = tuple[Any, Any]  # numbers, and options


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceTask:
    space: dict[str, Any]
    data: Callable[[], Any]
    epochs: Callable[[Parameters, Any], Epochs]


# ── what is trained ─────────────────────────────────────────────────────────────────────────────
def _classifying(parameters: Parameters, data: Any) -> Epochs:
    train, validate, train_labels, labels = data
    model, classes = network(parameters), np.unique(train_labels)
    chance = float(np.log(len(classes)))

    def loss() -> float:
        probabilities = model.predict_proba(validate)[np.arange(len(labels)), labels]
        return float(-np.log(np.maximum(probabilities, 1e-12)).mean()) / chance

    return _each_epoch(lambda: model.partial_fit(train, train_labels, classes=classes), loss)


def _regressing(parameters: Parameters, data: Any) -> Epochs:
    train, validate, train_targets, targets = data
    model = network(parameters, kind="MLPRegressor")
    return _each_epoch(
        lambda: model.partial_fit(train, train_targets), lambda: _error(model.predict(validate), targets)
    )


def _each_epoch(train: Callable[[], object], loss: Callable[[], float]) -> Epochs:
    """One that diverged stays as bad as can be."""
    for _ in range(EPOCHS):
        begun = time.process_time()  # so that a busy machine records the same
        try:
            train()
            found = loss()
        except ValueError:
            found = np.inf
        yield found, time.process_time() - begun


def _boosting(parameters: Parameters, data: Any) -> Epochs:
    """Three trees an epoch."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    train, validate, train_targets, targets = data
    begun = time.process_time()
    model = HistGradientBoostingRegressor(**parameters, max_iter=3 * EPOCHS, early_stopping=False, random_state=0)
    model.fit(train, train_targets)
    predictions = list(model.staged_predict(validate))[2::3]
    spent = (time.process_time() - begun) / EPOCHS
    for predicted in predictions:
        yield _error(predicted, targets), spent


def _error(predicted: Any, targets: Any) -> float:
    return float(((predicted - targets) ** 2).mean() / targets.var())


def _friedman() -> Any:
    from sklearn.datasets import make_friedman1

    inputs, targets = make_friedman1(1_000, n_features=10, noise=0.5, random_state=3)
    return split(inputs, (targets - targets.mean()) / targets.std(), alike=False)


SURFACE_TASKS = {
    "net_digits": SurfaceTask(space=MLP_SPACE, data=digits, epochs=_classifying),
    "net_friedman": SurfaceTask(space=MLP_SPACE, data=_friedman, epochs=_regressing),
    "trees_friedman": SurfaceTask(space=TREES_SPACE, data=_friedman, epochs=_boosting),
}


# ── recording ───────────────────────────────────────────────────────────────────────────────────
def record(name: str) -> None:
    """Trains ``CONFIGURATIONS``, and keeps log10 of the loss and CPU seconds of every epoch, the fit, and the best."""
    task = SURFACE_TASKS[name]
    data = task.data()
    rows = sampled(task.space, CONFIGURATIONS, seed=0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        curves = np.array([list(task.epochs(parameters, data)) for parameters in rows])
        logs = np.log10(np.maximum(curves[:, :, 0], 1e-6))
    losses = np.where(np.isfinite(logs), np.minimum(logs, LOSS_LIMIT), LOSS_LIMIT).astype(np.float32)
    seconds = curves[:, :, 1].mean(axis=1).astype(np.float32)
    given = _chosen(_Coordinates(task.space), rows, losses)
    arrays = {"losses": losses, "seconds": seconds, "given": np.array(given)}
    np.savez_compressed(DATA / f"surface_{name}.npz", **arrays, best=np.float32(0))
    best = _best(SmoothTask(name))
    np.savez_compressed(DATA / f"surface_{name}.npz", **arrays, best=np.float32(best))


def _chosen(coordinates: _Coordinates, rows: list[Parameters], losses: Any) -> tuple[float, float, float]:
    """Length, mismatch and noise with the smallest errors of each configuration told from all the others."""
    points = coordinates.of(rows)
    centred = losses - losses.mean(axis=0)

    def error(length: float, mismatch: float, noise: float) -> float:
        covariances = _covariances(points, points, length, mismatch)
        inverse = np.linalg.inv(covariances + noise * np.eye(len(rows)))
        return float((((inverse @ centred) / np.diag(inverse)[:, None]) ** 2).mean())

    every = [(length, mismatch, noise) for length in LENGTHS for mismatch in MISMATCHES for noise in NOISES]
    errors = [error(*given) for given in every]
    explained = 1 - min(errors) / float((centred**2).mean())
    print(f"the fit tells {explained:.3f} of the variance of configurations it has not seen", flush=True)
    return every[int(np.argmin(errors))]


def _best(task: SmoothTask) -> float:
    """The least loss after any epoch: of random draws, and of draws between good ones and others."""
    rng = np.random.default_rng(1)
    rows = sampled(task.search_space, BEST_DRAWN, seed=1)
    numbers, options = task.coordinates.of(rows)
    losses = task.losses_at((numbers, options)).min(axis=1)
    for _ in range(BEST_ROUNDS):
        kept = np.argsort(losses)[:BEST_KEPT]
        parents = rng.choice(kept, BEST_DRAWN)
        steps = rng.normal(size=(BEST_DRAWN, numbers.shape[1])) * rng.choice([0.01, 0.05, 0.2], (BEST_DRAWN, 1))
        drawn, drawn_options = np.clip(numbers[parents] + steps, 0, 1), options[parents]
        found = task.losses_at((drawn, drawn_options)).min(axis=1)
        numbers, options = np.vstack([numbers[kept], drawn]), np.vstack([options[kept], drawn_options])
        losses = np.concatenate([losses[kept], found])
    return float(losses.min())


# ── answering ───────────────────────────────────────────────────────────────────────────────────
class _Coordinates:
    """Numbers of parameters in the unit cube, and places of options; those that are not there in the middle."""

    def __init__(self, space: dict[str, Any]) -> None:
        self._space = parse_search_space(space)
        self._is_option = np.array([entry["type"] == "categorical" for entry in space.values()])

    def of(self, rows: list[Parameters]) -> Points:
        encoded = np.array(
            [[0.5 if c is None else c for c in self._space.encode(row) or ()] for row in rows], dtype=np.float64
        )
        return encoded[:, ~self._is_option], encoded[:, self._is_option]


def _covariances(points: Points, others: Points, length: float, mismatch: float) -> Any:
    """Matérn 5/2 over the numbers, and over the options that differ, each of which is ``mismatch`` apart."""
    squares = ((points[0][:, None, :] - others[0][None]) ** 2).sum(axis=2)
    squares += (points[1][:, None, :] != others[1][None]).sum(axis=2) * mismatch**2
    distances = np.sqrt(5 * squares) / length
    return (1 + distances + distances**2 / 3) * np.exp(-distances)


class SmoothTask:
    """The posterior mean of the fit; seconds are those of the nearest recorded configuration."""

    def __init__(self, name: str) -> None:
        task = SURFACE_TASKS[name]
        self.name, self.objectives, self.search_space, self.max_epochs = name, ("loss",), task.space, EPOCHS
        with np.load(DATA / f"surface_{name}.npz") as arrays:
            losses, self._seconds = arrays["losses"].astype(float), arrays["seconds"]
            self._length, self._mismatch, noise = arrays["given"].tolist()
            self.best = float(arrays["best"])
        self.coordinates = _Coordinates(task.space)
        self._recorded = self.coordinates.of(sampled(task.space, len(losses), seed=0))
        self._mean = losses.mean(axis=0)
        covariances = self._covariances_to(self._recorded)
        self._weights = np.linalg.solve(covariances + noise * np.eye(len(losses)), losses - self._mean)
        self.reference = float(np.median(losses.min(axis=1)))
        self.full_seconds = float(self._seconds.mean()) * EPOCHS
        self.hv_reference, self.hv_best = None, None
        self._found: dict[str, tuple[list[float], float]] = {}

    def metrics(self, parameters: Parameters, epoch: int, seed: int) -> dict[str, float]:  # noqa: ARG002
        return {"loss": self._answer(parameters)[0][epoch - 1]}

    def runtime(self, parameters: Parameters, epoch: int) -> float:  # noqa: ARG002  # all are alike
        return self._answer(parameters)[1]

    def losses_at(self, points: Points) -> Any:
        """After each epoch."""
        return self._mean + self._covariances_to(points) @ self._weights

    def _covariances_to(self, points: Points) -> Any:
        return _covariances(points, self._recorded, self._length, self._mismatch)

    def _answer(self, parameters: Parameters) -> tuple[list[float], float]:
        key = repr(parameters)
        if key not in self._found:
            covariances = self._covariances_to(self.coordinates.of([parameters]))
            losses = (self._mean + covariances @ self._weights)[0]
            self._found[key] = losses.tolist(), float(self._seconds[int(covariances[0].argmax())])
        return self._found[key]
