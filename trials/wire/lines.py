"""What is a record of a spool: the one rule for who writes a line, who sends it and who stores it.

Standard library only and quick to import, because the parent of every trial imports it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from trials.wire.limits import METRIC_NAME_LIMIT, METRICS_LIMIT, REPORT_LINE_BYTES, STEP_MAX

_DIGEST = re.compile("[0-9a-f]{64}")
JSON_LEVELS = 50
_FLOAT = frozenset({float})
_encode = json.JSONEncoder(separators=(",", ":")).encode


class NoRecordError(ValueError):
    """A line that no later step would take; its text says which field is wrong."""


def record_line(record: Mapping[str, Any]) -> bytes:
    """``record`` as a spool line, without its newline. NoRecordError where it is none, whatever its length."""
    line = _encode(record).encode()
    if fault := fault_of(record, min(len(line), REPORT_LINE_BYTES)):
        raise NoRecordError(fault)
    return line


def metric_line(*, step: int | None, values: Mapping[str, float], at: float, final: bool) -> bytes:
    """As ``record_line`` of a metric, for every report; ``at`` is of a clock, and so finite.

    Only what may be anything goes through the encoder: that is a quarter quicker than to encode all of it.
    """
    at_step, ends = "null" if step is None else step, "true" if final else "false"
    line = f'{{"kind":"metric","step":{at_step},"values":{_encode(values)},"at":{at!r},"final":{ends}}}'.encode()
    if fault := _metric_fault(step, values, at, final=final, size=len(line)):
        raise NoRecordError(fault)
    return line


def fault_of(record: Any, size: int) -> str:
    """Why this is no record, read from a line of ``size`` bytes; "" where it is one.

    Quick for metrics, because every report passes here three times.
    """
    if type(record) is not dict:
        return f"a record is an object, not {type(record).__name__}"
    if size > REPORT_LINE_BYTES:
        return f"a line of {size} bytes; at most {REPORT_LINE_BYTES} are taken"
    kind = record.get("kind")
    if kind == "metric":
        step, values, at = record.get("step"), record.get("values"), record.get("at")
        return _metric_fault(step, values, at, final=record.get("final", False), size=size)
    checks = _CHECKS.get(kind) if type(kind) is str else None
    if checks is None:
        return f"unknown kind {kind!r}; known: metric, {', '.join(_CHECKS)}"[:METRIC_NAME_LIMIT]
    for name, (fits, needed) in checks.items():
        if not fits(record.get(name)):
            return f"{kind}.{name}: {needed} is needed, not {_shown(record.get(name))}"
    return ""


def _metric_fault(step: Any, values: Any, at: Any, *, final: Any, size: int) -> str:
    """Written out, because nearly every line is one."""
    if type(values) is not dict or not 0 < len(values) <= METRICS_LIMIT:
        return f"metric.values: an object with 1 to {METRICS_LIMIT} metrics is needed"
    if type(final) is not bool or (step is None) is not final:
        return "metric: either a step, or final"
    if step is not None and (type(step) is not int or not 0 <= step <= STEP_MAX):
        return f"metric.step: {_WHOLE[1]} is needed, not {_shown(step)}"
    if type(at) is not float and not _is_number(at):
        return f"metric.at: seconds since the epoch are needed, not {_shown(at)}"
    # Nearly always floats with short names: no name is longer than the line that it stands in.
    if not _FLOAT.issuperset(map(type, values.values())):
        for name, value in values.items():
            if not _is_number(value):
                return f"metric.values.{name[:METRIC_NAME_LIMIT]}: {_NUMBER[1]} is needed, not {_shown(value)}"
    if size > METRIC_NAME_LIMIT and len(longest := max(values, key=len)) > METRIC_NAME_LIMIT:
        return f"metric.values: the name {longest[:50]!r}… has more than {METRIC_NAME_LIMIT} characters"
    return ""


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= STEP_MAX)  # larger ones may be no float


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= STEP_MAX


def _is_file_name(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= METRIC_NAME_LIMIT and "/" not in value and value not in {".", ".."}


def _is_json_object(value: Any) -> bool:
    """Of which every other program reads the same."""
    return type(value) is dict and _levels(value, JSON_LEVELS) and _is_finite(value)


def _levels(value: Any, left: int) -> bool:
    items = value.values() if type(value) is dict else value if type(value) is list else ()
    return left > 0 and all(_levels(item, left - 1) for item in items)


def _is_finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.50}" if isinstance(value, int | float | str) else type(value).__name__


_WHOLE = (_is_whole, "a whole number from 0 to 2**53")
_NUMBER = (_is_number, "a float or a whole number up to 2**53")
_PERHAPS = (lambda value: value is None or _is_number(value), "null, a float or a whole number up to 2**53")
_TEXT = (lambda value: type(value) is str, "text")
_HEX = (lambda value: type(value) is str and _DIGEST.fullmatch(value) is not None, "64 hex digits")
_OBJECT = (_is_json_object, "an object of JSON, with finite numbers and at most 50 levels")
_CHECKS: dict[str, dict[str, tuple[Any, str]]] = {
    "checkpoint": {
        "step": _WHOLE,
        "name": (_is_file_name, "a plain file name"),
        "digest": _HEX,
        "size": _WHOLE,
        "at": _NUMBER,
        "value": _PERHAPS,
        "stall_s": _PERHAPS,
        "write_s": _PERHAPS,
    },
    "checkpoint_damaged": {"step": _WHOLE, "digest": _TEXT, "at": _NUMBER},
    "cooperates": {"at": _NUMBER},
    "stop_told": {"at": _NUMBER},
    "parameters_wanted": {
        "index": (lambda value: _is_whole(value) and value > 0, "a whole number from 1 to 2**53"),
        "at": _NUMBER,
    },
    "parameters_missing": {"parameters": _OBJECT, "beside": _OBJECT, "at": _NUMBER},
    "notice": {"code": _TEXT, "message": _TEXT, "at": _NUMBER},
}
