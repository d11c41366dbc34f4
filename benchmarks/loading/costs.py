"""What a process and all below it have cost so far: processor time, page faults, and the memory they share fairly."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from trials.processes.usage import memory_of, processor_s_of

_FAULTS, _ENDED_FAULTS, _OWN_TICKS, _ENDED_TICKS = 7, 8, 11, 13  # of /proc/PID/stat, counted after the name
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    cpu_s: float
    faults: int  # pages that the kernel had to give

    def __sub__(self, other: Costs) -> Costs:
        return Costs(cpu_s=self.cpu_s - other.cpu_s, faults=self.faults - other.faults)


def costs_of(pids: list[int]) -> Costs:
    """Of those that run, and of their children that were waited for."""
    found = list(map(_costs, pids))
    return Costs(cpu_s=sum(one.cpu_s for one in found), faults=sum(one.faults for one in found))


def tree(*roots: int) -> list[int]:
    """The processes and all below them."""
    found, pending = [], list(roots)
    while pending:
        pid = pending.pop()
        found.append(pid)
        try:
            for thread in Path(f"/proc/{pid}/task").iterdir():
                pending += map(int, (thread / "children").read_text(encoding="ascii").split())
        except OSError:
            continue
    return found


class PeakMemory:
    """The most proportional set size that this process and all below it had at once, until ``stop``."""

    def __init__(self, *, every_s: float) -> None:
        self._every_s = every_s  # a look costs milliseconds for each process
        self._peak = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Bytes."""
        self._done.set()
        self._thread.join()
        return self._peak

    def _look(self) -> None:
        done = False
        while not done:
            self._peak = max(self._peak, sum(map(memory_of, tree(os.getpid()))))
            done = self._done.wait(self._every_s)
        self._peak = max(self._peak, sum(map(memory_of, tree(os.getpid()))))  # the last look is after the end


def _costs(pid: int) -> Costs:
    """With its threads and reaped children that ended. In nanoseconds where the kernel says them of the threads that
    run: a clock tick is more than an idle process uses."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        threads = [(thread / "schedstat").read_text().split()[0] for thread in Path(f"/proc/{pid}/task").iterdir()]
    except (OSError, IndexError):
        return Costs(cpu_s=processor_s_of(pid), faults=0)
    own, ended = (sum(map(int, fields[begin : begin + 2])) * _TICK_S for begin in (_OWN_TICKS, _ENDED_TICKS))
    running = sum(map(int, threads)) / 1e9
    own = running if abs(own - running) <= 2 * _TICK_S else own
    return Costs(cpu_s=own + ended, faults=int(fields[_FAULTS]) + int(fields[_ENDED_FAULTS]))
