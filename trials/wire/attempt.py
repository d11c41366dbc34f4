"""Which attempt of which trial."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """Which attempt of which trial. Written ``8f3k2/12/1``."""

    experiment_id: str
    number: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.experiment_id}/{self.number}/{self.attempt}"
