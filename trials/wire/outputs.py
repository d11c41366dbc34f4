"""Messages about what a trial left: the agent has staged it, the service has made an asset of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trials.wire.attempt import AttemptKey


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOffered:
    """The files, and the manifest of ``size`` bytes in ``pieces``, are staged. Without pieces: nothing can be kept.

    ``message``: what is missing and why, where it is not complete. ``step``: of the checkpoint at which it was taken.
    """

    kind: ClassVar[str] = "output_offered"
    key: AttemptKey
    nonce: str
    size: int
    pieces: tuple[str, ...]
    is_complete: bool = True
    message: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputStored:
    """It is an asset of the trial, on the service's disk; or why it is not, and whether that ``may_pass``."""

    kind: ClassVar[str] = "output_stored"
    nonce: str
    error: str | None = None
    may_pass: bool = False
