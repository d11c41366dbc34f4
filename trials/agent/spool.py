"""Reading a spool on from what the service has acknowledged.

Only whole lines that are records count. The sequence of a record is its number among those, which depends on nothing
but the file's content: so any agent, whenever it starts, numbers a spool the same way.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from trials.files import is_in_the_way, open_file, read_json, to_json, write_atomically
from trials.wire.limits import REPORT_BATCH_BYTES, REPORT_BATCH_LINES, SPOOL_LIMIT_BYTES, STEP_MAX
from trials.wire.lines import fault_of
from trials.wire.plain import read_lines

READ_BYTES = REPORT_BATCH_BYTES
PASSED_OVER_AT_ONCE = 16 * READ_BYTES  # without a record among them; then others have their turn
UNTAKEN_MOST_BYTES = 2 * SPOOL_LIMIT_BYTES  # report() waits long before; more is not of it
REMEMBERED_BYTES = 64  # before what was taken last: they stay what they were


class SpoolDamagedError(Exception):
    """It is not the file it was, or not one at all; the text says what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records ``first_sequence`` and on; ``ends`` are the offsets after each of them.

    ``passed_over``: the offset after what is no record, before the first of them. ``goes_on``: there are none, because
    there is so much else; there may be some behind it.
    """

    first_sequence: int
    lines: tuple[str, ...]
    ends: tuple[int, ...]
    passed_over: int = 0
    goes_on: bool = False

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + len(self.lines) - 1


def is_record(line: bytes) -> bool:
    """Whether the service could take it."""
    try:
        record = json.loads(line.decode())  # of bytes it would take other encodings, too
    except (ValueError, RecursionError):
        return False
    return not fault_of(record, len(line))


class SpoolReader:
    """One attempt's spool. ``sequence`` and ``offset`` are what the service has acknowledged.

    A trial only ever appends to it. Where it did anything else reports may be missing, which SpoolDamagedError says.
    """

    def __init__(self, spool: Path, acknowledged: Path) -> None:
        self._path = str(spool)  # as text: looked at very often
        self._acknowledged_path = acknowledged
        known = read_json(str(acknowledged)) or {}
        self.sequence, self.offset = 0, 0
        sequence, offset = _count(known.get("sequence")), _count(known.get("offset"))
        if sequence is not None and offset is not None and self._is_line_end(offset):
            self.sequence, self.offset = sequence, offset
        self._written = (self.sequence, self.offset)
        self._counted = (self.sequence, self.offset)
        self._file: tuple[int, int] | None = None  # which one it is, once there is one
        self._largest = 0
        self._before = b""  # what stands right before ``offset``
        self._is_closed = False

    def close(self) -> None:
        """From now on it has nothing that was not acknowledged."""
        self._is_closed = True

    def is_taken(self) -> bool:
        """Whether the service has all that was ever seen in it."""
        return self.offset >= self._largest

    def size(self) -> int:
        """Of the file; SpoolDamagedError where it is another one than before, or was longer."""
        if self._is_closed:
            return self.offset
        try:
            found = os.lstat(self._path)
        except OSError as error:
            if self._file is not None and (isinstance(error, FileNotFoundError) or is_in_the_way(error)):
                raise SpoolDamagedError(f"reports.jsonl was removed: {error.strerror}") from error
            return self._largest
        self._check(found)
        return found.st_size

    def _check(self, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            raise SpoolDamagedError("reports.jsonl is no plain file")
        if self._file not in {None, (found.st_dev, found.st_ino)}:
            raise SpoolDamagedError("reports.jsonl was replaced by another file")
        if found.st_size < max(self._largest, self.offset):
            before = max(self._largest, self.offset)
            raise SpoolDamagedError(f"reports.jsonl was cut from {before} bytes to {found.st_size}")
        if found.st_size - self.offset > UNTAKEN_MOST_BYTES:
            raise SpoolDamagedError(f"reports.jsonl has {found.st_size} bytes, far more than report() writes")
        self._file, self._largest = (found.st_dev, found.st_ino), found.st_size

    def next_batch(self) -> Batch:
        """The oldest records that are not acknowledged; empty when there are none."""
        batch = self._read_from(self.sequence, self.offset)
        if not batch.lines and batch.passed_over > self.offset:
            self._move(self.sequence, batch.passed_over)
        return batch

    def ends_with(self, batch: Batch) -> bool:
        """Whether nothing at all follows the batch in the file."""
        return batch.ends[-1] == self.size()

    def acknowledge(self, batch: Batch, sequence: int) -> None:
        """The service has everything up to ``sequence``, which may be a part of ``batch``."""
        count = min(sequence - batch.first_sequence + 1, len(batch.lines))
        if count > 0:
            self._move(batch.first_sequence + count - 1, batch.ends[count - 1])

    def _move(self, sequence: int, offset: int) -> None:
        self.sequence, self.offset, self._before = sequence, offset, b""

    async def move_to(self, sequence: int) -> bool:
        """What the service says it has: more than known here, or less where an older database was put back.

        False where the file does not hold as many. It may be long: others have their turn.
        """
        if sequence < self.sequence:
            self._move(0, 0)
        while self.sequence < sequence:
            batch = self.next_batch()
            if not batch.lines and not batch.goes_on:
                return False
            self.acknowledge(batch, sequence)
            await asyncio.sleep(0)
        return True

    async def count(self) -> None:
        """Look through the file, which may be long, and let others have their turn; then last_sequence() knows."""
        while self._count_on():
            await asyncio.sleep(0)

    def last_sequence(self) -> int:
        """Of the last whole record in the file."""
        while self._count_on():
            pass
        return self.sequence if self._is_closed else self._counted[0]

    def _count_on(self) -> bool:
        """Look at the next records that were not counted; False where there are none."""
        if self._is_closed:
            return False
        if self._counted[0] < self.sequence:
            self._counted = (self.sequence, self.offset)
        batch = self._read_from(*self._counted)
        if not batch.lines and not batch.goes_on:
            return False
        self._counted = (batch.last_sequence, batch.ends[-1] if batch.lines else batch.passed_over)
        return True

    def save(self) -> None:
        """Write down what was acknowledged: the trial looks at it when its spool is long."""
        if self._written != (self.sequence, self.offset) and not self._is_closed:
            write_atomically(str(self._acknowledged_path), to_json({"sequence": self.sequence, "offset": self.offset}))
            self._written = (self.sequence, self.offset)

    def _read_from(self, sequence: int, offset: int) -> Batch:
        lines: list[str] = []
        ends: list[int] = []
        begin = offset
        try:
            descriptor = -1 if self._is_closed else open_file(self._path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._file is None:
                descriptor = -1  # nothing was reported
            elif isinstance(error, FileNotFoundError) or is_in_the_way(error):
                raise SpoolDamagedError(f"reports.jsonl cannot be read: {error.strerror}") from error
            else:
                raise
        if descriptor >= 0:
            try:
                self._check(os.fstat(descriptor))
                self._check_before(descriptor)
                offset = _read_records(descriptor, offset, lines, ends)
            finally:
                os.close(descriptor)
        return Batch(
            first_sequence=sequence + 1,
            lines=tuple(lines),
            ends=tuple(ends),
            passed_over=begin if lines else offset,
            goes_on=not lines and offset - begin >= PASSED_OVER_AT_ONCE,
        )

    def _check_before(self, descriptor: int) -> None:
        """What was taken is in its place: else the file was emptied, and written anew up to here."""
        begin = max(0, self.offset - REMEMBERED_BYTES)
        found = os.pread(descriptor, self.offset - begin, begin)
        if self._before and found != self._before:
            raise SpoolDamagedError(f"reports.jsonl was changed before byte {self.offset}, to where it was taken")
        self._before = found

    def _is_line_end(self, offset: int) -> bool:
        """Whether a line ends at ``offset`` of the file."""
        if offset == 0:
            return True
        try:
            descriptor = open_file(self._path)
        except OSError:
            return False
        try:
            return os.pread(descriptor, 1, offset - 1) == b"\n"
        finally:
            os.close(descriptor)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= STEP_MAX else None


def _read_records(descriptor: int, offset: int, lines: list[str], ends: list[int]) -> int:
    """Add the first records at or behind ``offset``; the offset after what was looked at."""
    begin = offset
    while not lines and offset - begin < PASSED_OVER_AT_ONCE:
        data = os.pread(descriptor, READ_BYTES, offset)
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) < READ_BYTES:
            break  # the end of the file, perhaps with a line that is being written
        # A stretch without any line end is no record, however it goes on.
        offset = _take_records(data[: end or len(data)], offset, lines, ends)
    return offset


def _take_records(data: bytes, offset: int, lines: list[str], ends: list[int]) -> int:
    """Add the records among the first lines of ``data``, which begins at ``offset``; the offset after these lines."""
    end = offset + len(data)
    found = data.split(b"\n", REPORT_BATCH_LINES)
    del found[REPORT_BATCH_LINES:]
    if not found[-1]:
        found.pop()  # what follows the last line end
    for line, text in zip(found, _records_of(found), strict=True):
        offset += len(line) + 1
        if text is not None:
            lines.append(text)
            ends.append(offset)
    return min(offset, end)


def _records_of(lines: list[bytes]) -> list[str | None]:
    """The text of each line that is a record. Read in one go where all are, which is nearly always so."""
    try:
        texts = [line.decode() for line in lines]
    except UnicodeDecodeError:
        read = None
    else:
        read = read_lines(texts)
    if read is None:
        return [line.decode() if is_record(line) else None for line in lines]
    return [
        None if fault_of(record, len(line)) else text for line, text, record in zip(lines, texts, read, strict=True)
    ]
