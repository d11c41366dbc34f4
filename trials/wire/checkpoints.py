"""Asking for the checkpoints of another trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trials.wire.launch import CheckpointRef


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsWanted:
    """The attempt of ``nonce`` wants to go on from what trial ``number`` of its experiment saved.

    ``number`` BEST_TRIAL: the best one so far. ``step`` None: from its newest checkpoint, else from the one of that
    step. Asked again on the next connection until it is answered.
    """

    kind: ClassVar[str] = "checkpoints_wanted"
    request_id: str
    nonce: str
    experiment_id: str
    number: int
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsFound:
    """Answer to CheckpointsWanted: newest first, the first that verifies is taken. ``error`` is for the script."""

    kind: ClassVar[str] = "checkpoints_found"
    request_id: str
    nonce: str
    checkpoints: tuple[CheckpointRef, ...] = ()
    error: str | None = None
