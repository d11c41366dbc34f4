"""Appending records to the spool: one line, one write, no lock, no network.

Also imported by the supervisor, so it imports little.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from trials.wire.limits import METRICS_LIMIT, REPORT_LINE_BYTES, SPOOL_LIMIT_BYTES

ACKNOWLEDGED_BYTES = 4 << 10  # of the file that says what was taken
LIMIT_CHECK_BYTES = 1 << 20  # the limit is looked at after so many bytes, not with every record
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
FULL_DISK_PAUSE_S = 0.1
FULL_DISK_TIMEOUT_S = 600.0  # append() raises the disk's error after waiting so long for room


class ReportTooLargeError(ValueError):
    """One report has more bytes than a record may."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"this report has {size} bytes, and at most {REPORT_LINE_BYTES} can be sent; "
            "report fewer metrics at a time, and write large results to a file"
        )
        self.size = size


def _say(text: str) -> None:
    import sys

    try:
        sys.stderr.write(text)
    except OSError:
        return  # it is on the same disk


class TooManyMetricsError(ReportTooLargeError):
    """One report has more metrics than a record may."""

    def __init__(self, count: int) -> None:
        ValueError.__init__(
            self,
            f"this report has {count} metrics, and at most {METRICS_LIMIT} can be sent, of {REPORT_LINE_BYTES} bytes "
            "together; report fewer metrics at a time, and write large results to a file",
        )
        self.size = count


class ReportsLostError(RuntimeError):
    """Reports that were made are not in their file any more."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} was cut, removed or replaced while the trial ran: reports that were made are lost; "
            "look for what in the script writes or deletes files of the attempt's folder"
        )


def _whole_lines(data: bytes, written: int) -> int:
    """Up to where ``data``, of which so much was written, need not be written again; its last line may lack its end."""
    return written if data[written : written + 1] == b"\n" else data.rfind(b"\n", 0, written) + 1


def _nothing() -> None:
    """Whoever has no other descriptors of the process need not know."""


class SpoolWriter:
    """Writes to one spool. Several processes may write to the same one: each line is one append.

    ``closed_by_script`` is called where the script has closed the descriptor, as one does that becomes a daemon: the
    spool is opened again, and the old number, which may be a file of the script's now, is left alone.
    """

    def __init__(
        self,
        path: str,
        *,
        acknowledged: str | None = None,
        limit: int = SPOOL_LIMIT_BYTES,
        closed_by_script: Callable[[], None] = _nothing,
    ) -> None:
        self._path = path
        self._closed_by_script = closed_by_script
        self._descriptor = os.open(path, _FLAGS | os.O_CREAT, 0o600)
        found = os.fstat(self._descriptor)
        self._file = (found.st_dev, found.st_ino)
        self._least = found.st_size  # the file only ever grows
        self._acknowledged = acknowledged
        self._limit = limit
        self._unchecked = LIMIT_CHECK_BYTES
        self._whole = -1  # the size of the file where it is known to end with a whole line
        self._full = False

    def append(self, *lines: bytes) -> None:
        """The whole lines are in the file when this returns; a process that dies after it loses nothing.

        ReportsLostError where the file is not what it was.
        """
        for line in lines:
            if len(line) > REPORT_LINE_BYTES:
                raise ReportTooLargeError(len(line))
        if not lines:
            return
        self._be_open()
        data = b"\n".join(lines) + b"\n"
        # Taken before: another thread, or a signal handler of this one, may append before this line is counted.
        least = self._least + len(data)
        data, written = self._write(data)
        self._unchecked += written
        while written < len(data):
            # Another thread or process may have closed off the half of a line and gone on: it is written anew, whole.
            data, written = self._write(data[_whole_lines(data, written) :])
            self._unchecked += written
        self._check(least)

    def check(self) -> None:
        """ReportsLostError where what was written is not in the file any more, or the file is no spool any more."""
        self._be_open()
        self._check(self._least)

    def _be_open(self) -> None:
        if self._is_own():
            return
        self._closed_by_script()
        try:
            self._descriptor = os.open(self._path, _FLAGS)
        except FileNotFoundError as exc:
            raise ReportsLostError(self._path) from exc
        if not self._is_own():
            raise ReportsLostError(self._path)

    def _is_own(self) -> bool:
        try:
            found = os.fstat(self._descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def _check(self, least: int) -> None:
        found = os.fstat(self._descriptor)
        if found.st_size < least or not found.st_nlink:
            raise ReportsLostError(self._path)
        self._least = found.st_size

    def append_some(self, data: bytes) -> int:
        """For one that must not wait: so many bytes of these whole lines found room. The rest is to be next.

        The half of a line does not count: it is closed off, and the line is to be written anew.
        """
        least = self._least
        try:
            given, written = self._put(data)
        except OSError as error:
            import errno

            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            return 0
        self._unchecked += written
        self._check(least + written)
        return max(0, _whole_lines(given, written) - (len(given) - len(data)))

    def is_full(self) -> bool:
        """Whether more than the limit is unacknowledged; looks at the files only now and then."""
        if self._unchecked >= LIMIT_CHECK_BYTES or self._full:
            self._be_open()
            self._unchecked = 0
            self._full = os.fstat(self._descriptor).st_size - self._acknowledged_bytes() > self._limit
        return self._full

    def sync(self) -> None:
        """Everything appended is on the disk when this returns."""
        self._be_open()
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._is_own():
            os.close(self._descriptor)

    def _write(self, data: bytes) -> tuple[bytes, int]:
        """As ``_put``, once there is room for something."""
        deadline = 0.0
        while True:
            try:
                return self._put(data)
            except OSError as error:
                import errno

                if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                    raise
                if not deadline:
                    deadline = time.monotonic() + FULL_DISK_TIMEOUT_S
                    _say("report() waits: the disk is full\n")
                if time.monotonic() > deadline:
                    raise
            time.sleep(FULL_DISK_PAUSE_S)

    def _put(self, data: bytes) -> tuple[bytes, int]:
        """One append: what was given to the file, and how much of that found room.

        Half a line at the end of the file, of whichever writer, is closed off before; the agent drops what is no
        record. It may have come at any time: others that find the disk full have halves of theirs.
        """
        size = os.fstat(self._descriptor).st_size
        is_known = size in {0, self._whole} or data.startswith(b"\n")
        if not is_known and os.pread(self._descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data
        written = os.write(self._descriptor, data)
        self._whole = size + written if written == len(data) else -1
        return data, written

    def _acknowledged_bytes(self) -> int:
        if self._acknowledged is None:
            return 0
        try:
            # A script may have put anything there: O_NOFOLLOW refuses a symbolic link, O_NONBLOCK waits for no pipe.
            descriptor = os.open(self._acknowledged, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return 0  # nothing was acknowledged yet
        try:
            return int(json.loads(os.read(descriptor, ACKNOWLEDGED_BYTES))["offset"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return 0
        finally:
            os.close(descriptor)
