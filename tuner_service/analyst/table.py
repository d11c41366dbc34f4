"""The trials of an experiment column by column: thousands of them in one answer, or only what has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner_service.analyst.columns import codes_json, is_numeric, joined, mixed_json, numbers_json, objects_json
from tuner_service.analyst.kept_trials import KeptTrials
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.trial import TrialStatus
from tuner_service.ports import TrialEntry
from tuner_service.service.cursors import make_cursor
from tuner_service.service.questions import EXACT_DIGITS, TABLE_CELLS, TABLE_WIDTH
from tuner_service.service.views import moment

SCREEN_DIGITS = 6
EVERY = "*"
_RUNNING = (TrialStatus.RUNNING.value, TrialStatus.STOPPING.value)
_MILLISECONDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuestion:
    """``since``: a revision, after which only what has changed is told. ``now``: for what counts by itself."""

    columns: tuple[str, ...]
    statuses: tuple[str, ...] = ()
    after: int = 0
    limit: int
    since: str | None = None
    digits: int = SCREEN_DIGITS
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    entries: Sequence[TrialEntry]
    places: Sequence[int]
    digits: int
    now: float
    began: float


def table_json(trials: KeptTrials, asked: TableQuestion, *, began: float) -> str:
    """A JSON object; ``began`` is when the experiment was created, from where ``started_s`` and ``ended_s`` count.

    Written by hand: as objects, ten thousand trials cost ten times as much.
    """
    names = _expanded(trials, asked.columns)
    changed = None if asked.since is None else trials.since(asked.since)
    places: Sequence[int] = range(len(trials.entries)) if changed is None else changed
    if asked.after or asked.statuses:
        entries, statuses = trials.entries, frozenset(asked.statuses)
        places = [
            place
            for place in places
            if entries[place].number > asked.after and (not statuses or entries[place].status in statuses)
        ]
    limit = max(1, min(asked.limit, TABLE_CELLS // max(1, len(names))))
    shown = places[:limit]
    following = trials.entries[shown[-1]].number if len(places) > limit else None
    rows = _Rows(
        entries=[trials.entries[place] for place in shown],
        places=shown,
        digits=asked.digits,
        now=asked.now,
        began=began,
    )
    columns = {name: _column(trials, rows, name) for name in names}
    return joined(
        {
            "revision": json.dumps(trials.revision),
            "since": json.dumps(None if changed is None else asked.since),
            "trials": str(len(trials.entries)),
            "columns": joined(columns),
            "next": json.dumps(None if following is None else make_cursor(str(following))),
        }
    )


# ── columns ─────────────────────────────────────────────────────────────────────────────────────
Cells = Callable[[_Rows], str]


def _numbers(of: Callable[[TrialEntry], float | None]) -> Cells:
    return lambda rows: numbers_json([of(entry) for entry in rows.entries], rows.digits)


def _words(of: Callable[[TrialEntry], str]) -> Cells:
    return lambda rows: codes_json([of(entry) for entry in rows.entries])


def _moments(of: Callable[[TrialEntry], float | None]) -> Cells:
    def text(entry: TrialEntry) -> str:
        at = of(entry)
        return "null" if at is None else f'"{moment(at)}"'

    return lambda rows: "[" + ",".join(map(text, rows.entries)) + "]"


def _seconds(of: Callable[[TrialEntry], float | None]) -> Cells:
    """Since the experiment was created: to the millisecond, however many digits that is."""

    def cells(rows: _Rows) -> str:
        moments = map(of, rows.entries)
        found = [None if at is None else round(at - rows.began, _MILLISECONDS) for at in moments]
        return numbers_json(found, EXACT_DIGITS)

    return cells


def _running_s(rows: _Rows) -> str:
    def seconds() -> Iterator[float]:
        for entry in rows.entries:
            if entry.status in _RUNNING and entry.started_at and not entry.running_s:
                yield max(0.0, rows.now - entry.started_at)
            else:
                yield entry.running_s

    return numbers_json([round(one, _MILLISECONDS) for one in seconds()], EXACT_DIGITS)


_FIXED: Mapping[str, Cells] = {
    "number": _numbers(lambda entry: entry.number),
    "status": _words(lambda entry: entry.status),
    "reason": _words(lambda entry: entry.reason),
    "value": _numbers(lambda entry: entry.value),
    "step": _numbers(lambda entry: entry.step),
    "attempts": _numbers(lambda entry: entry.attempts),
    "started_at": _moments(lambda entry: entry.started_at),
    "ended_at": _moments(lambda entry: entry.ended_at),
    "started_s": _seconds(lambda entry: entry.started_at),
    "ended_s": _seconds(lambda entry: entry.ended_at),
    "running_s": _running_s,
    "source": _words(lambda entry: entry.source),
    "retry_of": _numbers(lambda entry: entry.retry_of),
    "parameters": lambda rows: objects_json([entry.parameters for entry in rows.entries]),
}
TABLE_COLUMNS = tuple(_FIXED)
GROUPS = ("parameters", "final", "last")  # whose members are columns, too: parameters.lr, final.loss, last.loss


def column_fault(name: str) -> str:
    """Why ``name`` is no column, or "". Which members a group has is known when the trials are."""
    group, dot, member = name.partition(".")
    if name in _FIXED or (group in GROUPS and dot and member):
        return ""
    members = ", ".join(f"{group}.NAME" for group in GROUPS)
    return f"{name!r:.100} is no column; known: {', '.join(_FIXED)}, {members}, and .* for all of them"


def _column(trials: KeptTrials, rows: _Rows, name: str) -> str:
    fixed = _FIXED.get(name)
    if fixed is not None:
        return fixed(rows)
    # Of the whole column, so that a cell has the same form in whatever part of it is asked for.
    values = _members(trials, name)
    return mixed_json([values[place] for place in rows.places], rows.digits, numeric=is_numeric(values))


def _members(trials: KeptTrials, name: str) -> list[Any]:
    group, _, member = name.partition(".")
    return [given.get(member) for given in _group(trials, group)]


def _group(trials: KeptTrials, group: str) -> Sequence[Mapping[str, Any]]:
    match group:
        case "parameters":
            return trials.parameters()
        case "final":
            return [json.loads(entry.final) for entry in trials.entries]
        case _:
            return [json.loads(entry.last_metrics) for entry in trials.entries]


def _expanded(trials: KeptTrials, columns: Sequence[str]) -> list[str]:
    """With the members of a group in place of its ``.*``, in the order in which trials brought them."""
    names: dict[str, None] = {}
    for column in columns:
        group, _, member = column.partition(".")
        if member == EVERY:
            found: dict[str, None] = {}
            for given in _group(trials, group):
                found |= dict.fromkeys(given)
            names |= dict.fromkeys(f"{group}.{name}" for name in found)
        else:
            names[column] = None
    if len(names) > TABLE_WIDTH:
        message = f"names {len(names)} columns; at most {TABLE_WIDTH} are told at once"
        raise InputError([Fault(pointer="/query/columns", message=message)])
    return list(names)
