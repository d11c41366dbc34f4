"""The services of one database, as they stand in it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


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

    @property
    def reached_at(self) -> str:
        """Its address as other machines may use it: one that listens on all of its own is known by its name there."""
        parts = urlsplit(self.url)
        if parts.hostname not in {"0.0.0.0", "::"}:  # noqa: S104  # compared, not bound
            return self.url
        return parts._replace(netloc=f"{self.host}:{parts.port}").geturl()
