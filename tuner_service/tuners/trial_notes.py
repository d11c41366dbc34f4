"""What a model-based tuner remembers of a trial."""

from __future__ import annotations

from dataclasses import dataclass

from tuner_service.domain.trial import Parameters

RUNNING, FINISHED, PRUNED, FAILED = "running", "finished", "pruned", "failed"


@dataclass(slots=True, kw_only=True)
class TrialNote:
    """``value`` is None where it has none, or where it counts as the worst."""

    number: int
    parameters: Parameters
    state: str = RUNNING
    value: float | None = None
    step: int | None = None
