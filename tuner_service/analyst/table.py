"""The trials of an experiment column by column: thousands of them in one answer, or only what has changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import Any

from tuner_service.analyst.columns import codes_json, is_numeric, joined, moments, numbers, objects
from tuner_service.analyst.kept_texts import KeptTexts
from tuner_service.analyst.kept_trials import KeptTrials
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.running_time import running_time_s
from tuner_service.ports import TrialEntry
from tuner_service.service.cursors import make_cursor
from tuner_service.service.questions import EXACT_DIGITS, TABLE_CELLS, TABLE_WIDTH

SCREEN_DIGITS = 6
EVERY = "*"
_MILLISECONDS = 3
SILENT = "silent_s"  # a column that counts by itself for every trial that has reported and not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuestion:
    """``since``: a revision, after which only what has changed is told. ``now``: for what counts by itself.

    ``members``: so many at most for the ``.*`` of a group, the first that trials brought; None: all, or an InputError.
    """

    columns: tuple[str, ...]
    statuses: tuple[str, ...] = ()
    after: int = 0
    limit: int
    since: str | None = None
    digits: int = SCREEN_DIGITS
    members: int | None = None
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """``places``: of the trials that are shown; ``began``: when the experiment was created."""

    trials: KeptTrials
    texts: KeptTexts
    places: Sequence[int]
    digits: int
    now: float
    began: float
    groups: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def are_all(self) -> bool:
        return len(self.places) == len(self.trials.entries)

    def group(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Its members of every trial, read once for all columns of an answer."""
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = _group(self.trials, name)
        return found


