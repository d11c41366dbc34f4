"""Metrics of ended experiments out of a database and back, on both kinds, whatever is killed on the way."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select, update

from tests.archiving import Life, StillClock, WithoutProcess, a_life, fill, one_life, rows_of
from tests.builders import EXPERIMENT_ID, START
from tests.contract.stores import OTHER_ID
from tests.forked import Child
from tests.postgresql import the_server
from tuner_service.archive_ports import MovedMetrics
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import ExperimentResumed
from tuner_service.domain.archives import ArchivePhase
from tuner_service.domain.errors import ConflictError, StorageError
from tuner_service.storage import moved_rows, tables
from tuner_service.storage.engine import open_store
from tuner_service.storage.moved_rows import OF_AN_EXPERIMENT, page_of

pytest.importorskip("pyarrow.parquet", reason="pip install 'tuner-service[parquet]'")

DATABASES: dict[str, Callable[[Path], str | Path]] = {
    "sqlite": lambda folder: folder / "tuner.db",
    "postgresql": lambda folder: the_server().filled_database(),
}
TRIALS, REPORTS = 6, 50


@pytest.fixture(params=sorted(DATABASES))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return DATABASES[request.param](tmp_path)


def filled(database: str | Path, home: Path, *, reports: int = REPORTS) -> list[str]:
    with a_life(database, home) as life:
        for experiment_id in (EXPERIMENT_ID, OTHER_ID):
            fill(life.store, trials=TRIALS, reports=reports, experiment_id=experiment_id)
        return rows_of(life.store)


def in_a_fork(database: str | Path, home: Path, verb: str, kill_at: int = 0) -> int | None:
    """Its exit status."""
    child = Child(
        lambda: one_life(str(database), str(home), EXPERIMENT_ID, verb, kill_at=kill_at), home / "said-by-forks"
    )
    assert child.wait(120)
    return child.code


def test_what_was_archived_comes_back_to_the_last_bit(database: str | Path, tmp_path: Path) -> None:
    before = filled(database, tmp_path)
    with a_life(database, tmp_path) as life:
        life.ask("archive")
        assert life.archivist.work()

        archive = life.archive()
        assert archive is not None
        assert (archive.phase, archive.rows) == (ArchivePhase.ARCHIVED, TRIALS * REPORTS)
        assert rows_of(life.store) == []
        assert len(rows_of(life.store, OTHER_ID)) == TRIALS * REPORTS, "the other experiment's are its own"
        trial = life.store.queries.trial(EXPERIMENT_ID, 1)
        assert trial is not None
        assert (trial.value, trial.final) == (0.5, {"loss": 0.5})
        assert list(life.assets.missing(EXPERIMENT_ID)) == []

    with a_life(database, tmp_path) as life:
        life.ask("unarchive")
        assert life.archivist.work()

        assert life.archive() is None
        assert rows_of(life.store) == before
        assert life.store.assets.of_experiment(EXPERIMENT_ID) == [], "the file may be collected now"


def test_killed_at_every_statement_nothing_is_lost_and_nothing_is_half(database: str | Path, tmp_path: Path) -> None:
    before = filled(database, tmp_path, reports=350)
    for verb, phase in (("archive", ArchivePhase.ARCHIVED), ("unarchive", None)):
        kill_at, kills = 1, 0
        while (code := in_a_fork(database, tmp_path, verb, kill_at)) != 0:
            assert code == -signal.SIGKILL, (tmp_path / "said-by-forks").read_text()
            kill_at, kills = kill_at + max(2, kill_at // 2), kills + 1
        with a_life(database, tmp_path) as life:
            archive = life.archive()
            assert (archive.phase if archive else None) == phase
            assert rows_of(life.store) == ([] if verb == "archive" else before)
            assert archive is None or archive.rows == len(before)
        assert kills > 2, "it was killed in the middle, too"


def damage(home: Path) -> tuple[Path, bytes]:
    (file,) = [path for path in (home / "assets" / "files").glob("*/*") if path.read_bytes()[:4] == b"PAR1"]
    content = file.read_bytes()
    file.chmod(0o600)
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    file.write_bytes(flipped)
    return file, content


def test_of_a_damaged_file_nothing_is_put_back_until_it_was_mended(database: str | Path, tmp_path: Path) -> None:
    before = filled(database, tmp_path)
    with a_life(database, tmp_path) as life:
        life.ask("archive")
        assert life.archivist.work()
        file, content = damage(tmp_path)
        life.ask("unarchive")
        assert life.archivist.work()

        archive = life.archive()
        assert archive is not None
        assert archive.phase is ArchivePhase.ARCHIVED
        assert "damaged" in archive.message
        assert rows_of(life.store) == []

        file.unlink()
        life.ask("unarchive")
        assert life.archivist.work()
        archive = life.archive()
        assert archive is not None
        assert "has no file" in archive.message

        file.write_bytes(content)
        life.ask("unarchive")
        assert life.archivist.work()
        assert life.archive() is None
        assert rows_of(life.store) == before


def test_where_no_file_can_be_made_the_rows_stay_and_it_says_why(database: str | Path, tmp_path: Path) -> None:
    before = filled(database, tmp_path)
    with a_life(database, tmp_path) as life:
        life.assets.store.staging.parent.mkdir(parents=True, exist_ok=True)
        life.assets.store.staging.write_text("a file in the place of the folder")
        life.ask("archive")
        assert life.archivist.work()

        archive = life.archive()
        assert archive is not None
        assert archive.phase is ArchivePhase.FAILED
        assert archive.message
        assert rows_of(life.store) == before

        life.assets.store.staging.unlink()
        life.ask("archive")
        assert life.archivist.work()
        assert rows_of(life.store) == []


def test_what_is_deleted_goes_some_rows_at_a_time_and_leaves_nothing(database: str | Path, tmp_path: Path) -> None:
    filled(database, tmp_path)
    assert in_a_fork(database, tmp_path, "remove", 10) == -signal.SIGKILL
    with a_life(database, tmp_path) as life:
        archive = life.archive()
        assert archive is not None
        assert archive.phase is ArchivePhase.REMOVING
        with pytest.raises(ConflictError, match="'removing'"):
            life.ask("archive")
        assert life.archivist.work()

        assert life.store.queries.experiment(EXPERIMENT_ID) is None
        assert rows_of(life.store) == []
        assert len(rows_of(life.store, OTHER_ID)) == TRIALS * REPORTS


def rows_left(database: str | Path, experiment_id: str = EXPERIMENT_ID) -> dict[str, int]:
    """Of an experiment in every table, where there are any; read by itself, whatever can be read of them."""
    store = open_store(database, StillClock())
    try:
        found = {}
        with store.queries.reading() as connection:
            for table in (tables.experiments, tables.metrics, tables.checkpoints, *(t for t, _ in OF_AN_EXPERIMENT)):
                column = table.c.id if table is tables.experiments else table.c.experiment_id
                found[table.name] = connection.scalar(select(func.count()).where(column == experiment_id)) or 0
            found["blobs"] = connection.scalar(select(func.count()).select_from(tables.blobs)) or 0
        return {name: count for name, count in found.items() if count}
    finally:
        store.close()


def make_unreadable(database: str | Path) -> None:
    """Two values of one experiment, which has not ended, and of which an attempt runs."""
    store = open_store(database, StillClock())
    with store.begin() as connection:
        e, a = tables.experiments, tables.attempts
        running = {"status": "running", "ended_at": None, "spec": "{"}
        connection.execute(update(e).where(e.c.id == EXPERIMENT_ID).values(running))
        mine = a.c.experiment_id == EXPERIMENT_ID
        connection.execute(update(a).where(mine, a.c.number == 1).values(status="running"))
        connection.execute(update(a).where(mine, a.c.number == 2).values(holdings="{"))
    store.close()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_killed_at_every_statement_of_its_removal_it_never_comes_back_half(
    database: str | Path, tmp_path: Path, is_damaged: bool
) -> None:
    """Its row says that it is being removed from the first statement that removes anything on."""
    filled(database, tmp_path, reports=5)
    others = rows_left(database, OTHER_ID)
    if is_damaged:
        make_unreadable(database)
    whole, kill_at = rows_left(database), 1
    while in_a_fork(database, tmp_path, "remove", kill_at) is not None and rows_left(database).get("experiments"):
        left = rows_left(database)
        store = open_store(database, StillClock())
        (found,) = [one for one in store.queries.experiments() if one.id == EXPERIMENT_ID]
        store.close()
        assert left == whole or (found.archive is not None and found.archive.phase is ArchivePhase.REMOVING)
        with a_life(database, tmp_path, files=WithoutProcess) as life:
            assert left == whole or refusal_of(life), "nothing can be done with what is left"
        kill_at += 3

    assert kill_at > 9, "it was killed some times"
    assert rows_left(database).keys() == {"blobs"}
    assert rows_left(database, OTHER_ID) == others, "what both name stays, too"


def refusal_of(life: Life) -> str:
    with pytest.raises(ConflictError) as refused:
        life.runner.submit(ExperimentResumed(at=START, experiment_id=EXPERIMENT_ID)).result()
    return str(refused.value)


def test_everything_of_it_goes_some_rows_at_a_time(tmp_path: Path) -> None:
    filled(tmp_path / "tuner.db", tmp_path)
    with a_life(tmp_path / "tuner.db", tmp_path) as life:
        life.archivist.cleared_rows = 4
        removed: list[int] = []

        def counted(_: object, cursor: Any, statement: str, *__: object) -> None:
            if statement.startswith("DELETE"):
                removed.append(cursor.rowcount)

        event.listen(life.store._writer.engine, "after_cursor_execute", counted)
        life.ask("remove")
        assert life.archivist.work()

    assert max(removed) <= 4
    assert sum(removed) > TRIALS * REPORTS


def free_pages(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("PRAGMA freelist_count").fetchone()[0])


def test_checkpoints_go_together_by_their_bytes_and_in_few_statements_however_many_they_are(
    database: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a time they kept all others waiting for more than half a second; large ones take long together."""
    filled(database, tmp_path)
    size, statements = len(b"1"), list[str]()
    with a_life(database, tmp_path) as life:
        rows = life.store.moved_rows
        for most, count in ((3 * size, 3), (size, 1), (0, 1), (100 * size, TRIALS)):
            monkeypatch.setattr(moved_rows, "BYTES_AT_ONCE", most)
            found = rows.checkpoints(EXPERIMENT_ID, limit=100)
            assert [one.number for one in found] == list(range(1, count + 1))
        event.listen(life.store._writer.engine, "before_cursor_execute", lambda *told: statements.append(str(told[2])))
        life.store.commit(Changes(dropped_checkpoints=found))

        dropping = [text for text in statements if text.startswith("DELETE FROM checkpoints")]
        assert len(dropping) == 1
        assert rows.checkpoints(EXPERIMENT_ID, limit=100) == []
        assert len(rows.checkpoints(OTHER_ID, limit=100)) == TRIALS


