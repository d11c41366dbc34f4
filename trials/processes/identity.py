"""Processes by their identity, and their descendants.

A process is (boot id, pid, start time): a pid alone may belong to a stranger by the time it is used.
A supervisor imports this module when it starts, so the module imports little.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from trials.processes.control_groups import ControlGroup
from trials.processes.marks import has_mark

if TYPE_CHECKING:
    from typing import Protocol

    class Identified(Protocol):
        """Whatever names one process: an Identity, or a record of another file."""

        @property
        def boot_id(self) -> str: ...
        @property
        def pid(self) -> int: ...
        @property
        def start_time(self) -> int: ...


PID_MAX = 1 << 22  # of the kernel
START_TIME_MAX = 1 << 53  # clock ticks; a record is JSON, where larger numbers are no integers to every reader
BOOT_ID_CHARACTERS = 200
_DEAD_STATES = "ZX"
_STOPPED_STATE = "T"


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


class Identity:
    """Which process, as it was read from a file."""

    __slots__ = ("boot_id", "pid", "start_time")

    def __init__(self, *, boot_id: str, pid: int, start_time: int) -> None:
        self.boot_id, self.pid, self.start_time = boot_id, pid, start_time

    @staticmethod
    def read(record: Mapping[str, Any]) -> Identity | None:
        """The process that ``record`` names; None where no process can have that identity.

        Files that trials can write into hold anything, and ``kill(2)`` takes numbers below one for whole groups.
        """
        boot, pid, start_time = record.get("boot_id"), record.get("pid"), record.get("start_time")
        if not isinstance(boot, str) or not isinstance(pid, int) or not isinstance(start_time, int):
            return None
        is_possible = len(boot) <= BOOT_ID_CHARACTERS and 0 < pid <= PID_MAX and 0 <= start_time <= START_TIME_MAX
        return Identity(boot_id=boot, pid=pid, start_time=start_time) if is_possible else None


def identity(pid: int) -> dict[str, str | int]:
    """The fields of an Identity of a running process; ProcessLookupError when there is none."""
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"no process {pid}")
    return {"boot_id": boot_id(), "pid": pid, "start_time": stat.start_time}


def is_alive(process: Identified) -> bool:
    """Whether that very process still runs. One that has ended but was not reaped does not."""
    stat = read_stat(process.pid)
    return (
        stat is not None
        and stat.start_time == process.start_time
        and stat.state not in _DEAD_STATES
        and (not process.boot_id or process.boot_id == boot_id())
    )


def is_stopped(process: Identified) -> bool:
    """Whether that very process was stopped, as by SIGSTOP."""
    stat = read_stat(process.pid)
    return stat is not None and stat.start_time == process.start_time and stat.state == _STOPPED_STATE


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
    """To a process that this one has not reaped, or has just seen; whoever has ended first is passed over."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it ended first, or changed its user: then it is no longer ours to signal


def send_verified(number: int, process: Identified) -> bool:
    """Signal that very process; False when it is gone. The pid cannot change hands in between."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        stat = read_stat(process.pid)
        if stat is None or stat.start_time != process.start_time:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
