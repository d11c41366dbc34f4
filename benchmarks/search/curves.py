"""The tasks whose learning curves are recorded: small models of scikit-learn on the data sets it brings along."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner_service.domain.search_space import parse_search_space

DATA = Path(__file__).parent / "data"
EPOCHS = 27
MLP_SPACE: dict[str, Any] = {
    "solver": {"type": "categorical", "choices": ["sgd", "adam"]},
    "learning_rate": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
    "batch": {"type": "int", "low": 16, "high": 256, "log": True},
    "width": {"type": "int", "low": 4, "high": 128, "log": True},
    "depth": {"type": "int", "low": 1, "high": 3},
    "alpha": {"type": "float", "low": 1e-7, "high": 1.0, "log": True},
    "momentum": {"type": "float", "low": 0.0, "high": 0.99, "when": {"solver": "sgd"}},
}
LINEAR_SPACE: dict[str, Any] = {
    "loss": {"type": "categorical", "choices": ["hinge", "log_loss", "modified_huber", "squared_hinge"]},
    "penalty": {"type": "categorical", "choices": ["l1", "l2", "elasticnet"]},
    "l1_ratio": {"type": "float", "low": 0.0, "high": 1.0, "when": {"penalty": "elasticnet"}},
    "alpha": {"type": "float", "low": 1e-7, "high": 1.0, "log": True},
    "learning_rate": {"type": "categorical", "choices": ["optimal", "constant", "invscaling"]},
    "eta0": {
        "type": "float",
        "low": 1e-5,
        "high": 10.0,
        "log": True,
        "when": {"learning_rate": ["constant", "invscaling"]},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveTask:
    space: dict[str, Any]
    model: Callable[[dict[str, Any]], Any]
    data: Callable[[], Any]


def network(parameters: dict[str, Any], *, kind: str = "MLPClassifier") -> Any:
    from sklearn import neural_network

    return getattr(neural_network, kind)(
        hidden_layer_sizes=(parameters["width"],) * parameters["depth"],
        solver=parameters["solver"],
        alpha=parameters["alpha"],
        batch_size=parameters["batch"],
        learning_rate_init=parameters["learning_rate"],
        momentum=parameters.get("momentum", 0.9),
        random_state=0,
    )


def _linear(parameters: dict[str, Any]) -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(
        loss=parameters["loss"],
        penalty=parameters["penalty"],
        l1_ratio=parameters.get("l1_ratio", 0.15),
        alpha=parameters["alpha"],
        learning_rate=parameters["learning_rate"],
        eta0=parameters.get("eta0", 0.01),
        random_state=0,
    )


def digits() -> Any:
    from sklearn.datasets import load_digits

    return split(*load_digits(return_X_y=True))


def _cancer() -> Any:
    from sklearn.datasets import load_breast_cancer

    return split(*load_breast_cancer(return_X_y=True))


def _made() -> Any:
    from sklearn.datasets import make_classification

    return split(
        *make_classification(
            1500, 20, n_informative=10, n_redundant=4, n_classes=5, n_clusters_per_class=2, flip_y=0.05, random_state=3
        )
    )


def split(inputs: Any, labels: Any, *, alike: bool = True) -> Any:
    """Train and validation inputs, scaled by the former, and their labels; ``alike``: labels as often in both."""
    from sklearn.model_selection import train_test_split

    train, validate, train_labels, validate_labels = train_test_split(
        inputs, labels, test_size=0.4, random_state=0, stratify=labels if alike else None
    )
    mean, deviation = train.mean(axis=0), train.std(axis=0) + 1e-9
    return (train - mean) / deviation, (validate - mean) / deviation, train_labels, validate_labels


CURVE_TASKS = {
    "mlp_made": CurveTask(space=MLP_SPACE, model=network, data=_made),
    "mlp_cancer": CurveTask(space=MLP_SPACE, model=network, data=_cancer),
    "linear_digits": CurveTask(space=LINEAR_SPACE, model=_linear, data=digits),
    "linear_made": CurveTask(space=LINEAR_SPACE, model=_linear, data=_made),
}


def sampled(space: dict[str, Any], count: int, *, seed: int) -> list[dict[str, Any]]:
    """The same ones for ever: recorded curves are found by their place among them."""
    parsed, rng = parse_search_space(space), random.Random(seed)
    return [parsed.sample(rng) for _ in range(count)]


def coordinates(space: dict[str, Any], rows: list[dict[str, Any]]) -> Any:
    parsed = parse_search_space(space)
    return np.array([parsed.encode(row) for row in rows])
