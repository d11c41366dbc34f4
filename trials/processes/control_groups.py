"""Control groups (version 2), where the kernel grants them: a tree of processes that nothing can leave.

Everything here is best effort: where a folder cannot be made there is no group, and the marks and the subreaper do
its work. A supervisor imports this module when it starts, so the module imports little.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH102, PTH106, PTH110, PTH120, PTH123

from __future__ import annotations

import errno
import os

ENV_CGROUPS = "TUNER_CGROUPS"  # of the agent; "off": as if none were granted
GROUP_PREFIX = "tuner-"
_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_of_use: set[str] = set()  # folders that are known to take groups of attempts


class ControlGroup:
    """The group of one attempt."""

    def __init__(self, path: str) -> None:
        self.path = path

    def enter(self) -> bool:
        """This process, and whatever it starts, belongs to the group from now on; False where it may not."""
        return _write(f"{self.path}/cgroup.procs", "0")

    def pids(self) -> set[int]:
        """Whatever lives in it, its sub-groups included."""
        if "populated 0" in _read(f"{self.path}/cgroup.events"):
            return set()  # asked for at every end, when there is nothing left as a rule
        found: set[int] = set()
        for folder, _, files in os.walk(self.path):
            if "cgroup.procs" in files:
                found |= {int(pid) for pid in _read(f"{folder}/cgroup.procs").split()}
        return found - {0}

    def kill(self) -> None:
        """SIGKILL to everything in it at once."""
        _write(f"{self.path}/cgroup.kill", "1")

    def limit_memory(self, limit: int) -> bool:
        """The kernel keeps it below ``limit`` bytes; False where it does not count memory here.

        To be called before anything is in the group.
        """
        # Refused where processes live in the parent itself, as the kernel's rules want it.
        _write(f"{os.path.dirname(self.path)}/cgroup.subtree_control", "+memory")
        if not _write(f"{self.path}/memory.max", str(limit)):
            return False
        _write(f"{self.path}/memory.swap.max", "0")
        _write(f"{self.path}/memory.oom.group", "1")
        return True

    def memory_kills(self) -> int:
        for line in _read(f"{self.path}/memory.events").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def peak_memory(self) -> int | None:
        text = _read(f"{self.path}/memory.peak").strip()
        return int(text) if text.isdigit() else None

    def remove(self) -> None:
        """Its folder, once it is empty; a process that the kernel has not let go yet keeps it."""
        try:
            os.rmdir(self.path)
            return
        except OSError:
            pass  # it has groups of its own
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                continue


def make_group(nonce: str, *, parent: str | None) -> ControlGroup | None:
    """A group for the attempt, below ``parent``, the one this process is in; None where that is not granted."""
    if parent is None:
        return None
    path = group_path(parent, nonce)
    try:
        os.mkdir(path)
    except FileExistsError:
        pass  # of a launch that was cut off
    except OSError:
        return None
    if parent not in _of_use:
        if not os.path.exists(f"{path}/cgroup.kill") or not os.access(f"{path}/cgroup.procs", os.W_OK):
            ControlGroup(path).remove()
            return None
        _of_use.add(parent)
    return ControlGroup(path)


def group_path(parent: str, nonce: str) -> str:
    """Where the group of an attempt is, below the group of the process that made it."""
    return f"{parent}/{GROUP_PREFIX}{nonce}"


def group_at(path: str) -> ControlGroup | None:
    """The group that an earlier process made; None where it is gone."""
    if path.rpartition("/")[2].startswith(GROUP_PREFIX) and os.path.exists(f"{path}/cgroup.procs"):
        return ControlGroup(path)
    return None


def own_group() -> str | None:
    """The folder of the group this process is in; None without version 2 of control groups."""
    lines = [line for line in _read("/proc/self/cgroup").splitlines() if line.startswith("0::")]
    if not lines:
        return None
    for mount in _MOUNTS:
        path = f"{mount}{lines[0][3:].rstrip('/')}"
        if os.path.exists(f"{path}/cgroup.procs"):
            return path
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        return error.errno == errno.ENODEV  # it is being removed: nothing lives in it
    finally:
        os.close(descriptor)
    return True
