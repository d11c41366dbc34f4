"""How long trials run on without a service: as the service says in its welcome, kept for the agents that come after."""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from pathlib import Path

from trials.agent.agent import Agent
from trials.agent.attempts import HeldAttempt
from trials.agent.home import Home
from trials.files import ATTEMPT_BYTES, read_json, write_atomically
from trials.stores import opened_file
from trials.wire.files import FILE_ATTEMPT
from trials.wire.messages import Stop

FILE_SERVICE_LOST = "service_lost_timeout"  # in HOME/agent; its text is a number of seconds, or empty
REASON = "service_lost"  # why such trials are stopped
DEFAULT_GRACE_S = 30.0
NUMBER_BYTES = 40
logger = logging.getLogger(__name__)


class Patience:
    """``limit_s`` None: trials run on for as long as they like."""

    def __init__(self, home: Home) -> None:
        self._path = home.agent / FILE_SERVICE_LOST
        self._told: set[str] = set()
        self.limit_s = _kept_in(self._path)

    def welcomed(self, limit_s: float | None) -> None:
        """There is a service, and this is what it says. Where that cannot be kept, this agent knows it all the same."""
        self._told.clear()
        if limit_s == self.limit_s:
            return
        self.limit_s = limit_s
        with suppress(OSError):
            write_atomically(str(self._path), b"" if limit_s is None else f"{limit_s!r}".encode(), durable=True)

    def look(self, agent: Agent, *, away_s: float) -> None:
        """Tell what runs to save and leave, where there was no service for too long. Each attempt is told once."""
        if self.limit_s is None or away_s < self.limit_s:
            return
        for held in list(agent.held.values()):
            if held.exit is None and held.nonce not in self._told:
                self._told.add(held.nonce)
                logger.warning("service_lost", extra={"nonce": held.nonce, "attempt": held.key, "away_s": away_s})
                agent.stop(Stop(key=held.key, nonce=held.nonce, grace_s=_grace_s(held), reason=REASON))


def _grace_s(held: HeldAttempt) -> float:
    """That of its experiment."""
    spec = (read_json(f"{held.folder}/{FILE_ATTEMPT}", limit=ATTEMPT_BYTES) or {}).get("spec")
    grace_s = spec.get("stop_grace_s") if isinstance(spec, dict) else None
    return float(grace_s) if isinstance(grace_s, int | float) else DEFAULT_GRACE_S


def _kept_in(path: Path) -> float | None:
    try:
        with opened_file(path) as file:
            return _read(file.read(NUMBER_BYTES).decode("ascii", "replace"))
    except OSError:  # there is none, or it cannot be read: the next welcome says it again
        return None


def _read(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
