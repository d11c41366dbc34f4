"""Rows of which only what changed is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, create_engine, select
from sqlalchemy.pool import StaticPool

from tuner_service.storage.row_updates import ROWS_REMEMBERED, RowUpdates
from tuner_service.storage.tables import Number

TABLE = Table(
    "things",
    MetaData(),
    Column("kind", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("color", Text),
    Column("size", Integer),
    Column("share", Number),
)


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        TABLE.metadata.create_all(connection)
        yield connection
    engine.dispose()


@pytest.fixture
def written(connection: Connection) -> list[str]:
    """The statements that write, as the database executes them."""
    statements: list[str] = []

    def note(statement: str) -> None:
        if not statement.startswith("SELECT"):
            statements.append(statement)

    driver: Any = connection.connection.driver_connection
    driver.set_trace_callback(note)
    return statements


def a_thing(number: int = 1, **changed: Any) -> dict[str, Any]:
    return {"kind": "a", "number": number, "color": "red", "size": 1, "share": 0.5, **changed}


def encode(thing: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    return thing if before is None else {name: value for name, value in thing.items() if value != before[name]}


def things(*found: dict[str, Any]) -> dict[Any, dict[str, Any]]:
    return {thing["number"]: thing for thing in found}


def rows(connection: Connection) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(select(TABLE).order_by(TABLE.c.number)).mappings()]


def test_rows_are_inserted_and_then_made_equal(connection: Connection) -> None:
    updates = RowUpdates(TABLE, encode)
    updates.put(connection, things(a_thing(1), a_thing(2)))

    updates.put(connection, things(a_thing(1, size=5), a_thing(2, color=None, size=7), a_thing(3)))

    assert rows(connection) == [a_thing(1, size=5), a_thing(2, color=None, size=7), a_thing(3)]


def test_only_columns_that_changed_are_written(connection: Connection, written: list[str]) -> None:
    updates = RowUpdates(TABLE, encode)
    updates.put(connection, things(a_thing()))
    written.clear()

    updates.put(connection, things(a_thing(size=2)))

    (statement,) = written
    assert "size" in statement
    assert "color" not in statement


def test_a_row_that_did_not_change_is_not_written(connection: Connection, written: list[str]) -> None:
    updates = RowUpdates(TABLE, encode)
    updates.put(connection, things(a_thing()))
    written.clear()

    updates.put(connection, things(a_thing()))

    assert not written


def test_a_value_that_changes_and_changes_back_is_written_each_time(connection: Connection) -> None:
    updates = RowUpdates(TABLE, encode)
    first, second = a_thing(size=1), a_thing(size=2)
    for thing in (first, second, first, first, second):
        updates.put(connection, things(thing))
        assert rows(connection) == [thing]


def test_a_row_that_another_life_of_the_process_wrote_is_replaced_whole(connection: Connection) -> None:
    RowUpdates(TABLE, encode).put(connection, things(a_thing(size=9)))

    RowUpdates(TABLE, encode).put(connection, things(a_thing(size=2)))

    assert rows(connection) == [a_thing(size=2)]


def test_after_a_rollback_nothing_is_taken_for_written(connection: Connection) -> None:
    updates = RowUpdates(TABLE, encode)
    savepoint = connection.begin_nested()
    updates.put(connection, things(a_thing()))
    savepoint.rollback()
    updates.forget()

    updates.put(connection, things(a_thing()))

    assert rows(connection) == [a_thing()]


def test_only_the_rows_touched_last_are_remembered(connection: Connection, written: list[str]) -> None:
    updates = RowUpdates(TABLE, encode)
    updates.put(connection, things(*(a_thing(number) for number in range(ROWS_REMEMBERED + 1))))
    written.clear()

    updates.put(connection, things(a_thing(0)))
    updates.put(connection, things(a_thing(ROWS_REMEMBERED)))

    assert len(written) == 1, "the first one was forgotten, and is written whole again"
    assert len(rows(connection)) == ROWS_REMEMBERED + 1
