"""What rules compare: values with the sign that makes smaller better, and NaN and infinities as the worst."""

from __future__ import annotations

import math

from tuner_service.domain.experiment import Goal, Objective


def loss_of(objective: Objective, value: float | None) -> float:
    if value is None or not math.isfinite(value):
        return math.inf
    return -value if objective.goal is Goal.MAXIMIZE else value


def shown(objective: Objective, loss: float) -> str:
    """The value that a loss stands for, for messages."""
    if math.isinf(loss):
        return "none that is finite"
    return f"{-loss if objective.goal is Goal.MAXIMIZE else loss:g}"


def written(loss: float) -> float | None:
    """As JSON holds it."""
    return None if math.isinf(loss) else loss


def read(loss: float | None) -> float:
    return math.inf if loss is None else loss
