"""Commits are noticed, whoever made them; where they cannot be, nobody is told that there were none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tuner_service.storage.sqlite_watch import CommitWatch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE numbers (number INTEGER)")
    return path


@pytest.fixture
def watch(path: Path) -> Iterator[CommitWatch]:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)

    with closing(CommitWatch(connect)) as watch:
        yield watch


def write(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO numbers VALUES (1)")


def test_a_commit_of_a_stranger_is_another_version(path: Path, watch: CommitWatch) -> None:
    versions = [watch.version(), watch.version()]
    assert versions[0] == versions[1]
    for _ in range(5):
        write(path)
        versions.append(watch.version())

    assert len(set(versions)) == 6


def test_what_is_rolled_back_may_stay_the_same_version_and_what_follows_does_not(
    path: Path, watch: CommitWatch
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO numbers VALUES (1)")
        connection.rollback()
    before = watch.version()
    write(path)

    assert watch.version() != before


def test_a_version_never_comes_again_from_another_connection(path: Path, watch: CommitWatch) -> None:
    seen = set()
    for _ in range(3):
        seen.add(watch.version())
        write(path)
        seen.add(watch.version())
        watch.close()

    assert len(seen) == 6


def test_a_database_that_cannot_be_read_has_no_version(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"file:{tmp_path}/none.db?mode=ro", uri=True)

    assert CommitWatch(connect).version() is None


def test_a_log_that_was_moved_into_the_database_hides_no_commit(path: Path, watch: CommitWatch) -> None:
    versions = []
    for _ in range(3):
        versions.append(watch.version())
        write(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    versions.append(watch.version())

    assert len(set(versions)) == 4
