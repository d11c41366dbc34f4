"""What runs on this machine, by command line and parent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def processes() -> Iterator[tuple[int, list[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words != [""]:
                yield int(entry.name), words


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def agents_of(home: Path) -> list[int]:
    """The agents of a home folder."""
    return [pid for pid, words in processes() if "trials.agent" in words and str(home) in words]
