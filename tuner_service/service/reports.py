"""Spool lines become records: parsed once, here, in the order they were written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from trials.wire.encoding import record_of
from trials.wire.messages import DeleteCheckpoint, ToAgent
from trials.wire.plain import ProtocolError, read_lines
from trials.wire.records import ExitRecord
from trials.wire.texts import valid_json
from tuner_service.dispatcher.commands import Record, RejectedRecord

CLOCK_OFF_S = 1.0  # by less than that the clocks of two machines may always differ
LATEST_S = 2.0**33  # of a moment that a clock may tell: the year 2242
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


def in_own_time(records: tuple[Record, ...], ahead_s: float, *, at: float) -> tuple[Record, ...]:
    """The records of a node whose clock is ``ahead_s`` ahead of this machine's, with the times of this one.

    A script may have written its spool itself: what no clock tells is ``at``, when the records came.
    """
    off_s = 0.0 if abs(ahead_s) < CLOCK_OFF_S else ahead_s
    if not off_s and all(isinstance(r, RejectedRecord) or 0.0 <= r.at <= LATEST_S for r in records):
        return records
    return tuple(r if isinstance(r, RejectedRecord) else replace(r, at=_own(r.at, off_s, at)) for r in records)


def _own(told: float, off_s: float, at: float) -> float:
    return told - off_s if 0.0 <= told <= LATEST_S else at


def in_nodes_time(message: ToAgent, ahead_s: float) -> ToAgent:
    """What is said to a node whose clock is ``ahead_s`` ahead of this machine's.

    When a checkpoint was saved is compared there with the time of a file, and is known here to a second at best:
    without it the file is removed, with one that is too early it would stay for ever.
    """
    if isinstance(message, DeleteCheckpoint) and abs(ahead_s) >= CLOCK_OFF_S:
        return replace(message, saved_at=None)
    return message


def exit_in_own_time(record: ExitRecord, ahead_s: float) -> ExitRecord:
    """Likewise."""
    if abs(ahead_s) < CLOCK_OFF_S:
        return record
    began = None if record.started_at is None else record.started_at - ahead_s
    return replace(record, started_at=began, ended_at=None if record.ended_at is None else record.ended_at - ahead_s)
