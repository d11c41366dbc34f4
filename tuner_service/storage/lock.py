"""One active service per database, and one database per home: locks that the kernel gives back with the process."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tuner_service.domain.errors import InUseError, StorageError


class _Held:
    """The descriptor of a lock file, which is the lock."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Safe to repeat."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class FileLock(_Held):
    """Held from ``acquire`` to ``release``, or to the end of the process.

    The file ``<database>.lock`` stays; its text is the pid.
    """

    def __init__(self, descriptor: int, database: Path) -> None:
        super().__init__(descriptor)
        self._database = database
        self._found: os.stat_result | None = None

    @classmethod
    def acquire(cls, database: Path) -> FileLock:
        """StorageError, naming the process, where another one holds it."""
        descriptor = _opened(database.with_name(f"{database.name}.lock"))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(OSError):  # on a full disk nobody is told the process; the lock is held all the same
                _write(descriptor, str(os.getpid()))
        except BlockingIOError as exc:
            holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise InUseError(
                f"the database {database} is in use by process {holder}; stop that service, or name another database"
            ) from exc
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor, database)

    def note_database(self) -> None:
        """The file that is there now is the one that ``is_in_place`` looks for."""
        self._found = self._database.stat()

    def is_in_place(self) -> bool:
        """Whether the database is still the file that was noted. False: it was moved, removed or replaced.

        What is written to it then is written for nobody: the open file has no name any more, or another one.
        """
        if self._found is None:
            return True
        try:
            return os.path.samestat(self._found, self._database.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # a file server that does not answer, a folder that was closed: it cannot be told now
            return True

    def why_not_in_place(self) -> str:
        return (
            f"the database {self._database} was moved, removed or replaced while the service ran; the service has "
            "ended: start it where the database is now"
        )

    def warning(self) -> str:
        return ""

    def announce(self, url: str) -> None:
        """Nobody asks a file: the home folder says it."""


class HomeLock(_Held):
    """One database at a time in a home folder: its agent, its tokens and its address are one service's.

    The active service of a database and its standbys share it. The file ``service.lock`` stays; its text says which
    database they are of.
    """

    @classmethod
    def acquire(cls, home: Path, lineage: str) -> HomeLock:
        """InUseError where a service of another database works in it. A file system without locks gives none."""
        descriptor = _opened(home / "service.lock")
        lock = cls(descriptor)
        try:
            _note_lineage(descriptor, lineage)
            is_ours = os.pread(descriptor, len(lineage) + 1, 0).decode(errors="replace") == lineage
        except OSError:
            return lock
        if not is_ours:
            lock.release()
            raise InUseError(
                f"a service with another database works in the home folder {home}; end it with `tuner serve --stop "
                f"--home {home}`, or name another folder with --home"
            )
        return lock


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StorageError(f"the lock file {path} cannot be opened: {exc.strerror}; check its permissions") from exc


def _note_lineage(descriptor: int, lineage: str) -> None:
    """In a file that nobody holds; shared with whoever does."""
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            if os.pread(descriptor, len(lineage) + 1, 0) != lineage.encode():
                _write(descriptor, lineage)
        finally:  # where it cannot be written, too: who comes next would wait for ever
            fcntl.flock(descriptor, fcntl.LOCK_SH)
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def _write(descriptor: int, text: str) -> None:
    """In this order: where something stood there, a full disk has the room for it."""
    os.pwrite(descriptor, text.encode(), 0)
    os.ftruncate(descriptor, len(text))
