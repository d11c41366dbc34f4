"""Spool lines become records: parsed once, here, in the order they were written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from trials.wire.encoding import decode_record
from trials.wire.limits import METRIC_NAME_LIMIT, METRICS_LIMIT
from trials.wire.plain import ProtocolError, read_lines
from trials.wire.records import CheckpointRecord, MetricRecord, ParametersWantedRecord
from trials.wire.texts import valid_json
from tuner_service.dispatcher.commands import Record, RejectedRecord

STEP_BOUND = 2**62  # steps beyond are refused: the database's integers end at 2**63
DIGEST = re.compile("[0-9a-f]{64}")
_FLOAT = frozenset({float})
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
        if type(data) is dict and data.get("kind") == "metric":
            return _metric(data)  # by far the most frequent; the general decoder is five times slower
        record = decode_record(line)
        if isinstance(record, ParametersWantedRecord) and not 0 < record.index < STEP_BOUND:
            raise ProtocolError("parameters_wanted.index: an integer from 1 to 2**62 is needed")
        return _bounded(record) if isinstance(record, CheckpointRecord) else record
    except (ProtocolError, ValueError, OverflowError, RecursionError) as exc:
        return RejectedRecord(error=str(exc)[:ERROR_LIMIT])


def _bounded(record: CheckpointRecord) -> CheckpointRecord:
    """The record, or ProtocolError where a value fits no column or names no file of the attempt's own folder."""
    if not -STEP_BOUND < record.step < STEP_BOUND or not 0 <= record.size < STEP_BOUND:
        raise ProtocolError("checkpoint: step and size must be integers below 2**62, and the size not negative")
    if not DIGEST.fullmatch(record.digest):
        raise ProtocolError("checkpoint.digest: 64 hex digits are needed")
    if not 0 < len(record.name) <= METRIC_NAME_LIMIT or "/" in record.name or record.name in {".", ".."}:
        raise ProtocolError(f"checkpoint.name: {record.name[:50]!r} is no plain file name")
    return record


def _metric(data: dict[str, Any]) -> MetricRecord:
    values, step, final = data.get("values"), data.get("step"), data.get("final", False)
    if type(values) is not dict or not values or len(values) > METRICS_LIMIT:
        raise ProtocolError(f"metric.values: an object with 1 to {METRICS_LIMIT} metrics is needed")
    if type(final) is not bool or (step is None) is not final:
        raise ProtocolError("metric: either a step, or final")
    if step is not None and (type(step) is not int or not -STEP_BOUND < step < STEP_BOUND):
        raise ProtocolError(f"metric.step: an integer below 2**62 is needed, not {step!r}")
    at = data.get("at")
    if not isinstance(at, float | int):
        raise ProtocolError("metric.at: seconds since the epoch are needed")
    # Nearly always floats with short names, which are taken as they are.
    if not _FLOAT.issuperset(map(type, values.values())) or len(max(values, key=len)) > METRIC_NAME_LIMIT:
        values = {k: _value(k, v) for k, v in values.items()}
    return MetricRecord(step=step, values=values, at=float(at), final=final)


def _value(name: str, value: Any) -> float:
    if type(value) is float and len(name) <= METRIC_NAME_LIMIT:
        return value
    if len(name) > METRIC_NAME_LIMIT:
        raise ProtocolError(f"metric.values: the name {name[:50]!r}… has more than {METRIC_NAME_LIMIT} characters")
    if type(value) is not int:
        raise ProtocolError(f"metric.values.{name}: a number is needed, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ProtocolError(f"metric.values.{name}: too large for a float") from None
