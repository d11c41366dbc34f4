"""Output of a process: written with a cap by who has its pipe, read by offset by whoever is asked for it.

An offset counts the bytes of the stream since its start, so it stays true when the file is rotated. The file that is
written now begins at the offset in ``<name>.start`` (0 where there is none); the one before it is ``<name>.1``. Beside
the offset stands which file that is, by its inode: while a file is rotated it is ``<name>.1`` already.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH105

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from trials.files import open_file, write_all, write_atomically

START_BYTES = 64  # of the file that holds a start
LOOKS = 10  # at files that are rotated meanwhile; that takes a trial which prints megabytes between two looks
START_MAX = 1 << 62


class RotatedLog:
    """One stream's files, at most two of ``limit`` bytes each; none where nothing is written."""

    def __init__(self, path: str, *, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._descriptor = -1  # until there is something to write: many trials say nothing on one of their streams
        self._start = 0
        self._is_start_told = True  # in the file that says where this one begins
        self._size = 0
        self._lost = 0

    def write(self, data: bytes) -> None:
        """Append; bytes that cannot be written, as on a full disk, are counted and dropped: the trial must not wait."""
        try:
            if self._descriptor < 0:
                self._start = max(self._start, _Files.of(self._path).start)
                self._descriptor = self._open()
                self._size = os.fstat(self._descriptor).st_size
            self._tell_start()
            if self._lost:
                self._append(f"\n[{self._lost} bytes were lost: they could not be written]\n".encode())
                self._lost = 0
            while len(data) > self._limit - self._size:
                room = max(0, self._limit - self._size)
                self._append(data[:room])
                data = data[room:]
                self._rotate()
            self._append(data)
        except OSError:
            self._lost += len(data)
            if self._descriptor >= 0:
                self._size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _append(self, data: bytes) -> None:
        write_all(self._descriptor, data)
        self._size += len(data)

    def _rotate(self) -> None:
        with suppress(FileNotFoundError):  # the trial has removed it: what comes is written into a new one
            os.replace(self._path, f"{self._path}.1")
        self.close()  # by its number another file may be known soon
        self._start += self._size
        self._size = 0
        self._is_start_told = False
        self._descriptor = self._open()
        self._tell_start()

    def _tell_start(self) -> None:
        """Before anything is written there: it would be read as what came before."""
        if not self._is_start_told:
            inode = os.fstat(self._descriptor).st_ino
            write_atomically(f"{self._path}.start", f"{self._start} {inode}".encode())
            self._is_start_told = True

    def _open(self) -> int:
        # Plain files only, whatever the trial has put there: a pipe would be waited for.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file", self._path)


class _Files:
    """Both files of a stream as they are at one moment; ``start`` is the offset at which the newer one begins."""

    def __init__(self, told: tuple[int, int], current: tuple[int, int], older: tuple[int, int]) -> None:
        """``told``: where a file begins, and its inode, 0 if that is not known; of the others size and inode."""
        self.start, told_inode = told
        (self.size, self.inode), (self.older_size, self.older_inode) = current, older
        if (told_inode and self.older_inode == told_inode != self.inode) or (not told_inode and not self.start):
            self.start += self.older_size  # it was rotated, and where the new one begins is not told yet

    @classmethod
    def of(cls, path: str) -> _Files:
        return cls(_told(path), _size_of(path), _size_of(f"{path}.1"))

    def are(self, other: _Files) -> bool:
        """Whether none was rotated since; they may have grown."""
        mine, its = (self.start, self.inode, self.older_inode), (other.start, other.inode, other.older_inode)
        return mine == its


def _told(path: str) -> tuple[int, int]:
    try:
        descriptor = open_file(f"{path}.start")
    except OSError:
        return 0, 0
    try:
        start, *inode = map(int, os.read(descriptor, START_BYTES).split())
    except (OSError, ValueError):
        return 0, 0
    finally:
        os.close(descriptor)
    return (start, sum(inode[:1])) if 0 <= start <= START_MAX else (0, 0)


def read_log(path: str, *, offset: int, limit: int) -> tuple[bytes, int, int]:
    """(bytes, offset after them, size of the stream). A negative offset counts from the end.

    Bytes before the oldest kept file are gone: reading starts at what there is, so that whoever is given a range
    that begins later than asked for knows what is missing. An offset beyond the end gives nothing, at the end.
    """
    files = _Files.of(path)
    for _ in range(LOOKS):
        data, begin = _read_of(path, files, offset, limit)
        now = _Files.of(path)
        if now.are(files):
            break
        files = now  # what was read may be of another file than it was taken for
    end = begin + len(data)
    return data, end, max(files.start + files.size, end)


def _read_of(path: str, files: _Files, offset: int, limit: int) -> tuple[bytes, int]:
    """And where it begins."""
    size = files.start + files.size
    if offset < 0:
        offset += size
    oldest = files.start - files.older_size if files.start else 0
    begin = min(max(offset, oldest, 0), size)
    data = b""
    if begin < files.start:
        data = _read(f"{path}.1", begin - oldest, limit)
    if len(data) < limit:
        data += _read(path, max(0, begin + len(data) - files.start), limit - len(data))
    return data, begin


def end_of(path: str, limit: int) -> str:
    """So many bytes at most of the end of a log of any length, as text; empty where there is none."""
    data, _, _ = read_log(path, offset=-limit, limit=limit)
    return data.decode(errors="replace").strip()


def _size_of(path: str) -> tuple[int, int]:
    """And its inode, which no file has where it is 0."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0, 0
    return (found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else (0, 0)


def _read(path: str, offset: int, limit: int) -> bytes:
    try:
        descriptor = open_file(path)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, limit, offset)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
