"""The workspace of one node of a group, on the machine of that node, and where the node's outputs are."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from trials.files import remove_tree
from trials.processes.temporary import TemporaryFolder
from trials.tasks.instance import ENV_OUTPUTS, FOLDER_OUTPUTS, output_bytes, output_file

FOLDER_KEPT = "global"
FOLDER_LIMIT_BYTES = 200  # of a node's name that is a folder
_Mark = tuple[int, int, int, int]  # of a file, which has another one once it is written or replaced


class Workspace:
    """``path`` is the folder, ``outputs`` that of what is given. They are there until ``close``."""

    def __init__(self, path: Path, outputs: Path) -> None:
        """Of somebody else, who closes it."""
        self.path, self.outputs = path, outputs
        self._own: TemporaryFolder | None = None
        self._lock = -1
        self._found: dict[str, _Mark] = {}  # in the workspace's own folder of outputs, when this group began

    @classmethod
    def of_outer_task(cls, path: Path) -> Workspace:
        """Of the task that this process runs below."""
        return cls(path, Path(os.environ.get(ENV_OUTPUTS) or path / FOLDER_OUTPUTS))

    @classmethod
    def private(cls, parent: Path) -> Workspace:
        """A new one, removed when it is closed."""
        parent.mkdir(parents=True, exist_ok=True)
        own = TemporaryFolder(_of_here("private"), root=parent)
        made = cls(own.path, own.path / FOLDER_OUTPUTS)
        made._own = own
        return made

    @classmethod
    def kept(cls, parent: Path) -> Workspace:
        """The one that groups before have used. Its outputs are elsewhere, for other groups may use it now."""
        path = parent / FOLDER_KEPT
        path.mkdir(parents=True, exist_ok=True)
        own = TemporaryFolder(_of_here(FOLDER_OUTPUTS), root=parent)
        made = cls(path, own.path)
        made._own = own
        made._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # another group uses it, or nobody can say who does
            fcntl.flock(made._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path / FOLDER_OUTPUTS, ignore_errors=True)
        with suppress(OSError):
            fcntl.flock(made._lock, fcntl.LOCK_SH)
        made._found = _marks_in(path / FOLDER_OUTPUTS)
        return made

    def output(self, name: str) -> tuple[str, bytes]:
        """As ``output_bytes``, of what was given last. What was written into the workspace's own folder of outputs
        since this group has begun counts, too: commands may know no other. That it was is seen by the file, whatever
        the clock says."""
        shared, file = self.path / FOLDER_OUTPUTS, output_file(name)
        mark = _mark(shared / file)
        is_new = mark is not None and mark != self._found.get(file)
        if is_new and _modified(shared / file) > _modified(self.outputs / file):
            return output_bytes(shared, name)
        return output_bytes(self.outputs, name)

    def close(self) -> None:
        """Again, it does nothing."""
        if self._own is not None:
            self._own.remove()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _marks_in(folder: Path) -> dict[str, _Mark]:
    try:
        paths = list(folder.iterdir())
    except OSError:  # nothing was ever given there
        return {}
    return {path.name: mark for path in paths if (mark := _mark(path)) is not None}


def _mark(path: Path) -> _Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _modified(path: Path) -> int:
    """When it was written, in nanoseconds; 0 for never."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def folder_of(node: str) -> str:
    """The name of its folder: its own, where a file system takes it."""
    encoded = node.encode()
    if len(encoded) <= FOLDER_LIMIT_BYTES:
        return node
    cut = encoded[: FOLDER_LIMIT_BYTES - 17].decode(errors="ignore")
    return f"{cut}-{hashlib.sha256(encoded).hexdigest()[:16]}"


def _of_here(kind: str) -> str:
    """A kind of folders of this machine alone: where several see them, locks may be known on one of them only."""
    return f"{kind}-{hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:12]}"
