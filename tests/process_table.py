"""What runs on this machine, by command line and parent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

READ_BYTES = 1 << 15


def processes() -> Iterator[tuple[int, list[str]]]:
    """Asked for again and again by whoever waits for one, so it costs little."""
    with os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
    for name in names:
        try:
            words = _read(f"/proc/{name}/cmdline").decode(errors="replace").split("\0")
        except OSError:
            continue
        if words != [""]:
            yield int(name), words


def parent(pid: int) -> int:
    try:
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 2)[1])
    except OSError:
        return 0


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = part = os.read(descriptor, READ_BYTES)
        while len(part) == READ_BYTES:
            part = os.read(descriptor, READ_BYTES)
            found += part
        return found
    finally:
        os.close(descriptor)


def agents_of(home: Path) -> list[int]:
    """The agents of a home folder."""
    return [pid for pid, words in processes() if "trials.agent" in words and str(home) in words]
