"""Folders in folders, as deep as a trial may make them."""

from __future__ import annotations

import os
from pathlib import Path

DEEP = 1_000  # as many levels as Python's calls may be nested, which some are already


def deepen(
    folder: Path, levels: int = DEEP, *, name: str | None = "file", text: bytes = b"", level_name: str = "d"
) -> None:
    """Make ``folder`` with so many levels below it, some with a file in them: the last but one always."""
    folder.mkdir(parents=True)
    here = os.open(folder, os.O_RDONLY)
    for level in range(levels):
        if name is not None and (level % 100 == 0 or level == levels - 1):
            with open(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=here), "wb") as file:  # noqa: PTH123  a descriptor
                file.write(text)
        os.mkdir(level_name, dir_fd=here)
        below = os.open(level_name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
