"""The trials of an experiment column by column: thousands of them in one answer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from trials.wire.texts import valid_json
from tuner_service.domain.trial import TrialStatus
from tuner_service.ports import TrialEntry
from tuner_service.service.views import moment, plain

_RUNNING = (TrialStatus.RUNNING.value, TrialStatus.STOPPING.value)
_Fields = Mapping[str, Sequence[Any]]  # of the entries, by name: what one field is in each of them
_NO_FIELDS: _Fields = dict.fromkeys(TrialEntry._fields, ())
_text = lru_cache(maxsize=1_000)(json.dumps)


def table_json(entries: Sequence[TrialEntry], columns: Sequence[str], *, now: float) -> str:
    """A JSON object with an array for each of ``columns`` (TABLE_COLUMNS has them), all of one length.

    A cell is what the same field of a trial's view is. Written by hand: as objects, ten thousand trials cost the
    service ten times as much.
    """
    fields = dict(zip(TrialEntry._fields, zip(*entries, strict=True), strict=True)) if entries else _NO_FIELDS
    cells = [f'"{column}":[' + ",".join(_CELLS[column](fields, now)) + "]" for column in columns]
    return "{" + ",".join(cells) + "}"


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    return repr(value) if math.isfinite(value) else _text(plain(value))


def _moment(at: float | None) -> str:
    return "null" if at is None else f'"{moment(at)}"'


def _object(text: str) -> str:
    if "NaN" in text or "Infinity" in text:  # of which strict JSON knows nothing
        text = json.dumps(plain(json.loads(text)))
    return valid_json(text)  # a row of an earlier version may hold text that is none


def _running_s(fields: _Fields, now: float) -> Iterator[str]:
    for status, started_at, running_s in zip(fields["status"], fields["started_at"], fields["running_s"], strict=True):
        if status in _RUNNING and started_at and not running_s:
            yield repr(round(max(0.0, now - started_at), 3))
        else:
            yield repr(round(running_s, 3))


def _each(name: str, text: Callable[[Any], str]) -> Callable[[_Fields, float], Iterable[str]]:
    return lambda fields, _: map(text, fields[name])


_CELLS: Mapping[str, Callable[[_Fields, float], Iterable[str]]] = {
    "number": _each("number", str),
    "status": _each("status", _text),
    "reason": _each("reason", _text),
    "value": _each("value", _number),
    "step": _each("step", lambda step: str(step) if step is not None else "null"),
    "attempts": _each("attempts", str),
    "started_at": _each("started_at", _moment),
    "ended_at": _each("ended_at", _moment),
    "running_s": _running_s,
    "parameters": _each("parameters", _object),
}
TABLE_COLUMNS = tuple(_CELLS)
