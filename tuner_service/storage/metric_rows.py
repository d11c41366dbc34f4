"""How the rows of metrics reach the database: the only ones that come in thousands with one step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, insert

from tuner_service.dispatcher.changes import MetricRow
from tuner_service.storage import mapping, tables

METRICS_AT_ONCE = 100  # rows of one statement
_KEY = attrgetter("experiment_id", "number", "attempt", "sequence")


class MetricWriter(Protocol):
    def save(self, connection: Connection, metrics: Sequence[MetricRow]) -> None:
        """Add the rows, inside the transaction of ``connection``. None of them is there yet."""

    def add(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Likewise, as ``mapping.metric_in`` gives them. StorageError: a trial of theirs is not there."""


class MetricInserts:
    """Handed to the driver as tuples, many in one statement."""

    def __init__(self, engine: Engine) -> None:
        self._one = str(insert(tables.metrics).compile(dialect=engine.dialect, column_keys=mapping.METRIC_COLUMNS))
        head, values = self._one.split(" VALUES ")
        self._many = f"{head} VALUES {', '.join([values] * METRICS_AT_ONCE)}"

    def save(self, connection: Connection, metrics: Sequence[MetricRow]) -> None:
        # By key, which is the order of the table: those of many trials take a fifth less than as they came.
        self.add(connection, [mapping.metric_in(m) for m in sorted(metrics, key=_KEY)])

    def add(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        # Row by row, the driver would let go of the interpreter for each, and wait for it as often.
        single = len(rows) % METRICS_AT_ONCE
        for start in range(single, len(rows), METRICS_AT_ONCE):
            values = tuple(chain.from_iterable(rows[start : start + METRICS_AT_ONCE]))
            connection.exec_driver_sql(self._many, values)
        if single:
            connection.exec_driver_sql(self._one, rows[:single])
