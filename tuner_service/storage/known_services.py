"""The services of one database, as they stand in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownService:
    """``role``: active, standby, or gone: it has said nothing for longer than a living one is silent."""

    id: str
    role: str
    host: str
    pid: int
    home: str
    url: str
    version: str
    started_at: str
    silent_s: float
