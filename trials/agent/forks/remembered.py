"""What trials of a script imported, by the script's text: the next experiment with the same script begins with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from trials.files import read_json, to_json, write_atomically

FILE_IMPORTS = "imports.json"
SCRIPTS_MAX = 50  # that are remembered on a node; of more the one that was used longest ago is forgotten
FILES_MAX = 200  # Python files of a script; one of more is not remembered
ENTRIES_MAX = 2_000  # files and folders that are looked at for them; likewise
BYTES_MAX = 4 << 20  # of them together; likewise
MODULES_MAX = 5_000
MODULE_CHARACTERS = 500  # of the name of one


class Remembered:
    """``folder`` is made when there is something to keep."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, script: str | None) -> tuple[str, ...] | None:
        """The modules that a trial of the ``script`` imported, in that order; None where nobody knows."""
        if script is None:
            return None
        path = self._path(script)
        found = modules_in(path)
        if found is not None:
            with suppress(OSError):
                os.utime(path)
        return found

    def keep(self, script: str | None, modules: Sequence[str]) -> None:
        """OSError: it cannot be kept."""
        if script is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(str(self._path(script)), to_json({"modules": list(modules)}))
        kept = sorted(self._folder.iterdir(), key=_used_at)
        for path in kept[:-SCRIPTS_MAX]:
            path.unlink(missing_ok=True)

    def _path(self, script: str) -> Path:
        return self._folder / f"{script}.{FILE_IMPORTS}"


def _used_at(path: Path) -> int:
    try:
        return path.lstat().st_mtime_ns
    except FileNotFoundError:
        return 0  # it has gone meanwhile


def modules_in(path: Path) -> tuple[str, ...] | None:
    """What a trial has written there; None where it has not, or something else."""
    found = (read_json(str(path)) or {}).get("modules")
    if not isinstance(found, list):
        return None
    names = [name for name in found if isinstance(name, str) and len(name) <= MODULE_CHARACTERS]
    return tuple(name for name in names if all(map(str.isidentifier, name.split("."))))[:MODULES_MAX]


def script_in(work: Path, command: Sequence[str]) -> str | None:
    """A digest of the ``command`` and of all Python files in the working directory; None where those are too many.

    Two experiments with the same one import the same: what else differs, a parameter or a file of data, may choose
    among imports, but what is imported and not used does no more than take memory.
    """
    digest = hashlib.sha256("\0".join(command).encode(errors="surrogateescape"))
    left = BYTES_MAX
    try:
        found = sorted(_python_files(work))
        for name in found:
            with (work / name).open("rb") as file:
                content = file.read(left + 1)
            left -= len(content)
            if left < 0:
                return None
            digest.update(f"\0{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    except (OSError, _TooManyError):
        return None
    return digest.hexdigest()[:32]


class _TooManyError(Exception):
    pass


def _python_files(work: Path) -> Iterator[str]:
    """Their paths below ``work``. Links are passed over: what they lead to is no part of the script that was sent."""
    looked_at = found = 0
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(work / folder) as entries:
            for entry in entries:
                looked_at += 1
                name = f"{folder}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{name}/")
                elif entry.name.endswith(".py") and entry.is_file(follow_symlinks=False):
                    found += 1
                    yield name
                if looked_at > ENTRIES_MAX or found > FILES_MAX:
                    raise _TooManyError
