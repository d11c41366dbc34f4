"""Spool lines become records: parsed once, here, in the order they were written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from trials.wire.encoding import record_of
from trials.wire.plain import ProtocolError, read_lines
from trials.wire.texts import valid_json
from tuner_service.dispatcher.commands import Record, RejectedRecord

ERROR_LIMIT = 500  # characters kept of why a line was not understood


def parse_lines(lines: Iterable[str]) -> tuple[Record, ...]:
    """One record for each line; a line that makes no sense becomes a RejectedRecord and keeps its sequence."""
    lines = tuple(lines)
    found = read_lines(lines)
    if found is None:  # some line is no JSON: each is looked at by itself
        return tuple(_parse(line) for line in lines)
    return tuple(_record(data, line) for data, line in zip(found, lines, strict=True))


def _parse(line: str) -> Record:
    try:
        data = json.loads(valid_json(line))
    except (ValueError, RecursionError) as exc:
        return RejectedRecord(error=str(exc)[:ERROR_LIMIT])
    return _record(data, line)


def _record(data: Any, line: str) -> Record:
    try:
        return record_of(data, len(line))
    except ProtocolError as exc:
        return RejectedRecord(error=str(exc)[:ERROR_LIMIT])
