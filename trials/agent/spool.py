"""Reading a spool on from what the service has acknowledged.

Only whole lines that are records count. The sequence of a record is its number among those, which depends on nothing
but the file's content: so any agent, whenever it starts, numbers a spool the same way.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from trials.agent.files import read_json, to_json, write_atomically
from trials.protocol import REPORT_BATCH_BYTES, REPORT_BATCH_LINES, REPORT_LINE_BYTES, read_lines
from trials.spool_writer import STEP_MAX

READ_BYTES = REPORT_BATCH_BYTES
_FLOAT = frozenset({float})
_FIELD_TYPES: dict[str, dict[str, tuple[type, ...]]] = {
    "checkpoint": {
        "step": (int,), "name": (str,), "digest": (str,), "size": (int,), "at": (float, int),
        **dict.fromkeys(("value", "stall_s", "write_s"), (float, int, NoneType)),
    },
    "checkpoint_damaged": {"step": (int,), "digest": (str,), "at": (float, int)},
    "cooperates": {"at": (float, int)},
    "stop_told": {"at": (float, int)},
    "notice": {"code": (str,), "message": (str,), "at": (float, int)},
    "parameters_wanted": {"index": (int,), "at": (float, int)},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records ``first_sequence`` and on; ``ends`` are the offsets after each of them."""

    first_sequence: int
    lines: tuple[str, ...]
    ends: tuple[int, ...]

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + len(self.lines) - 1


def is_record(line: bytes) -> bool:
    """Whether the service could read it. Quick, because every line passes here."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return len(line) <= REPORT_LINE_BYTES and _is_record(record)


def _is_record(record: Any) -> bool:
    if type(record) is not dict:
        return False
    if record.get("kind") == "metric":
        return _is_metric(record)
    types = _FIELD_TYPES.get(str(record.get("kind")))
    return types is not None and all(_fits(record, name, allowed) for name, allowed in types.items())


def _is_metric(record: dict[str, Any]) -> bool:
    """Written out, because nearly every line is one."""
    step, values, at = record.get("step"), record.get("values"), record.get("at")
    return (
        (step is None or (type(step) is int and 0 <= step <= STEP_MAX))
        and type(values) is dict
        and (_FLOAT.issuperset(map(type, values.values())) or all(map(_is_number, values.values())))
        and (type(at) is float or (type(at) is int and 0 <= at <= STEP_MAX))
        and type(record.get("final")) is bool
    )


def _fits(record: dict[str, Any], name: str, allowed: tuple[type, ...]) -> bool:
    value: Any = record.get(name)
    if type(value) not in allowed:
        return False
    return type(value) is not int or 0 <= value <= STEP_MAX


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= STEP_MAX)  # larger ones may be no float


class SpoolReader:
    """One attempt's spool. ``sequence`` and ``offset`` are what the service has acknowledged."""

    def __init__(self, spool: Path, acknowledged: Path) -> None:
        self._path = str(spool)  # as text: looked at very often
        self._acknowledged_path = acknowledged
        known = read_json(str(acknowledged)) or {}
        self.sequence = int(known.get("sequence", 0))
        self.offset = int(known.get("offset", 0))
        self._written = (self.sequence, self.offset)
        self._counted = (self.sequence, self.offset)

    def size(self) -> int:
        try:
            return os.stat(self._path).st_size  # noqa: PTH116
        except OSError:
            return 0

    def next_batch(self) -> Batch:
        """The oldest records that are not acknowledged; empty when there are none."""
        return self._read_from(self.sequence, self.offset)

    def ends_with(self, batch: Batch) -> bool:
        """Whether nothing at all follows the batch in the file."""
        return batch.ends[-1] == self.size()

    def acknowledge(self, batch: Batch, sequence: int) -> None:
        """The service has everything up to ``sequence``, which may be a part of ``batch``."""
        count = min(sequence - batch.first_sequence + 1, len(batch.lines))
        if count > 0:
            self.sequence = batch.first_sequence + count - 1
            self.offset = batch.ends[count - 1]

    def move_to(self, sequence: int) -> None:
        """What the service says it has: more than known here, or less where an older database was put back."""
        if sequence < self.sequence:
            self.sequence, self.offset = 0, 0
        while self.sequence < sequence:
            batch = self.next_batch()
            if not batch.lines:
                return
            self.acknowledge(batch, sequence)

    def last_sequence(self) -> int:
        """Of the last whole record in the file."""
        if self._counted[0] < self.sequence:
            self._counted = (self.sequence, self.offset)
        while True:
            batch = self._read_from(*self._counted)
            if not batch.lines:
                return self._counted[0]
            self._counted = (batch.last_sequence, batch.ends[-1])

    def save(self) -> None:
        """Write down what was acknowledged: the trial looks at it when its spool is long."""
        if self._written != (self.sequence, self.offset):
            write_atomically(str(self._acknowledged_path), to_json({"sequence": self.sequence, "offset": self.offset}))
            self._written = (self.sequence, self.offset)

    def _read_from(self, sequence: int, offset: int) -> Batch:
        lines: list[str] = []
        ends: list[int] = []
        try:
            with open(self._path, "rb") as file:  # noqa: PTH123
                while not lines:
                    file.seek(offset)
                    data = file.read(READ_BYTES)
                    end = data.rfind(b"\n") + 1
                    if end == 0 and len(data) < READ_BYTES:
                        break  # the end of the file, perhaps with a line that is being written
                    # A stretch without any line end is no record, however it goes on.
                    offset = _take_records(data[: end or len(data)], offset, lines, ends)
        except FileNotFoundError:
            pass  # nothing was reported
        return Batch(first_sequence=sequence + 1, lines=tuple(lines), ends=tuple(ends))


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
        text if _is_record(record) and len(line) <= REPORT_LINE_BYTES else None
        for line, text, record in zip(lines, texts, read, strict=True)
    ]
