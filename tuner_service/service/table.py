"""The trials of an experiment column by column: thousands of them in one answer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from tuner_service.domain.trial import TrialStatus
from tuner_service.ports import TrialEntry
from tuner_service.service.views import moment, plain

_RUNNING = (TrialStatus.RUNNING.value, TrialStatus.STOPPING.value)
_text = lru_cache(maxsize=1_000)(json.dumps)


def table_json(entries: Sequence[TrialEntry], columns: Sequence[str], *, now: float) -> str:
    """A JSON object with an array for each of ``columns`` (TABLE_COLUMNS has them), all of one length.

    A cell is what the same field of a trial's view is. Written by hand: as objects, ten thousand trials cost the
    service ten times as much.
    """
    cells = [f'"{column}":[' + ",".join([_CELLS[column](entry, now) for entry in entries]) + "]" for column in columns]
    return "{" + ",".join(cells) + "}"


def _number(value: float | None) -> str:
    if value is None:
        return "null"
    return repr(value) if math.isfinite(value) else _text(plain(value))


def _moment(at: float | None) -> str:
    return "null" if at is None else f'"{moment(at)}"'


def _object(text: str) -> str:
    if "NaN" in text or "Infinity" in text:  # of which strict JSON knows nothing
        return json.dumps(plain(json.loads(text)))
    return text


def _running_s(entry: TrialEntry, now: float) -> str:
    if entry.status in _RUNNING and entry.started_at and not entry.running_s:
        return repr(round(max(0.0, now - entry.started_at), 3))
    return repr(round(entry.running_s, 3))


_CELLS: Mapping[str, Callable[[TrialEntry, float], str]] = {
    "number": lambda e, _: str(e.number),
    "status": lambda e, _: _text(e.status),
    "reason": lambda e, _: _text(e.reason),
    "value": lambda e, _: _number(e.value),
    "step": lambda e, _: str(e.step) if e.step is not None else "null",
    "attempts": lambda e, _: str(e.attempts),
    "started_at": lambda e, _: _moment(e.started_at),
    "ended_at": lambda e, _: _moment(e.ended_at),
    "running_s": _running_s,
    "parameters": lambda e, _: _object(e.parameters),
}
TABLE_COLUMNS = tuple(_CELLS)
