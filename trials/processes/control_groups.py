"""Control groups (version 2), where the kernel grants them: a tree of processes that nothing can leave.

Everything here is best effort: where a folder cannot be made there is no group, and the marks and the subreaper do
its work. A supervisor imports this module when it starts, so the module imports little.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH102, PTH110, PTH120, PTH123

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ENV_CGROUPS = "TUNER_CGROUPS"  # of the agent; "off": as if none were granted
GROUP_PREFIX = "tuner-"
_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
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
        for folder, left in _walk(self.path):
            if left is None:
                found |= {int(pid) for pid in _read("cgroup.procs", folder=folder).split()}
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
        if _removed(self.path):
            return
        for folder, left in _walk(self.path):  # it has groups of its own
            if left is not None:
                _removed(left, folder=folder)
        _removed(self.path)


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


def _walk(path: str) -> Iterator[tuple[int, str | None]]:
    """Each folder at ``path`` and below it: once when it is entered, as its descriptor and None; and those below once
    more when they are left, as the descriptor of the folder above and their name.

    A trial nests groups as deep as it likes: deeper than Python calls itself (``os.walk`` does, before Python 3.12),
    than one path has room for, and than there are descriptors. So one folder is open at a time, and the way back is its
    ``..``, which stays the same: a control group cannot be moved. What goes away meanwhile is passed over.
    """
    try:
        folder = os.open(path, _FOLDER)
    except OSError:
        return
    try:
        yield folder, None
        levels = [("", _folders_in(folder))]  # of each from ``path`` down to ``folder``: its name, what is not seen yet
        while levels[-1][1] or len(levels) > 1:
            name, waiting = levels[-1]
            if waiting:
                name = waiting.pop()
                try:
                    folder = _instead(folder, name)
                except OSError:
                    continue
                yield folder, None
                levels.append((name, _folders_in(folder)))
            else:
                levels.pop()
                try:
                    folder = _instead(folder, "..")
                except OSError:
                    return
                yield folder, name
    finally:
        os.close(folder)


def _removed(path: str, *, folder: int | None = None) -> bool:
    try:
        os.rmdir(path, dir_fd=folder)
    except OSError:
        return False
    return True


def _instead(folder: int, name: str) -> int:
    """The descriptor of the folder ``name`` in ``folder``, which is closed for it."""
    other = os.open(name, _FOLDER, dir_fd=folder)
    os.close(folder)
    return other


def _folders_in(folder: int) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _read(path: str, *, folder: int | None = None) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder), encoding="ascii") as file:
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
