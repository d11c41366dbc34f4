"""What a loader may leave behind: child processes, descriptors, threads."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """Living processes below ``pid``, without those that are only waited for."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found.update(below)
        waiting.extend(below)
    return found


def held() -> tuple[set[int], set[str], set[str]]:
    """Child processes, open descriptors (number and target), and threads of this process."""
    descriptors = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            descriptors.add(f"{link.name} {link.readlink()}")
        except OSError:
            continue  # the folder's own
    names = {thread.name for thread in threading.enumerate() if "data" in thread.name}
    return descendants(os.getpid()), descriptors, names
