"""Databases of every past revision open here; a migration that fails or is killed leaves the old one usable."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import OperationalError

from tests.builders import StillClock
from tests.migrations import build_database as stored
from tuner_service.dispatcher.items import MetricsReported, Queue, TrialEnded
from tuner_service.domain.errors import StorageError
from tuner_service.storage import migrate, sqlite_file, tables
from tuner_service.storage.engine import migrate_file, open_store

REPOSITORY = Path(__file__).parents[2]
DATABASES = sorted(stored.FOLDER.glob("*.db"))


def schema(connection: Connection) -> list[tuple[str, ...]]:
    """Every table and index, as the database describes it."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    return [
        # A column without a type may have a space before its comma.
        (kind, name, table, " ".join((sql or "").split()).replace(" ,", ","))
        for kind, name, table, sql in connection.exec_driver_sql(query)
    ]


def folder_with(tmp_path: Path, upgrade: str) -> Path:
    """The migrations, and one more whose upgrade runs these lines."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    body = "\n".join(f"    {line}" for line in upgrade.splitlines())
    (folder / "versions" / "next_later.py").write_text(
        "import os\nimport sqlalchemy as sa\nfrom alembic import op\n"
        f"revision = 'next'\ndown_revision = '{tables.HEAD_REVISION}'\n"
        f"def upgrade():\n{body}\ndef downgrade():\n    pass\n"
    )
    return folder


def a_copy(tmp_path: Path, database: Path = DATABASES[-1]) -> Path:
    return Path(shutil.copy(database, tmp_path / "tuner.db"))


def same(one: object, other: object) -> bool:
    """Whether they are equal, NaN included."""
    return repr(one) == repr(other)


@pytest.mark.parametrize("database", DATABASES, ids=lambda path: path.stem)
def test_a_stored_database_of_every_revision_opens_and_goes_on(database: Path, tmp_path: Path) -> None:
    path = a_copy(tmp_path, database)

    with closing(open_store(path, StillClock())) as store:
        (loaded,) = store.load()
        history = list(store.history(stored.EXPERIMENT.id, Queue.TUNER, after=0, upto=4))
        weights = store.queries.blob(stored.CHECKPOINT.digest)
        tokens = list(store.tokens())
        groups = list(store.quota_groups())

    assert same(loaded.experiment, stored.EXPERIMENT)
    # Before, a trial did not know since when its attempt runs; that one is not known to have started.
    since = stored.RUNNING.running_since if database.stem >= "0014" else stored.LIVE.created_at
    assert same(loaded.trials, (replace(stored.RUNNING, running_since=since), stored.FAILED))
    assert loaded.attempts == (stored.LIVE,)
    assert loaded.checkpoints == (stored.CHECKPOINT,)
    assert loaded.seen_steps == {2: frozenset({1, 2}), 3: frozenset()}
    assert [type(item) for item in loaded.unanswered[Queue.ASSESSOR]] == [TrialEnded, MetricsReported, TrialEnded]
    assert [item.line for item in loaded.unanswered[Queue.TUNER]] == [6, 7]
    assert [item.line for item in history] == [1, 2, 4]
    assert weights == stored.WEIGHTS
    # Before, rows of tokens were a note of those of a home folder and opened nothing: they must not begin to.
    assert tokens == ([stored.TOKEN] if database.stem >= "0010" else [])
    assert groups == [stored.GROUP]
    assert sqlite_file.inspect(path) == tables.HEAD_REVISION


@pytest.mark.parametrize(("started", "since"), [(5.5, 5.5), (None, 4.5)], ids=["started", "still to be told started"])
def test_of_an_attempt_that_goes_on_it_is_known_since_when(tmp_path: Path, started: float | None, since: float) -> None:
    """Revision 0014: before, the running time of a trial was counted on in its first attempt alone."""
    path = a_copy(tmp_path, stored.FOLDER / "0013.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "UPDATE attempts SET created_at = 4.5, started_at = ?, ended_at = CASE number WHEN 3 THEN 6.5 END",
            (started,),
        )
        connection.execute("UPDATE trials SET status = 'running' WHERE number = 3")  # its end waits for its assessor
        connection.commit()
    open_store(path, StillClock()).close()

    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT running_since FROM trials ORDER BY number").fetchall()
    assert found == [(None,), (since,), (None,)]


def test_there_is_a_stored_database_of_the_newest_revision() -> None:
    assert DATABASES[-1].stem == tables.HEAD_REVISION


def test_the_newest_migration_is_the_revision_the_code_names() -> None:
    assert migrate.head(folder=migrate.migrations_folder()) == tables.HEAD_REVISION


def test_a_new_database_and_a_migrated_one_have_the_same_schema(tmp_path: Path) -> None:
    open_store(tmp_path / "new.db", StillClock()).close()
    new, migrated = create_engine(f"sqlite:///{tmp_path}/new.db"), create_engine("sqlite://")
    with migrated.begin() as connection:
        migrate.upgrade(connection, folder=migrate.migrations_folder())
        by_migrations = schema(connection)
    with new.connect() as connection:
        at_once = schema(connection)
    new.dispose()
    migrated.dispose()

    assert at_once == by_migrations
    assert len(at_once) > 20


def test_a_migration_keeps_the_rows_and_puts_a_copy_beside_the_file(tmp_path: Path) -> None:
    path = a_copy(tmp_path)
    folder = folder_with(tmp_path, "op.add_column('trials', sa.Column('colour', sa.Text()))")

    migrate_file(path, tables.HEAD_REVISION, folder=folder)

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT number, colour FROM trials").fetchall() == [(1, None), (2, None), (3, None)]
    assert sqlite_file.inspect(path) == "next"
    assert sqlite_file.inspect(tmp_path / "tuner.db.before-next") == tables.HEAD_REVISION


def test_a_migration_that_fails_midway_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = a_copy(tmp_path)
    folder = folder_with(
        tmp_path, "op.add_column('trials', sa.Column('colour', sa.Text()))\nop.drop_table('no_such_table')"
    )

    with pytest.raises(OperationalError):
        migrate_file(path, tables.HEAD_REVISION, folder=folder)

    assert_opens_as_it_was(path)


def test_a_migration_that_would_break_a_reference_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = a_copy(tmp_path)
    folder = folder_with(
        tmp_path, "op.add_column('trials', sa.Column('colour', sa.Text()))\nop.execute('DELETE FROM experiments')"
    )

    with pytest.raises(StorageError, match="would break a reference in table"):
        migrate_file(path, tables.HEAD_REVISION, folder=folder)

    assert_opens_as_it_was(path)


@pytest.mark.slow
def test_a_migration_that_is_killed_midway_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = a_copy(tmp_path)
    folder = folder_with(tmp_path, "op.add_column('trials', sa.Column('colour', sa.Text()))\nos.kill(os.getpid(), 9)")
    program = (
        "import pathlib, sys\n"
        "from tuner_service.storage.engine import migrate_file\n"
        "migrate_file(pathlib.Path(sys.argv[1]), sys.argv[2], folder=pathlib.Path(sys.argv[3]))"
    )

    command = [sys.executable, "-c", program, str(path), tables.HEAD_REVISION, str(folder)]
    killed = subprocess.run(command, cwd=REPOSITORY, check=False, timeout=60)

    assert killed.returncode == -signal.SIGKILL
    assert_opens_as_it_was(path)


def assert_opens_as_it_was(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert "colour" not in [row[1] for row in connection.execute("PRAGMA table_info(trials)")]
    with closing(open_store(path, StillClock())) as store:
        assert same(store.load()[0].trials, (stored.RUNNING, stored.FAILED))


def test_opening_a_database_of_the_newest_revision_does_not_load_alembic(tmp_path: Path) -> None:
    """It costs a quarter of a second, and every start would pay it."""
    program = (
        "import sys; from tuner_service.storage.engine import open_store\n"
        "class Clock:\n    def now(self): return 0.0\n"
        "for _ in range(2): open_store(sys.argv[1], Clock()).close()\n"
        "assert 'sqlalchemy' in sys.modules and 'alembic' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program, str(tmp_path / "tuner.db")], cwd=REPOSITORY, check=True, timeout=60)


@pytest.mark.slow
def test_an_installed_wheel_creates_and_migrates_without_the_checkout(tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "wheel", *options, "-w", str(tmp_path), str(REPOSITORY)], check=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    into = ["--no-deps", "--no-index", "--no-compile", "--target", str(site)]
    subprocess.run([*pip, "install", *into, str(wheel)], check=True)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import sqlalchemy, tuner_service\n"
        "from tuner_service.storage import migrate\n"
        "from tuner_service.storage.engine import open_store\n"
        "class Clock:\n    def now(self): return 0.0\n"
        "open_store('tuner.db', Clock()).close()\n"
        "engine = sqlalchemy.create_engine('sqlite:///migrated.db')\n"
        "with engine.begin() as connection: migrate.upgrade(connection, folder=migrate.migrations_folder())\n"
        "engine.dispose()\n"
        "assert tuner_service.__file__.startswith(sys.argv[1]), tuner_service.__file__\n"
        "assert str(migrate.migrations_folder()).startswith(sys.argv[1])\n"
    )

    subprocess.run([sys.executable, "-P", "-c", program, str(site)], cwd=empty, check=True, timeout=180)

    for name in ("tuner.db", "migrated.db"):
        with closing(sqlite3.connect(empty / name)) as connection:
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        assert revision == tables.HEAD_REVISION
