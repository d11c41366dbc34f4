"""The sequence of commits: each has a number in the whole database, and says what it touched.

The number is given out in the transaction that it names, so that it stands for something if and only if that is on the
disk. What the newest of them touched is kept, for whoever was away for a while; the row of the last one always is.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from tuner_service.dispatcher.changes import Touched
from tuner_service.storage import tables
from tuner_service.storage.mapping import to_json
from tuner_service.storage.prepared import Prepared
from tuner_service.storage.prepared_writes import execute_many

KEPT = 5_000  # commits whose rows are there at least
_DROPPED_AT_ONCE = 256  # so many more at most

_c = tables.commits
_INSERT = insert(_c)
_SPAN = Prepared(select(func.min(_c.c.sequence).label("oldest"), func.max(_c.c.sequence).label("newest")))
_AFTER = Prepared(select(_c.c.touched).where(_c.c.sequence > bindparam("after")).order_by(_c.c.sequence))


class CommitSequence:
    """Of the one writer, which asks for the newest once and then counts."""

    def __init__(self) -> None:
        self._newest: int | None = None

    def add(self, connection: Connection, touched: Touched) -> int:
        """The sequence of the transaction that ``connection`` is in. Call ``forget`` where that is rolled back."""
        if self._newest is None:
            self._newest = newest_of(connection)
        self._newest = sequence = self._newest + 1
        execute_many(connection, _INSERT, [{"sequence": sequence, "touched": _to_text(touched)}])
        if sequence % _DROPPED_AT_ONCE == 0:
            connection.execute(delete(_c).where(_c.c.sequence <= sequence - KEPT))
        return sequence

    def forget(self) -> None:
        """Nobody knows whether the last one was taken: the rows say it."""
        self._newest = None


def newest_of(connection: Connection) -> int:
    """0 where nothing was committed yet."""
    ((_, newest),) = _SPAN.tuples(connection)
    return int(newest or 0)


def touched_after(connection: Connection, sequence: int) -> Touched | None:
    """What the commits after that one touched, all together; None where not all of them are known any more."""
    ((oldest, newest),) = _SPAN.tuples(connection)
    if not (oldest or 1) - 1 <= sequence <= (newest or 0):
        return None
    try:
        touched = Touched()
        for (text,) in _AFTER.tuples(connection, after=sequence):
            touched.add(touched_in(text))
    except (ValueError, TypeError, AttributeError):
        return None  # a damaged row says nothing; `tuner doctor` names it
    return touched


def _to_text(touched: Touched) -> str:
    plain: dict[str, Any] = {
        "trials": {name: None if numbers is None else sorted(numbers) for name, numbers in touched.trials.items()},
        "checkpoints": {name: sorted(numbers) for name, numbers in touched.checkpoints.items()},
        "search_spaces": sorted(touched.search_spaces),
        "removed": sorted(touched.removed),
        "quota_groups": touched.quota_groups,
    }
    return to_json({name: value for name, value in plain.items() if value})


def touched_in(text: str) -> Touched:
    """What a row says; ValueError, TypeError or AttributeError for one that is damaged."""
    row = json.loads(text)
    return Touched(
        trials={name: None if numbers is None else set(numbers) for name, numbers in row.get("trials", {}).items()},
        checkpoints={name: set(numbers) for name, numbers in row.get("checkpoints", {}).items()},
        search_spaces=set(row.get("search_spaces", ())),
        removed=set(row.get("removed", ())),
        quota_groups=bool(row.get("quota_groups", False)),
    )
