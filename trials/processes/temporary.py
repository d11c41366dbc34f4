"""Temporary folders that go with the process that made them, however that ends.

Who has one holds a lock on it, which the kernel lets go of when the process is gone. So whoever makes the next folder
of the same kind can tell those that a killed process has left behind, and removes them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from trials.files import remove_tree

WITHOUT_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})  # as some file systems of clusters are
LEFT_BEHIND_LIMIT = 16  # that are removed at once: whoever wants a folder is not to wait for long


class TemporaryFolder:
    """``ROOT/KIND-…``, empty. ``path`` is it until ``remove``, or until the process ends and another one comes."""

    def __init__(self, kind: str, *, root: Path | None = None) -> None:
        """``root``: where temporary files are, if it is not said. OSError where there is no room."""
        root = Path(tempfile.gettempdir()) if root is None else root
        _remove_left_behind(kind, root)
        self._held = -1
        while self._held < 0:
            self.path = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=root))
            self._held = _held(self.path)

    def remove(self) -> None:
        """With all that is in it; again, it does nothing."""
        if self._held < 0:
            return
        remove_tree(self.path, ignore_errors=True)
        os.close(self._held)
        self._held = -1


def _held(path: Path) -> int:
    """A descriptor that holds it; -1 where it was taken for one that was left behind, in the moment before."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:  # where there are none, nobody takes it for one that was left behind
            os.close(descriptor)
            raise
    if path.exists():
        return descriptor
    os.close(descriptor)
    return -1


def _remove_left_behind(kind: str, root: Path) -> None:
    removed = 0
    for path in root.glob(f"{kind}-*"):
        if removed < LEFT_BEHIND_LIMIT and _is_own_folder(path):
            with suppress(OSError):  # it is in use, or was removed meanwhile
                removed += _remove_unheld(path)


def _remove_unheld(path: Path) -> bool:
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(path, ignore_errors=True)
    finally:
        os.close(held)
    return True


def _is_own_folder(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
