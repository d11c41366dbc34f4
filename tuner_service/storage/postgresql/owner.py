"""Who has the lease, as a service sees that waits for it: whether it lives, by whose clock.

The server's clock and this machine's can be set at any moment, so neither decides alone against what is seen: an owner
that renews before our eyes has not run out, and one that has not renewed for a whole lease has, whatever the server's
clock says. A takeover that was wrong costs a change of the service, never a row: the epoch fences.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tuner_service.storage.postgresql.lease import LEASE_S, RENEW_S, process_mark

# An owner whose session ended and that lives renews within it; else it is taken for gone, before its lease runs out.
SILENCE_S = 1.2


@dataclass(frozen=True, slots=True)
class Owner:
    service: str
    epoch: int
    renewals: int
    has_expired: bool
    host: str | None
    pid: int | None
    process: str | None
    home: str | None

    @property
    def has_died(self) -> bool:
        """A process of this very machine and process namespace that is there no more."""
        mine = process_mark(os.getpid()).split()
        theirs = (self.process or "").split()
        same_place = len(mine) == len(theirs) == 4 and mine[:2] == theirs[:2]
        return same_place and process_mark(int(theirs[2])).split() != theirs

    def __str__(self) -> str:
        if self.host is None:
            return "another service"
        return f"the service of process {self.pid} on {self.host}" + (f" (home {self.home})" if self.home else "")


class Renewals:
    """What was seen of the owner's renewals; times are of this machine's monotonic clock."""

    def __init__(self) -> None:
        self._newest: tuple[int, int] | None = None  # (epoch, renewals) as they were when they last changed
        self._since = 0.0
        self._was_alive = False

    def has_renewed(self, owner: Owner, now: float) -> bool:
        """Since the look before this one. Call it at every look."""
        seen, is_first = (owner.epoch, owner.renewals), self._newest is None
        has_changed = seen != self._newest
        if has_changed:
            self._newest, self._since = seen, now
        self._was_alive = self._was_alive or not owner.has_expired or (has_changed and not is_first)
        return has_changed and not is_first

    def silent_s(self, now: float) -> float:
        return now - self._since

    def has_run_out(self, owner: Owner, now: float) -> bool:
        """Whether the lease may be taken, with what ``has_renewed`` has been shown."""
        if self.silent_s(now) > LEASE_S + RENEW_S:
            return True
        has_ended = owner.host is None  # in order: it has taken its row away
        return owner.has_expired and (has_ended or not self._was_alive or self.silent_s(now) > SILENCE_S)
