"""One database file by two names: SQLite would keep a log beside each, and damage it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.builders import START
from tuner_service.domain.errors import InUseError, StorageError
from tuner_service.storage import other_names
from tuner_service.storage.engine import open_store

REPOSITORY = Path(__file__).parents[3]
HOLD = """
import sys
from contextlib import closing
from tuner_service.storage.engine import open_queries, open_store

class Clock:
    def now(self):
        return 1_700_000_000.0

opened = open_store(sys.argv[2], Clock()) if sys.argv[1] == "store" else open_queries(sys.argv[2])
with closing(opened):
    if sys.argv[1] != "store":
        opened.experiments()
    print("open", flush=True)
    sys.stdin.read()
"""


class Clock:
    def now(self) -> float:
        return START


@pytest.fixture
def database(tmp_path: Path) -> Path:
    open_store(tmp_path / "tuner.db", Clock()).close()
    return tmp_path / "tuner.db"


@contextmanager
def held(kind: str, path: Path) -> Iterator[int]:
    """Open in another process, whose number is given."""
    command = [sys.executable, "-c", HOLD, kind, str(path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        try:
            yield process.pid
        finally:
            process.communicate()


def test_a_database_that_works_by_another_name_is_refused_and_used_once_that_is_over(database: Path) -> None:
    (database.parent / "elsewhere").mkdir()
    other = database.parent / "elsewhere" / "same.db"
    with held("store", database) as holder:
        os.link(database, other)  # made while it works: its lock cannot know of it

        with pytest.raises(InUseError, match=f"in use by process {holder}, by another name"):
            open_store(other, Clock())

    open_store(other, Clock()).close()


def test_who_reads_it_by_the_same_name_is_in_nobodys_way(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_names, "LOOKS", 1)
    os.link(database, database.with_name("copy.db"))
    with held("queries", database):
        open_store(database, Clock()).close()
        with pytest.raises(InUseError):
            open_store(database.with_name("copy.db"), Clock())


def test_commits_that_stand_beside_another_name_are_not_left_out(database: Path) -> None:
    other = database.with_name("same.db")
    os.link(database, other)
    log = database.with_name("tuner.db-wal")
    log.write_bytes(b"the last commits of a service that was killed")

    with pytest.raises(StorageError, match=f"whose last commits stand in {log}"):
        open_store(other, Clock())

    log.unlink()
    open_store(other, Clock()).close()
