"""``auto``: which assessor an experiment gets when it names none, and why. The reason is shown to the person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LEAST_TRIALS = 9  # with fewer, a rung compares too little to be worth a stop


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenAssessor:
    """``name`` None: none is better."""

    name: str | None
    reason: str
    args: dict[str, Any] = field(default_factory=dict)


def choose_assessor(*, trials: int | None) -> ChosenAssessor:
    """The rule: asynchronous successive halving, which judges nothing where trials report no steps.

    ``trials`` is the budget's; None where that is a time.
    """
    if trials is not None and trials < LEAST_TRIALS:
        return ChosenAssessor(name=None, reason=f"{trials} trials are too few to compare one with others while it runs")
    return ChosenAssessor(
        name="asha",
        reason="trials that are behind others at the same step are stopped early (asynchronous successive halving); "
        "it judges only trials that report steps",
    )
