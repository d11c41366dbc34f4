"""An optimizer of the package ``cmaes`` as text, to its last bit, and back.

The package's own form, for pickle, leaves out one triangle of the covariance, which rounding makes another than the
other. Here stand the axes of the distribution and their lengths, of which the package makes the covariance itself.
Another version of the package may keep something else, so that what it says is only read by the one that wrote it.
"""

from __future__ import annotations

import base64
from typing import Any

import cmaes
import numpy as np

AXES, LENGTHS, COVARIANCE = "_B", "_D", "_C"
STEP_SIZE, PATH, COVARIANCE_PATH, HISTORY, TOLD = "_sigma", "_p_sigma", "_pc", "_funhist_values", "_g"
ARRAYS = ("_mean", PATH, COVARIANCE_PATH, LENGTHS, AXES, HISTORY)  # in the order in which they are written


def maker() -> str:
    return f"cmaes {cmaes.__version__}"


def written(optimizer: Any) -> dict[str, Any] | None:
    """JSON values; None where nothing was drawn from it yet since its last generation."""
    state = vars(optimizer)
    if state[AXES] is None:
        return None
    numbers = np.concatenate([[state[STEP_SIZE]], *(state[name].ravel() for name in ARRAYS)])
    text = base64.b64encode(numbers.astype("<f8").tobytes()).decode("ascii")
    return {"maker": maker(), "told": int(state[TOLD]), "numbers": text}


def read(optimizer: Any, state: dict[str, Any]) -> bool:
    """Make a new ``optimizer``, built as the written one was, go on as that. False where another maker wrote it."""
    if state["maker"] != maker():
        return False
    numbers = np.frombuffer(base64.b64decode(state["numbers"]), dtype="<f8").astype(np.float64)
    count, kept = optimizer.dim, vars(optimizer)
    shapes = {AXES: (count, count), HISTORY: kept[HISTORY].shape}
    kept[TOLD], kept[STEP_SIZE], at = state["told"], numbers[0], 1
    for name in ARRAYS:
        shape = shapes.get(name, (count,))
        size = int(np.prod(shape))
        kept[name] = numbers[at : at + size].reshape(shape).copy()
        at += size
    # As the package makes it, with the operations in its order.
    kept[COVARIANCE] = np.dot(np.dot(kept[AXES], np.diag(kept[LENGTHS] ** 2)), kept[AXES].T)
    return True
