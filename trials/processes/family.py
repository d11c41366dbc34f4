"""The processes below a parent of trials, and which attempt each belongs to.

The parent is their subreaper: whatever a trial leaves behind becomes the parent's child, however it tried to get away.
A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

import os

from trials.processes.identity import children_of, descendants_of
from trials.processes.marks import has_nonce, limit_of, limit_on


class Family:
    """Of this process. ``trials`` maps a nonce to the process that is the trial; ``helpers`` are the parent's own."""

    def __init__(self) -> None:
        self.trials: dict[str, int] = {}
        self.helpers: set[int] = set()
        self._ended: dict[str, int] = {}  # trials that are not reaped yet, and have nothing left
        self._limits: dict[int, int | None] = {}  # of strays: looked at once, as there may be many
        self._unmarked: dict[int, set[str]] = {}  # strays that shed their marks: whose they may be

    def add(self, nonce: str, pid: int) -> None:
        self.trials[nonce] = pid

    def end(self, nonce: str) -> None:
        """Nothing of the attempt is left but its trial, which has ended and is to be reaped."""
        self._ended[nonce] = self.trials.pop(nonce)
        for owners in self._unmarked.values():
            owners.discard(nonce)

    def remove(self, nonce: str) -> None:
        """The trial was reaped."""
        del self._ended[nonce]

    def drop(self, nonce: str) -> None:
        """It is not followed any more, whatever state it is in."""
        self.trials.pop(nonce, None)
        self._ended.pop(nonce, None)

    def everyone(self, nonce: str) -> list[int]:
        """The trial, whatever is below it, and its strays."""
        trial = self.trials[nonce]
        return [trial, *descendants_of(trial), *self.strays(nonce)]

    def strays(self, nonce: str) -> list[int]:
        """What the trial left behind: it has lost its parent and lives. Reaps the dead ones, whosever they were."""
        known = {*self.trials.values(), *self._ended.values(), *self.helpers}
        strays = [pid for pid in children_of(os.getpid()) if pid not in known and not _reap(pid)]
        self._limits = {pid: self._limits[pid] if pid in self._limits else limit_on(pid) for pid in strays}
        self._unmarked = {pid: owners for pid, owners in self._unmarked.items() if pid in self._limits}
        found = []
        for pid in strays:
            if self._is_of(pid, nonce):
                found += [pid, *descendants_of(pid)]
        return found

    def _is_of(self, pid: int, nonce: str) -> bool:
        if len(self.trials) == 1:
            return True
        limit = self._limits[pid]
        if limit is not None:
            return limit == limit_of(nonce)
        if any(has_nonce(pid, other) for other in self.trials):
            return has_nonce(pid, nonce)
        # Nothing tells whose it is: it goes with the last of those that ran when it was first seen.
        return self._unmarked.setdefault(pid, set(self.trials)) <= {nonce}


def _reap(pid: int) -> bool:
    """Whether it has ended; then it is gone for good."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