def table_json(trials: KeptTrials, texts: KeptTexts, asked: TableQuestion, *, began: float) -> list[bytes]:
    """The parts of a JSON object, to be joined once: they may be long.

    ``began`` is when the experiment was created, from where ``started_s`` and ``ended_s`` count.

    Written by hand: as objects, ten thousand trials cost ten times as much.
    """
    changed = None if asked.since is None else trials.since(asked.since)
    places: Sequence[int] = range(len(trials.entries)) if changed is None else changed
    if asked.after or asked.statuses:
        entries, statuses = trials.entries, frozenset(asked.statuses)
        places = [
            place
            for place in places
            if entries[place].number > asked.after and (not statuses or entries[place].status in statuses)
        ]
    rows = _Rows(trials=trials, texts=texts, places=places, digits=asked.digits, now=asked.now, began=began)
    names = _expanded(rows, asked.columns, asked.members)
    limit = max(1, min(asked.limit, TABLE_CELLS // max(1, len(names))))
    rows = replace(rows, places=places[:limit])
    following = trials.entries[rows.places[-1]].number if len(places) > limit else None
    head = joined(
        {
            "revision": json.dumps(trials.revision),
            "since": json.dumps(None if changed is None else asked.since),
            "trials": str(len(trials.entries)),
            "next": json.dumps(None if following is None else make_cursor(str(following))),
        }
    )
    parts = [head.removesuffix("}").encode(), b',"columns":{']
    for place, name in enumerate(names):
        parts.append(f"{',' if place else ''}{json.dumps(name)}:".encode())
        parts += _column(rows, name)
    return [*parts, b"}}"]


# ── columns ─────────────────────────────────────────────────────────────────────────────────────
Entries = Sequence[TrialEntry]
Cells = Callable[[Entries, _Rows], str]


def _numbers(of: Callable[[TrialEntry], float | None]) -> Cells:
    return lambda entries, rows: numbers(list(map(of, entries)), rows.digits)


def _moments(of: Callable[[TrialEntry], float | None]) -> Cells:
    return lambda entries, _: moments(list(map(of, entries)))


def _seconds(of: Callable[[TrialEntry], float | None]) -> Cells:
    """Since the experiment was created: to the millisecond, however many digits that is."""

    def cells(entries: Entries, rows: _Rows) -> str:
        found = [None if at is None else round(at - rows.began, _MILLISECONDS) for at in map(of, entries)]
        return numbers(found, EXACT_DIGITS)

    return cells


def _running_s(entries: Entries, rows: _Rows) -> str:
    found = [running_time_s(entry.running_s, entry.running_since, rows.now) for entry in entries]
    return numbers([round(one, _MILLISECONDS) for one in found], EXACT_DIGITS)


def _silent_s(entries: Entries, rows: _Rows) -> str:
    told = (entry.reported_at for entry in entries)
    found = [None if at is None else round(max(0.0, rows.now - at), _MILLISECONDS) for at in told]
    return numbers(found, EXACT_DIGITS)


def _counts_by_itself(name: str, entry: TrialEntry) -> bool:
    """Whether its cell of that column is another one a moment later, though nothing has happened."""
    if name == "running_s":
        return entry.running_since is not None
    return name == SILENT and entry.reported_at is not None


_WORDS = {"status": attrgetter("status"), "reason": attrgetter("reason"), "source": attrgetter("source")}
_CELLS: Mapping[str, Cells] = {
    "number": _numbers(attrgetter("number")),
    "value": _numbers(attrgetter("value")),
    "last_value": _numbers(attrgetter("last_value")),
    "step": _numbers(attrgetter("step")),
    "attempts": _numbers(attrgetter("attempts")),
    "started_at": _moments(attrgetter("started_at")),
    "ended_at": _moments(attrgetter("ended_at")),
    "started_s": _seconds(attrgetter("started_at")),
    "ended_s": _seconds(attrgetter("ended_at")),
    "running_s": _running_s,
    "reported_at": _moments(attrgetter("reported_at")),
    SILENT: _silent_s,
    "retry_of": _numbers(attrgetter("retry_of")),
    "parameters": lambda entries, _: objects([entry.parameters for entry in entries]),
}
TABLE_COLUMNS = (
    "number", "status", "reason", "value", "last_value", "step", "attempts", "started_at", "ended_at", "started_s",
    "ended_s", "running_s", "reported_at", "silent_s", "source", "retry_of", "parameters",
)  # fmt: skip
GROUPS = ("parameters", "final", "last")  # whose members are columns, too: parameters.lr, final.loss, last.loss


def column_fault(name: str) -> str:
    """Why ``name`` is no column, or "". Which members a group has is known when the trials are."""
    group, dot, member = name.partition(".")
    if name in TABLE_COLUMNS or (group in GROUPS and dot and member):
        return ""
    members = ", ".join(f"{group}.NAME" for group in GROUPS)
    return f"{name!r:.100} is no column; known: {', '.join(TABLE_COLUMNS)}, {members}, and .* for all of them"


def _column(rows: _Rows, name: str) -> list[bytes]:
    if name in _WORDS:
        entries = rows.trials.entries
        shown = entries if rows.are_all else [entries[place] for place in rows.places]
        return [codes_json(list(map(_WORDS[name], shown))).encode(errors="replace")]
    cells = _CELLS.get(name)
    return _member(rows, name) if cells is None else _fixed(rows, name, cells)


def _fixed(rows: _Rows, name: str, cells: Cells) -> list[bytes]:
    entries = rows.trials.entries
    if not rows.are_all:
        return [f"[{cells([entries[place] for place in rows.places], rows)}]".encode(errors="replace")]

    def may_keep(start: int, end: int) -> bool:
        return not any(_counts_by_itself(name, entry) for entry in entries[start:end])

    return rows.texts.array((name, rows.digits), lambda start, end: cells(entries[start:end], rows), may_keep=may_keep)


def _member(rows: _Rows, name: str) -> list[bytes]:
    """Numbers as an array, where the whole column has nothing else; else codes.

    Judged by the whole column, so that a cell has the same form in whatever part of it is asked for.
    """
    group, _, member = name.partition(".")
    values = [given.get(member) for given in rows.group(group)]
    shown = values if rows.are_all else [values[place] for place in rows.places]
    if not is_numeric(values):
        return [codes_json(shown).encode(errors="replace")]
    if not rows.are_all:
        return [f"[{numbers(shown, rows.digits)}]".encode()]
    return rows.texts.array(
        (name, rows.digits), lambda start, end: numbers(values[start:end], rows.digits), may_keep=lambda *_: True
    )


def _group(trials: KeptTrials, group: str) -> Sequence[Mapping[str, Any]]:
    match group:
        case "parameters":
            return trials.parameters()
        case "final":
            return [json.loads(entry.final) for entry in trials.entries]
        case _:
            return [json.loads(entry.last_metrics) for entry in trials.entries]


def _expanded(rows: _Rows, columns: Sequence[str], members: int | None) -> list[str]:
    """With the members of a group in place of its ``.*``, in the order in which trials brought them."""
    names: dict[str, None] = {}
    for column in columns:
        group, _, member = column.partition(".")
        if member == EVERY:
            found: dict[str, None] = {}
            for given in rows.group(group):
                if not given.keys() <= found.keys():
                    found |= dict.fromkeys(given)
            names |= dict.fromkeys(f"{group}.{name}" for name in islice(found, members))
        else:
            names[column] = None
    if len(names) > TABLE_WIDTH:
        message = f"names {len(names)} columns; at most {TABLE_WIDTH} are told at once"
        raise InputError([Fault(pointer="/query/columns", message=message)])
    return list(names)
