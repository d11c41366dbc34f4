"""Reading a spool on from what the service has acknowledged.

Only whole lines that are records count. The sequence of a record is its number among those, which depends on nothing
but the file's content: so any agent, whenever it starts, numbers a spool the same way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.agent.files import read_json, to_json, write_atomically
from trials.protocol import REPORT_BATCH_BYTES, REPORT_BATCH_LINES, REPORT_LINE_BYTES
from trials.spool_writer import STEP_MAX

READ_BYTES = REPORT_BATCH_BYTES
_FIELD_TYPES: dict[str, dict[str, tuple[type, ...]]] = {
    "metric": {"step": (int, type(None)), "values": (dict,), "at": (float, int), "final": (bool,)},
    "checkpoint": {"step": (int,), "name": (str,), "digest": (str,), "size": (int,), "at": (float, int)},
    "cooperates": {"at": (float, int)},
}


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
    if type(record) is not dict or len(line) > REPORT_LINE_BYTES:
        return False
    types = _FIELD_TYPES.get(str(record.get("kind")))
    return types is not None and all(_fits(record, name, allowed) for name, allowed in types.items())


def _fits(record: dict[str, Any], name: str, allowed: tuple[type, ...]) -> bool:
    value: Any = record.get(name)
    if type(value) not in allowed:
        return False
    if name == "values":
        return all(type(number) is float or _is_moderate(number) for number in value.values())
    return type(value) is not int or 0 <= value <= STEP_MAX


def _is_moderate(number: Any) -> bool:
    return type(number) is int and abs(number) <= STEP_MAX  # larger ones may not even be a float


class SpoolReader:
    """One attempt's spool. ``sequence`` and ``offset`` are what the service has acknowledged."""

    def __init__(self, spool: Path, acknowledged: Path) -> None:
        self._path = spool
        self._acknowledged_path = acknowledged
        known = read_json(str(acknowledged)) or {}
        self.sequence = int(known.get("sequence", 0))
        self.offset = int(known.get("offset", 0))
        self._written = (self.sequence, self.offset)
        self._counted = (self.sequence, self.offset)

    def size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def next_batch(self) -> Batch:
        """The oldest records that are not acknowledged; empty when there are none."""
        return self._read_from(self.sequence, self.offset)

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
            self._written = (self.sequence, self.offset)
            write_atomically(str(self._acknowledged_path), to_json({"sequence": self.sequence, "offset": self.offset}))

    def _read_from(self, sequence: int, offset: int) -> Batch:
        lines: list[str] = []
        ends: list[int] = []
        try:
            with self._path.open("rb") as file:
                while not lines:
                    file.seek(offset)
                    data = file.read(READ_BYTES)
                    end = data.rfind(b"\n") + 1
                    if end == 0 and len(data) < READ_BYTES:
                        break  # the end of the file, perhaps with a line that is being written
                    # A stretch without any line end is no record, however it goes on.
                    _take_records(data[: end or len(data)], offset, lines, ends)
                    offset += end or len(data)
        except FileNotFoundError:
            pass  # nothing was reported
        return Batch(first_sequence=sequence + 1, lines=tuple(lines), ends=tuple(ends))


def _take_records(data: bytes, offset: int, lines: list[str], ends: list[int]) -> None:
    for line in data.splitlines(keepends=True):
        offset += len(line)
        if is_record(line.rstrip(b"\n")):
            lines.append(line[:-1].decode())
            ends.append(offset)
            if len(lines) == REPORT_BATCH_LINES:
                return
