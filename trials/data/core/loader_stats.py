"""Where the time of a loader went."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Stats:
    """Counts since the loader was made; times in seconds."""

    batches: int = 0
    samples: int = 0
    skipped: int = 0  # samples that raised, with on_error="skip"
    wait_s: float = 0.0  # the trial waited for a batch
    decode_s: float = 0.0  # workers made samples, all of them together
    write_s: float = 0.0  # workers wrote them into their slots
    copy_s: float = 0.0  # the trial made batches of slots
    held_copies: int = 0  # batches copied because the trial held others
    worker_deaths: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
