"""Ending processes: they are told, then get SIGTERM, then SIGKILL. Every ending of this package takes these steps.

How long each step lasts is the caller's, and so are the clock and the way to the processes. ``docs/trial-runtime.md``
has the table of who gives which time, and why.
A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterable

from trials.processes.control_groups import ControlGroup
from trials.processes.identity import send, tree

KILL_TREE_TIMEOUT_S = 10.0  # a process that survives SIGKILL this long is stuck in the kernel and left to it
KILL_REPEAT_S = 0.2  # between two rounds of SIGKILL: a process may have forked while it was being killed
KILL_PAUSE_S, KILL_PAUSE_MAX_S = 0.001, 0.05  # between two looks at what is left, where somebody waits for it


class Escalation:
    """When the processes of one ending get which signal. Pure: each call says what time it is.

    They were told before it began. SIGTERM is due once after ``told_s``, and SIGKILL after ``grace_s`` until they are
    gone; with a ``told_s`` that is not shorter than ``grace_s`` there is no SIGTERM.
    """

    __slots__ = ("_began", "_killed_at", "_was_signalled", "grace_s", "told_s")

    def __init__(self, *, now: float, grace_s: float, told_s: float = 0.0) -> None:
        self.told_s, self.grace_s = told_s, grace_s
        self._began = now
        self._was_signalled = False
        self._killed_at: float | None = None

    def shorten(self, *, now: float, grace_s: float) -> None:
        """SIGKILL is due ``grace_s`` from now, unless it was due before."""
        self.grace_s = min(self.grace_s, now - self._began + grace_s)

    def due(self, now: float) -> tuple[int | None, float]:
        """The signal that is to be sent now, if one is, and the seconds until the next may be."""
        passed = now - self._began
        if passed >= self.grace_s:
            if self._killed_at is not None and now - self._killed_at < KILL_REPEAT_S:
                return None, KILL_REPEAT_S
            self._killed_at = now
            return signal.SIGKILL, KILL_REPEAT_S
        if self._was_signalled:
            return None, self.grace_s - passed
        if passed >= self.told_s:
            self._was_signalled = True
            return signal.SIGTERM, self.grace_s - passed
        return None, min(self.told_s, self.grace_s) - passed


def end(
    escalation: Escalation,
    *,
    send: Callable[[int], object],
    gone_within: Callable[[float], bool],
    kill_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Take the steps until they are gone. False where something has survived SIGKILL for ``kill_s``.

    ``gone_within`` waits for as many seconds at most, and may be asked again at any time.
    """
    killed_at: float | None = None
    if gone_within(0.0):
        return True
    while True:
        number, wait = escalation.due(clock())
        if number is not None:
            send(number)
            if number == signal.SIGKILL and killed_at is None:
                killed_at = clock()
        if killed_at is not None:
            wait = min(wait, killed_at + kill_s - clock())
        if gone_within(max(0.0, wait)):
            return True
        if killed_at is not None and clock() >= killed_at + kill_s:
            return False


def signal_all(pids: Iterable[int], number: int, *, group: ControlGroup | None = None) -> None:
    """To each of ``pids``; SIGKILL also to whatever else ``group`` holds by then."""
    if number == signal.SIGKILL and group is not None:
        group.kill()
    for pid in pids:
        send(pid, number)
        if number == signal.SIGTERM:
            send(pid, signal.SIGCONT)  # a stopped process gets no other signal but SIGKILL


def kill_until_gone(
    left: Callable[[], Collection[int]],
    *,
    group: ControlGroup | None = None,
    reap: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[int]:
    """SIGKILL until nothing is ``left``; returns what survived KILL_TREE_TIMEOUT_S.

    Each round takes a new look, because a process may fork while it is being killed.
    """
    deadline = clock() + KILL_TREE_TIMEOUT_S
    pause = KILL_PAUSE_S
    while found := left():
        if clock() > deadline:
            return sorted(found)
        signal_all(found, signal.SIGKILL, group=group)
        sleep(pause)
        pause = min(pause * 2, KILL_PAUSE_MAX_S)
        reap()
    reap()
    return []


def kill_tree(
    root: int | None, nonce: str, *, group: ControlGroup | None = None, reap: Callable[[], object] = lambda: None
) -> list[int]:
    """SIGKILL to all below ``root``, in ``group`` or marked for ``nonce``; returns what survived it."""
    return kill_until_gone(lambda: tree(root, nonce, group=group), group=group, reap=reap)
