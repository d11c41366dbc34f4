"""What a coordinator has decided and heard, in order, on the disk before it is acted on."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trials.files import is_still_there, write_all, write_atomically
from trials.learner.coordination.frames import FRAME_BYTES

SHORTEN_BYTES = 64 << 20  # so much behind the snapshot, or as much as that has, and it is written anew as a snapshot
LIMIT_BYTES = 1 << 30  # where it has none
LINE_BYTES = FRAME_BYTES - (1 << 12)  # so that what stands in it can be sent
VERSION = 1
_READ_BYTES = 1 << 20


class JournalError(RuntimeError):
    """It is damaged, too long, or another coordinator's."""


class Journal:
    """Lines of JSON in one file, each on the disk when ``add`` returns. One process at a time has it open.

    A line that was cut off by a kill was never acted on, and is dropped.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise JournalError(f"another coordinator is at work with {self.path}") from None
        self._file = self._opened()
        self._size = self._snapshot_size = 0
        self._is_closed = False

    def lines(self) -> Iterator[dict[str, Any]]:
        """From the beginning; to be gone through once, before the first ``add``. JournalError names a damaged line."""
        number, read, end = 0, 0, 0
        begun: list[bytes] = []  # a snapshot is one line of very many pieces: each is looked at and copied once
        while data := os.pread(self._file, _READ_BYTES, read):
            read += len(data)
            *lines, rest = data.split(b"\n")
            for line in lines:
                number += 1
                whole = b"".join([*begun, line]) if begun else line
                begun.clear()
                end += len(whole) + 1
                yield self._read(whole, number)
            if rest:
                begun.append(rest)
            if read - end > LIMIT_BYTES:
                raise JournalError(f"line {number + 1} of {self.path} is damaged: it has more than {LIMIT_BYTES} bytes")
        os.ftruncate(self._file, end)
        os.fdatasync(self._file)  # whoever wrote the last line may have been killed before it was on the disk
        self._size = end

    def add(self, line: Mapping[str, Any]) -> dict[str, Any]:
        """The line as it will be read. JournalError past LIMIT_BYTES, ValueError past LINE_BYTES, TypeError for what
        JSON cannot say. After whatever else it raises, as of a full disk or a Ctrl-C, nothing of the line is there."""
        self.require_open()
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if len(data) > LINE_BYTES:
            raise ValueError(
                f"{len(data)} bytes for one batch, and {LINE_BYTES} at most can be sent: name files instead"
            )
        if self._size + len(data) > LIMIT_BYTES:
            raise JournalError(
                f"{self.path} has {self._size} bytes: give the chooser state_dict and load_state_dict, so that it can "
                "be shortened"
            )
        try:
            write_all(self._file, data)
            os.fdatasync(self._file)
        except BaseException:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)
        return self._read(data, 0)

    def require_open(self) -> None:
        """JournalError where it was closed: the number of its descriptor may be another file's by now."""
        if self._is_closed:
            raise JournalError(f"{self.path} was closed; make a new coordinator to go on")

    @property
    def is_long(self) -> bool:
        """Whether it should be replaced: seldom enough that a long snapshot is not written for every line."""
        return self._size - self._snapshot_size > max(SHORTEN_BYTES, min(self._snapshot_size, LIMIT_BYTES // 4))

    def replace(self, line: Mapping[str, Any]) -> None:
        """The one line stands for all before; in one step. Where it raises, nothing is added any more to a file that
        may not have the name by now. JournalError past LIMIT_BYTES: then all is as before."""
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if len(data) > LIMIT_BYTES:
            raise JournalError(
                f"a snapshot of {len(data)} bytes for {self.path}, which has {LIMIT_BYTES} at most: let the chooser's "
                "state_dict name files instead"
            )
        try:
            write_atomically(str(self.path), data, durable=True)
            replaced, self._file = self._file, self._opened()
            os.close(replaced)
        except BaseException as error:
            if not isinstance(error, OSError) or not is_still_there(self.path, os.fstat(self._file)):
                self.close()
            raise
        self._size = self._snapshot_size = len(data)

    def close(self) -> None:
        """It may be called again."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._file)
            os.close(self._lock)

    def _opened(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _read(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise JournalError(f"line {number} of {self.path} is damaged: {error}") from error
        if not isinstance(found, dict):
            raise JournalError(f"line {number} of {self.path} is no object")
        return found
