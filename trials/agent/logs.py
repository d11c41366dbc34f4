"""Output of a trial: written with a cap by the supervisor, read by offset by the agent.

An offset counts the bytes of the stream since its start, so it stays true when the file is rotated. The file that is
written now begins at the offset in ``<name>.start`` (0 where there is none); the one before it is ``<name>.1``.
"""
# Without pathlib, which would add a third to the start of a supervisor.
# ruff: noqa: PTH105, PTH116, PTH123

from __future__ import annotations

import os

from trials.agent.files import write_all, write_atomically


class RotatedLog:
    """One stream's files, at most two of ``limit`` bytes each; none where nothing is written."""

    def __init__(self, path: str, *, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._descriptor = -1  # until there is something to write: many trials say nothing on one of their streams
        self._start = 0
        self._size = 0
        self._lost = 0

    def write(self, data: bytes) -> None:
        """Append; bytes that a full disk refuses are counted and dropped, because the trial must not wait for them."""
        try:
            if self._descriptor < 0:
                self._start = _start_of(self._path)
                self._descriptor = self._open()
                self._size = os.fstat(self._descriptor).st_size
            if self._lost:
                self._append(f"\n[{self._lost} bytes were lost: the disk was full]\n".encode())
                self._lost = 0
            while len(data) > self._limit - self._size:
                room = self._limit - self._size
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
            os.close(self._descriptor)

    def _append(self, data: bytes) -> None:
        write_all(self._descriptor, data)
        self._size += len(data)

    def _rotate(self) -> None:
        os.replace(self._path, f"{self._path}.1")
        os.close(self._descriptor)
        self._start += self._size
        self._descriptor = self._open()
        self._size = 0
        write_atomically(f"{self._path}.start", str(self._start).encode())

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _start_of(path: str) -> int:
    try:
        with open(f"{path}.start", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def read_log(path: str, *, offset: int, limit: int) -> tuple[bytes, int, int]:
    """(bytes, offset after them, size of the stream). A negative offset counts from the end.

    Bytes before the oldest kept file are gone: reading starts at what there is.
    """
    start = _start_of(path)
    current, older = _size_of(path), _size_of(f"{path}.1")
    size = start + current
    if offset < 0:
        offset += size
    offset = min(max(offset, start - older if start else 0, 0), size)
    data = b""
    if offset < start:
        data = _read(f"{path}.1", offset - (start - older), limit)
    if len(data) < limit:
        data += _read(path, max(0, offset + len(data) - start), limit - len(data))
    return data, offset + len(data), max(size, offset + len(data))


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _read(path: str, offset: int, limit: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(limit)
    except OSError:
        return b""
