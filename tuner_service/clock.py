"""Where time and new names come from: the only file that asks the machine for either."""

from __future__ import annotations

import logging
import secrets
import time

CLOCK_BEHIND_WARNED_S = 1.0  # by less than that a clock may be corrected at any time

logger = logging.getLogger(__name__)

ID_ALPHABET = "23456789abcdefghjkmnpqrstvwxyz"  # 30 signs; none is taken for another one
EXPERIMENT_ID_LENGTH = 5  # 24 million names; the service asks again where one is taken
TOKEN_BYTES = 32


class SystemClock:
    """The wall clock as it was at the start, moved on by the monotonic one: it never goes back.

    Nor behind what was written before: where the machine's clock was set back while no service ran, times go on from
    the newest one in the database.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._offset + time.monotonic()

    def not_before(self, at: float) -> None:
        """From now on it is ``at`` or later."""
        self._offset = max(self._offset, at - time.monotonic())


def machine_uptime() -> float:
    """Seconds since the machine's start, those that it slept included; no clock that is set changes it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def new_experiment_id() -> str:
    """Short enough to type, without signs that look alike. Not unique by itself: the caller checks."""
    return "".join(secrets.choice(ID_ALPHABET) for _ in range(EXPERIMENT_ID_LENGTH))


def new_token() -> str:
    """A secret nobody can guess, for an Authorization header."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def new_name(prefix: str) -> str:
    """``prefix`` and 12 hex digits: a name that no other process ever makes."""
    return f"{prefix}-{secrets.token_hex(6)}"


def go_on_in_time(clock: SystemClock, newest_at: float) -> None:
    """Times do not go back where the machine's clock was set back while no service ran."""
    behind = newest_at - clock.now()
    clock.not_before(newest_at)
    if behind > CLOCK_BEHIND_WARNED_S:
        logger.warning(
            "clock_was_set_back",
            extra={"behind_s": round(behind)},
        )
