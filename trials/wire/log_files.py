"""Log files of bounded size that several processes append to.

Whoever was started with such a file as its standard error holds it open, so it cannot be renamed: they would write on
to what has another name then. It is copied to ``NAME.1`` and emptied, which those that append do not notice.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

LOG_BYTES = 8 << 20  # of the newest; then it becomes NAME.1, that NAME.2, and so on
OLDER_LOGS = 3  # that are kept beside it
KEPT_BYTES = 256 << 10  # of its end, where the disk has no room for a copy
COPIED_AT_ONCE = 1 << 20
LOOK_EVERY_S = 1.0


class BoundedLog:
    """One file. ``look`` costs a system call while it is short; of two that look at once, one is to be the owner.

    What another process writes between the copy and the emptying, some microseconds, is lost.
    """

    def __init__(self, file: Path, *, limit: int = LOG_BYTES, older: int = OLDER_LOGS) -> None:
        self._file, self._limit, self._older = file, limit, older

    def look(self) -> bool:
        """Whether it was too long, and is empty now. It does not raise: a log is no reason to end."""
        try:
            if self._file.stat().st_size < self._limit:
                return False
            with self._file.open("rb+") as log:
                self._empty(log)
        except OSError:
            return False
        return True

    def _empty(self, log: IO[bytes]) -> None:
        for number in range(self._older, 0, -1):
            with suppress(OSError):
                self._at(number).replace(self._at(number + 1))
        with suppress(OSError):
            self._at(self._older + 1).unlink()
        end = b""
        try:
            self._copy(log)
        except OSError:  # no room: what is over the limit goes, and its end stays
            with suppress(OSError):
                self._at(1).unlink()
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - KEPT_BYTES))
            end = log.read(KEPT_BYTES)
            end = end[end.find(b"\n") + 1 :]
        log.truncate(0)
        if end:
            with self._file.open("ab") as emptied:
                emptied.write(end)

    def _copy(self, log: IO[bytes]) -> None:
        descriptor = os.open(self._at(1), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as copy:
            while piece := log.read(COPIED_AT_ONCE):
                copy.write(piece)

    def _at(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{number}")


@contextmanager
def kept_bounded(files: Sequence[Path]) -> Iterator[None]:
    """Looks at them meanwhile: each stays at the limit and what is written to it in a second."""
    logs, ended = [BoundedLog(file) for file in files], threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_EVERY_S):
            for log in logs:
                log.look()

    thread = threading.Thread(target=look, name="logs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def generations(file: Path) -> list[Path]:
    """The file and the older ones that there are, oldest first."""
    numbered = re.compile(re.escape(file.name) + r"\.([1-9][0-9]{0,3})")
    named = ((numbered.fullmatch(path.name), path) for path in file.parent.glob(f"{file.name}.*"))
    older = sorted(((int(found[1]), path) for found, path in named if found), reverse=True)
    return [path for _, path in older] + ([file] if file.exists() else [])
