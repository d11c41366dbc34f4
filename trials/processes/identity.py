"""Processes by their identity, their descendants, and their end.

A process is (boot id, pid, start time): a pid alone may belong to a stranger by the time it is used.
Imported by the supervisor, so it stays as small as its start is quick.
"""
# Without pathlib, which would add a third to the start of a supervisor.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import cache

from trials.processes.control_groups import ControlGroup
from trials.processes.libc import LIBC
from trials.processes.marks import has_mark

KILL_TREE_TIMEOUT_S = 10.0  # a process that survives SIGKILL this long is stuck in the kernel and left to it
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DEAD_STATES = "ZX"


class ProcessStat:
    """What /proc/PID/stat says of one process at one moment."""

    __slots__ = ("parent", "pid", "start_time", "state")

    def __init__(self, pid: int, text: str) -> None:
        # The command's name is in parentheses and may itself hold spaces and parentheses.
        rest = text.rpartition(")")[2].split()
        self.pid = pid
        self.state = rest[0]
        self.parent = int(rest[1])
        self.start_time = int(rest[19])


@cache
def boot_id() -> str:
    """Of the machine, since it was started."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def read_stat(pid: int) -> ProcessStat | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return ProcessStat(pid, file.read())
    except (OSError, IndexError, ValueError):
        return None  # it ended meanwhile


def identity(pid: int) -> dict[str, str | int]:
    """The fields of a ProcessRecord of a running process; ProcessLookupError when there is none."""
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"no process {pid}")
    return {"boot_id": boot_id(), "pid": pid, "start_time": stat.start_time}


def is_alive(*, pid: int, start_time: int, boot: str) -> bool:
    """Whether that very process still runs. One that has ended but was not reaped does not."""
    stat = read_stat(pid)
    return (
        stat is not None
        and stat.start_time == start_time
        and stat.state not in _DEAD_STATES
        and (not boot or boot == boot_id())
    )


def set_death_signal(number: int) -> None:
    """The kernel sends this process ``number`` when the thread that made it ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def become_subreaper() -> None:
    """Descendants whose parent ends become children of this process instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if LIBC.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}): {os.strerror(error)}")


def _stats() -> Iterator[ProcessStat]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read_stat(int(name))
            if stat is not None:
                yield stat


def tree(root: int | None, nonce: str, *, group: ControlGroup | None = None) -> set[int]:
    """Living processes below ``root``, in ``group`` or marked for ``nonce``, and all below them; never this one."""
    children: dict[int, list[int]] = {}
    alive: set[int] = set()
    for stat in _stats():
        children.setdefault(stat.parent, []).append(stat.pid)
        if stat.state not in _DEAD_STATES:
            alive.add(stat.pid)
    own = os.getpid()
    pending = [pid for pid in alive if pid != own and has_mark(pid, nonce)]
    pending += children.get(root, []) if root is not None else []
    pending += group.pids() if group is not None else ()
    found: set[int] = set()
    while pending:
        pid = pending.pop()
        if pid not in found and pid != own:
            found.add(pid)
            pending += children.get(pid, [])
    return found & alive


def children_of(pid: int) -> list[int]:
    """Processes whose parent ``pid`` is, dead ones that were not reaped included."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        return found  # it ended meanwhile
    return found


def descendants_of(pid: int) -> list[int]:
    found, pending = [], [pid]
    while pending:
        children = children_of(pending.pop())
        found += children
        pending += children
    return found


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it ended first, or changed its user: then it is no longer ours to signal


def send_verified(number: int, *, pid: int, start_time: int) -> bool:
    """Signal that very process; False when it is gone. The pid cannot change hands in between."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        stat = read_stat(pid)
        if stat is None or stat.start_time != start_time:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def kill_tree(
    root: int | None, nonce: str, *, group: ControlGroup | None = None, reap: Callable[[], None] = lambda: None
) -> list[int]:
    """SIGKILL until nothing of the tree is left; returns what survived KILL_TREE_TIMEOUT_S.

    Each round takes a new look, because a process may fork while it is being killed.
    """
    deadline = time.monotonic() + KILL_TREE_TIMEOUT_S
    pause = 0.001
    while left := tree(root, nonce, group=group):
        if time.monotonic() > deadline:
            return sorted(left)
        if group is not None:
            group.kill()
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
        reap()
    reap()
    return []