def test_a_service_gives_back_the_room_that_the_one_before_did_not_get_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner_service.storage.engine.KEPT_FREE_PAGES", 2)
    monkeypatch.setattr("tuner_service.storage.engine.VACUUM_PAGES", 3)
    database = tmp_path / "tuner.db"
    filled(database, tmp_path, reports=200)
    with a_life(database, tmp_path) as life:
        life.store.moved_rows.clear(MovedMetrics(EXPERIMENT_ID, 1, TRIALS, None), after=(0, 0, 0), limit=10_000)
    assert free_pages(database) > 10

    with a_life(database, tmp_path) as life:
        life.archivist.wake()
        assert life.archivist.work()
        assert life.store.moved_rows.give_back(), "it goes on with what it was woken for first"
        life.archivist._awake.clear()  # as its thread does
        assert life.archivist.work()

    assert free_pages(database) <= 2


def test_an_experiment_that_is_deleted_while_it_is_archived_is_gone(database: str | Path, tmp_path: Path) -> None:
    filled(database, tmp_path)
    with a_life(database, tmp_path) as life:
        life.ask("archive")
        life.ask("remove")
        assert life.archivist.work()

        assert life.store.queries.experiment(EXPERIMENT_ID) is None


def test_what_is_deleted_while_it_is_put_back_is_put_back_no_further_and_leaves_nothing(
    database: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    filled(database, tmp_path, reports=350)
    with a_life(database, tmp_path, files=WithoutProcess) as life:
        life.ask("archive")
        assert life.archivist.work()
        life.ask("unarchive")
        restore, portions = life.store.moved_rows.restore, []

        def restored(experiment_id: str, rows: Sequence[Sequence[Any]]) -> None:
            restore(experiment_id, rows)
            portions.append(len(rows))
            if len(portions) == 1:
                life.ask("remove")

        monkeypatch.setattr(life.store.moved_rows, "restore", restored)
        assert life.archivist.work()
        assert len(portions) == 1
        assert life.archivist.work(), "as it is woken by who deletes"

        assert life.store.queries.experiment(EXPERIMENT_ID) is None
        assert rows_of(life.store) == []
        assert caplog.records == []


def test_no_row_of_an_experiment_that_is_gone_is_put_back(database: str | Path, tmp_path: Path) -> None:
    filled(database, tmp_path)
    with a_life(database, tmp_path) as life:
        with life.store.queries.reading() as connection:
            rows = page_of(connection, MovedMetrics(EXPERIMENT_ID, 1, TRIALS), after=(0, 0, 0), limit=10)
        life.store.remove_experiment(EXPERIMENT_ID)

        with pytest.raises(StorageError):
            life.store.moved_rows.restore(EXPERIMENT_ID, rows)
        assert rows_of(life.store) == []


def test_what_is_archived_first_after_a_start_without_the_store_is_kept(tmp_path: Path) -> None:
    """What was staged before that start is taken away before the archive is staged there, not with it."""
    database, stores = tmp_path / "tuner.db", tmp_path / "assets"
    with a_life(database, tmp_path) as life:
        fill(life.store, trials=1, reports=2)
    with a_life(database, tmp_path) as life:
        stores.touch()  # no folder can be made there
        life.assets.store.begin()
        stores.unlink()

        life.ask("archive")
        assert life.archivist.work()

        archive = life.archive()
        assert archive is not None
        assert (archive.phase, archive.message) == (ArchivePhase.ARCHIVED, "")
