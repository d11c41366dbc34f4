"""How an attempt ended: deciding on the cause, and getting it onto the disk.

A supervisor imports this module when it starts, so the module imports little.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH123

from __future__ import annotations

import signal
import time
from typing import Any

from trials.files import is_in_the_way, to_json, write_atomically
from trials.wire.files import FILES_FORMAT, FORMAT

EXIT_WRITE_TIMEOUT_S = 600.0  # a disk that is full for longer loses the record; the agent then writes supervisor_lost
EXIT_WRITE_PAUSE_MAX_S = 5.0


FILES_DAMAGED = "files_damaged"  # as a reason to stop, and as the cause of the end
# Of stops that nobody outside has ordered.
LIMIT_CAUSES = {"memory_limit": "out_of_memory", "max_duration": "out_of_time", FILES_DAMAGED: FILES_DAMAGED}


def cause_of(*, stopped: str | None, status: int | None, killed_for_memory: bool) -> str:
    """The text of an ``ExitCause``.

    ``stopped``: why it was told to stop, None if it was not. ``status``: the signal that ended the process, None if it
    exited by itself.
    """
    if stopped is not None:
        return LIMIT_CAUSES.get(stopped, "stopped")
    if status is None:
        return "exited"
    if status == signal.SIGKILL and killed_for_memory:
        return "out_of_memory"
    return "signaled"


def exit_record(cause: str, **fields: Any) -> dict[str, Any]:
    """The fields of an ExitRecord, as they are written."""
    record: dict[str, Any] = {
        FORMAT: FILES_FORMAT,
        "cause": cause,
        "code": None,
        "signal": None,
        "stop_reason": None,
        "started_at": None,
        "ended_at": time.time(),
        "peak_memory_bytes": None,
        "processor_s": None,
        "memory_limit_bytes": None,
        "isolation": None,
        "why_spawned": None,
        "ran_s": None,
        "tail": "",
    }
    return record | fields


def write_durably(path: str, record: dict[str, Any], *, timeout_s: float = EXIT_WRITE_TIMEOUT_S) -> None:
    """The record is on the disk when this returns. A full disk is waited for; OSError after ``timeout_s``.

    OSError at once where what stands there is in the way.
    """
    deadline = time.monotonic() + timeout_s
    pause = 0.05
    while True:
        try:
            write_atomically(path, to_json(record), durable=True)
            return
        except FileNotFoundError:
            return  # the attempt's folder was removed: nobody wants to know any more
        except OSError as error:
            if is_in_the_way(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(pause * 2, EXIT_WRITE_PAUSE_MAX_S)


def count_memory_kills() -> tuple[int, ...]:
    """How often the kernel has killed for memory, by every counter that can be read here."""
    return tuple(_counter(path) for path in ("/proc/vmstat", *_cgroup_files()))


def _cgroup_files() -> list[str]:
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            files.append(f"/sys/fs/cgroup{path.rstrip('/')}/memory.events")
        elif "memory" in controllers.split(","):
            files.append(f"/sys/fs/cgroup/memory{path.rstrip('/')}/memory.oom_control")
    return files


def _counter(path: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        return 0
    return 0
