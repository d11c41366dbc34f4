"""What an attempt uses: memory and processor time of its whole tree, sampled while it runs.

A supervisor imports this module when it starts, so the module imports little.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH123

from __future__ import annotations

import ctypes
import os

from trials.processes.libc import LIBC

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_USER_TICKS, _SYSTEM_TICKS = 11, 12  # of /proc/PID/stat, counted after the name
_WAITID_SYSCALL = {"x86_64": 247, "aarch64": 95}.get(os.uname().machine)
_P_PID = 1
_MAXRSS_INDEX = 4  # struct rusage: two timevals of two longs each, then ru_maxrss in KiB


def memory_of(pid: int) -> int:
    """Bytes in memory, pages shared with others divided by how many share them; 0 when it is gone.

    Divided, because a trial forked from a process with torch shares all of torch with it.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # gone, or a kernel that does not count shares
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def processor_s_of(pid: int) -> float:
    """Seconds on a processor so far, without its children's; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_S


class Usage:
    """The most that was seen of one attempt."""

    def __init__(self) -> None:
        self.memory_bytes = 0
        self.peak_memory_bytes = 0
        self._processor_s: dict[int, float] = {}

    def sample(self, pids: list[int]) -> None:
        self.memory_bytes = sum(map(memory_of, pids))
        self.peak_memory_bytes = max(self.peak_memory_bytes, self.memory_bytes)
        for pid in pids:
            self._processor_s[pid] = max(self._processor_s.get(pid, 0.0), processor_s_of(pid))

    def processor_s(self) -> float:
        """As far as it was seen: what ended between two samples may be missing."""
        return sum(self._processor_s.values())


def usage_of_ended(pid: int) -> tuple[int, float] | None:
    """Of an ended child, without reaping it: (most bytes it held at once, seconds on a processor).

    With the children that it has waited for. None where the kernel cannot say.
    """
    if _WAITID_SYSCALL is None:
        return None
    information = ctypes.create_string_buffer(256)
    usage = (ctypes.c_long * 32)()
    options = os.WEXITED | os.WNOWAIT | os.WNOHANG
    if LIBC.syscall(_WAITID_SYSCALL, _P_PID, pid, information, options, usage) != 0:
        return None
    user_s, user_us, system_s, system_us = usage[:_MAXRSS_INDEX]
    return int(usage[_MAXRSS_INDEX]) * 1024, user_s + system_s + (user_us + system_us) / 1e6
