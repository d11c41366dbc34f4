"""A log beside a file that it was not written for: SQLite would write it into that file without a word."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import delete, insert

from tests.contract.stores import StillClock
from tuner_service.domain.errors import StorageError
from tuner_service.storage import sqlite_file, tables
from tuner_service.storage.engine import _fingerprint, open_store
from tuner_service.storage.sql_store import SqlStore

C = tables.commits
ROW = "{}" * 500


def add(store: SqlStore, begin: int, end: int) -> None:
    with store.begin() as connection:
        connection.execute(insert(C), [{"sequence": n, "touched": ROW} for n in range(begin, end)])


def newest(store: SqlStore) -> int:
    with store.queries.reading() as connection:
        return int(connection.exec_driver_sql("SELECT max(sequence) FROM commits").scalar_one())


def kill(path: Path, store: SqlStore) -> None:
    """Leave what a service leaves that is killed: its last commits stand in the log alone."""
    left = {name: path.with_name(name).read_bytes() for name in (path.name, f"{path.name}-wal")}
    store.close()
    for name, data in left.items():
        path.with_name(name).write_bytes(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a service that was killed; a backup of earlier lies beside it."""
    path = tmp_path / "tuner.db"
    with closing(open_store(path, StillClock())) as store:
        add(store, 0, 200)
        sqlite_file.back_up(path, tmp_path / "backup.db")
        add(store, 200, 800)
    store = open_store(path, StillClock())
    with store.begin() as connection:
        connection.execute(delete(C).where(C.c.sequence < 300))
    add(store, 800, 1200)
    kill(path, store)
    return path


def refused(path: Path) -> str:
    with pytest.raises(StorageError) as refusal:
        open_store(path, StillClock())
    return str(refusal.value)


def test_a_database_of_a_killed_service_has_what_its_log_has(path: Path) -> None:
    with closing(open_store(path, StillClock())) as store:
        assert newest(store) == 1199


def test_no_database_is_made_beside_the_log_of_one_that_is_gone(path: Path) -> None:
    log = path.with_name("tuner.db-wal")
    path.unlink()
    before = log.read_bytes()

    assert "tuner.db-wal holds the last commits of a database that is not there any more" in refused(path)

    assert (path.exists(), log.read_bytes() == before) == (False, True)
    log.unlink()
    with closing(open_store(path, StillClock())) as store, store.queries.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM commits").scalar_one() == 0


def put_over(backup: Path, path: Path) -> None:
    path.write_bytes(backup.read_bytes())


def put_in_place_of(backup: Path, path: Path) -> None:
    backup.rename(path)


@pytest.mark.parametrize("put_back", [put_over, put_in_place_of])
def test_a_backup_is_not_mixed_with_the_log_of_the_file_before_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, put_back: Callable[[Path, Path], None]
) -> None:
    monkeypatch.setattr(sqlite_file, "QUICK_CHECK_BYTES", 0)  # as of a large file, which is not read whole
    put_back(path.with_name("backup.db"), path)

    assert "remove tuner.db-wal and tuner.db-shm then, which would be written into the backup" in refused(path)

    for suffix in ("-wal", "-shm"):
        path.with_name(f"tuner.db{suffix}").unlink(missing_ok=True)
    with closing(open_store(path, StillClock())) as store:
        assert newest(store) == 199
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_was_written_after_its_log_is_looked_at_whole(path: Path) -> None:
    """A service writes the log first, so somebody else wrote the file: over the one that was there, with its place."""
    log = path.with_name("tuner.db-wal").stat().st_mtime_ns
    os.utime(path, ns=(log, log))
    assert not sqlite_file.may_have_log_of_another(path, _fingerprint(path))

    os.utime(path, ns=(log + 1, log + 1))
    assert sqlite_file.may_have_log_of_another(path, _fingerprint(path))


def test_a_file_that_says_nothing_of_itself_without_its_log_is_looked_at_whole(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE of_another_program (x)")
    path.with_name("tuner.db-wal").write_bytes(b"a log")

    assert sqlite_file.may_have_log_of_another(path, _fingerprint(path))
