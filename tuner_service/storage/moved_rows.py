"""Rows of metrics that leave the database and come back, some at a time: what else is committed waits for one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Delete, delete, func, select, tuple_

from tuner_service.archive_ports import Held, MetricKey, MovedMetrics, Portion
from tuner_service.domain.errors import StorageError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.trial import Checkpoint
from tuner_service.storage import mapping, tables
from tuner_service.storage.faults import translated
from tuner_service.storage.reading import by_index
from tuner_service.storage.sql_queries import SqlQueries

_m = tables.metrics
BYTES_AT_ONCE = 16 << 20  # of checkpoints in the database that are removed together; a larger one alone
METRIC_KEY = ("number", "attempt", "sequence")
_KEY = tuple_(*(_m.c[name] for name in METRIC_KEY))
# With the keys of their rows; trials last, which have the others' rows with them.
OF_AN_EXPERIMENT = (
    (tables.journal, ("line",)),
    (tables.decisions, ("line",)),
    (tables.attempts, ("number", "attempt")),
    (tables.trials, ("number",)),
)
PLAIN_COLUMNS = mapping.METRIC_COLUMNS[1:]  # of a row of a known experiment
Begin = Callable[[], AbstractContextManager[Connection]]


class Vacuum(Protocol):
    def __call__(self, *, rows_went: bool) -> bool: ...


class MovedRows:
    """Implements ``archive_ports.MovedRows``. ``add`` writes rows that are not there yet; ``vacuum`` gives a little
    back, and is told whether rows went since it was done; ``stop`` ends it."""

    def __init__(
        self,
        queries: SqlQueries,
        begin: Begin,
        *,
        add: Callable[[Connection, Sequence[tuple[Any, ...]]], None],
        vacuum: Vacuum,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._queries, self._begin, self._add, self._vacuum, self._stop = queries, begin, add, vacuum, stop
        self._rows_went = False

    def clear(self, moved: MovedMetrics, *, after: MetricKey, limit: int) -> Portion:
        with self._queries.reading() as connection:
            keys = connection.execute(_page(moved, after, limit, (_m.c.number, _m.c.attempt, _m.c.sequence))).all()
        if not keys:
            return Portion(size=0, last=after)
        last: MetricKey = (keys[-1][0], keys[-1][1], keys[-1][2])
        statement = cleared(moved, after=after, last=last)
        with translated(), self._begin() as connection:
            by_index(connection)  # a server takes a part of a key's range for a large one, and reads the whole table
            connection.execute(statement)
        self._rows_went = True
        return Portion(size=len(keys), last=last)

    def restore(self, experiment_id: ExperimentId, rows: Sequence[Sequence[Any]]) -> None:
        stored = [
            (experiment_id, *row, mapping.float_in(objective), mapping.float_in(at)) for *row, objective, at in rows
        ]
        with translated(), self._begin() as connection:
            self._add(connection, stored)

    def last_restored(self, moved: MovedMetrics) -> MetricKey | None:
        query = select(_m.c.number, _m.c.attempt, _m.c.sequence).where(*_of(moved, (0, 0, 0)))
        backwards = query.order_by(_m.c.number.desc(), _m.c.attempt.desc(), _m.c.sequence.desc()).limit(1)
        with self._queries.reading() as connection:
            row = connection.execute(backwards).first()
        return None if row is None else (row[0], row[1], row[2])

    def has_more_than(self, experiment_id: ExperimentId, count: int) -> bool:
        name = mapping.text_in(experiment_id)  # of whoever asks
        many = [
            select(table.c[key[0]]).where(table.c.experiment_id == name).order_by(*(table.c[part] for part in key))
            for table, key in ((_m, METRIC_KEY), (tables.journal, ("line",)), (tables.trials, ("number",)))
        ]
        with self._queries.reading() as connection:
            return any(connection.execute(query.offset(count).limit(1)).first() is not None for query in many)

    def checkpoints(self, experiment_id: ExperimentId, *, limit: int) -> list[Checkpoint]:
        c, b = tables.checkpoints, tables.blobs
        columns = (c.c.number, c.c.attempt, c.c.sequence, c.c.digest, func.coalesce(b.c.size, 0))
        query = select(*columns).outerjoin(b, b.c.digest == c.c.digest).where(c.c.experiment_id == experiment_id)
        with self._queries.reading() as connection:
            rows = connection.execute(query.order_by(c.c.number, c.c.attempt, c.c.sequence).limit(limit)).all()
        sizes = accumulate(row[-1] for row in rows)
        found = [row for row, size in zip(rows, sizes, strict=True) if size <= BYTES_AT_ONCE] or rows[:1]
        unread = {"experiment_id": experiment_id, "nonce": "", "step": 0, "name": "", "size": 0, "inline": False}
        return [
            Checkpoint(number=number, attempt=attempt, sequence=sequence, digest=digest, **unread)  # type: ignore[arg-type]  # of many types
            for number, attempt, sequence, digest, _ in found
        ]

    def remove(self, experiment_id: ExperimentId, *, limit: int) -> int:
        for table, names in OF_AN_EXPERIMENT:
            key = [table.c[name] for name in names]
            query = select(*key).where(table.c.experiment_id == experiment_id).order_by(*key).limit(limit)
            with self._queries.reading() as connection:
                keys = connection.execute(query).all()
            if not keys:
                continue
            with translated(), self._begin() as connection:
                by_index(connection)
                upto = tuple_(*key) <= tuple_(*keys[-1])
                connection.execute(delete(table).where(table.c.experiment_id == experiment_id, upto))
            self._rows_went = True
            return len(keys)
        return 0

    def held(self, experiment_id: ExperimentId) -> Held:
        a, c = tables.attempts, tables.checkpoints
        reports = select(func.sum(a.c.acknowledged)).where(a.c.experiment_id == experiment_id)
        size = select(func.sum(c.c.size)).where(c.c.experiment_id == experiment_id)
        with self._queries.reading() as connection:
            return Held(int(connection.scalar(reports) or 0), int(connection.scalar(size) or 0))

    def give_back(self, *, is_asked_for: bool = False) -> bool:
        """``is_asked_for``: by a person, who waits for it."""
        with translated():
            more = self._vacuum(rows_went=self._rows_went or is_asked_for)
        self._rows_went = self._rows_went and more
        return more

    def stop_giving_back(self) -> None:
        self._stop()


def page_of(connection: Connection, moved: MovedMetrics, *, after: MetricKey, limit: int) -> list[tuple[Any, ...]]:
    """Rows of PLAIN_COLUMNS with the same values whichever database they come from, in the order of their key."""
    rows = connection.execute(_page(moved, after, limit, tuple(_m.c[name] for name in PLAIN_COLUMNS)))
    return [(*row[:6], bool(row[6]), None if row[7] is None else float(row[7]), float(row[8])) for row in rows]


def _page(moved: MovedMetrics, after: MetricKey, limit: int, columns: tuple[Any, ...]) -> Any:
    return select(*columns).where(*_of(moved, after)).order_by(*_KEY.clauses).limit(limit)


def cleared(moved: MovedMetrics, *, after: MetricKey, last: MetricKey) -> Delete:
    """Of what ``_of`` names, up to ``last``.

    That alone ends it: beside a bound of the number, SQLite would not look for the end of the key in its index, and
    every step would read all the rows that are left.
    """
    return delete(_m).where(*_behind(moved, after), tuple_(*_KEY.clauses) <= tuple_(*last))


def _of(moved: MovedMetrics, after: MetricKey) -> list[ColumnElement[bool]]:
    return [_m.c.number <= moved.last, *_behind(moved, after)]


def _behind(moved: MovedMetrics, after: MetricKey) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [
        _m.c.experiment_id == moved.experiment_id,
        tuple_(*_KEY.clauses) > tuple_(*max(after, (moved.first, 0, 0))),
    ]
    return found if moved.upto is None else [*found, _m.c.line <= moved.upto]


def read_only_moved_rows(queries: SqlQueries) -> MovedRows:
    """Beside an active service."""

    def begin() -> AbstractContextManager[Connection]:
        raise StorageError("the database was opened to be read only")

    return MovedRows(queries, begin, add=lambda _, __: None, vacuum=lambda **_: False)
