"""What opening a database refuses, and that refusing changes nothing."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.builders import EXPERIMENT_ID, START, a_line, a_metric, a_trial, an_experiment
from tuner_service.dispatcher.changes import Changes, StoredIdempotencyKey
from tuner_service.domain.errors import StorageError
from tuner_service.ports import StoredToken
from tuner_service.storage import sqlite_file, tables
from tuner_service.storage.engine import KEEP_UNNAMED_S, WAL_CHECKPOINT_BYTES, open_queries, open_store, revision_of


class StillClock:
    def __init__(self, now: float = START) -> None:
        self._now = now

    def now(self) -> float:
        return self._now


def fill(path: Path) -> None:
    with closing(open_store(path, StillClock())) as store:
        store.commit(
            Changes(
                experiments={EXPERIMENT_ID: an_experiment()},
                trials={(EXPERIMENT_ID, 1): a_trial()},
                metrics=[a_metric(sequence=n) for n in range(1, 500)],
            )
        )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with an experiment."""
    path = tmp_path / "tuner.db"
    fill(path)
    return path


def test_the_connection_that_writes_waits_for_the_disk_at_every_commit(path: Path) -> None:
    pragmas = ("synchronous", "journal_mode", "foreign_keys", "wal_autocheckpoint")
    with closing(open_store(path, StillClock())) as store, store._writer.begin() as connection:
        found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in pragmas}

    assert found == {"synchronous": 2, "journal_mode": "wal", "foreign_keys": 1, "wal_autocheckpoint": 0}


def test_nobody_else_writes_between_the_begin_of_a_transaction_and_its_end(path: Path) -> None:
    """A commit that has read waits for no other writer: SQLite would refuse it at once."""
    with (
        closing(open_store(path, StillClock())) as store,
        closing(sqlite3.connect(path, timeout=0)) as other,
        store._writer.begin(),
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("BEGIN IMMEDIATE")


def test_a_database_has_the_revision_of_the_program_that_made_it(path: Path) -> None:
    assert revision_of(path) == tables.HEAD_REVISION


def refused(path: Path) -> str:
    """Why both ways of opening refuse, after a look that the file is as it was."""
    before = path.read_bytes()
    with pytest.raises(StorageError):
        open_queries(path)
    with pytest.raises(StorageError) as refusal:
        open_store(path, StillClock())
    assert path.read_bytes() == before
    return str(refusal.value)


# ── new ─────────────────────────────────────────────────────────────────────────────────────────
def test_a_new_database_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    open_store(tmp_path / "tuner.db", StillClock()).close()

    assert (tmp_path / "tuner.db").stat().st_mode & 0o077 == 0


def test_a_name_with_special_characters_is_a_name(tmp_path: Path) -> None:
    path = tmp_path / "100% of? my#db &c.db"
    fill(path)

    with open_queries(path) as queries:
        assert queries.experiment(EXPERIMENT_ID) == an_experiment()
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".db") == [path.name]


def test_an_url_names_a_file(tmp_path: Path) -> None:
    fill(tmp_path / "tuner.db")

    with open_queries(f"sqlite:///{tmp_path}/tuner.db") as queries:
        assert len(queries.experiments()) == 1


def test_what_an_interrupted_creation_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "tuner.db.new").write_bytes(b"half")

    fill(tmp_path / "tuner.db")

    assert not (tmp_path / "tuner.db.new").exists()


def test_everything_committed_is_there_after_opening_again(path: Path) -> None:
    with closing(open_store(path, StillClock())) as store:
        (loaded,) = store.load()

    assert (loaded.experiment, loaded.trials) == (an_experiment(), (a_trial(),))


# ── refused ─────────────────────────────────────────────────────────────────────────────────────
def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 1000)

    assert "not a database" in refused(path)


def test_an_empty_file_is_refused_because_a_database_may_have_been_there(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    path.touch()

    assert "is empty" in refused(path)


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE experiments (id)")
        connection.commit()

    assert "another program" in refused(path)


def test_a_database_with_our_mark_and_other_tables_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {sqlite_file.APPLICATION_ID}")
        connection.execute("CREATE TABLE experiments (id)")
        connection.commit()

    assert "another program" in refused(path)


def test_a_database_of_a_newer_version_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()

    assert "newer version (revision 9999" in refused(path)


def test_a_database_without_a_revision_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM alembic_version")
        connection.commit()

    assert "names no revision" in refused(path)


def test_a_truncated_database_is_refused(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)

    assert "damaged" in refused(path)


def test_a_truncated_database_with_an_empty_log_beside_it_is_refused(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)
    path.with_name(f"{path.name}-wal").touch()

    assert f"it has {path.stat().st_size} of {path.stat().st_size + 4096} bytes" in refused(path)


def test_a_header_cut_short_is_refused(path: Path) -> None:
    os.truncate(path, 50)

    assert "not a database" in refused(path)


@pytest.mark.parametrize("page", range(1, 12))
def test_a_page_of_garbage_is_refused(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(b"\xa5" * 4096)

    assert "damaged" in refused(path)
    assert sqlite_file.check_integrity(path) != []


def test_a_full_check_of_what_is_no_database_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, " * 1000)

    assert sqlite_file.check_integrity(tmp_path / "notes.txt") == ["file is not a database"]


def test_a_full_check_finds_nothing_in_a_whole_database(path: Path) -> None:
    assert sqlite_file.check_integrity(path) == []


def test_queries_want_a_file_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no database"):
        open_queries(tmp_path / "tuner.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["/nowhere/tuner.db", "mysql://localhost/tuner"])
def test_a_place_that_cannot_hold_a_database_is_refused(name: str) -> None:
    with pytest.raises(StorageError):
        open_store(name, StillClock())


# ── one active service ──────────────────────────────────────────────────────────────────────────
def test_a_second_service_is_refused_and_told_who_holds_the_database(path: Path) -> None:
    with closing(open_store(path, StillClock())), pytest.raises(StorageError, match=f"process {os.getpid()}"):
        open_store(path, StillClock())


def test_a_link_to_the_database_is_the_same_database(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)

    with closing(open_store(path, StillClock())), pytest.raises(StorageError, match="in use"):
        open_store(link, StillClock())


def test_the_database_is_free_after_closing_and_after_a_refusal(path: Path) -> None:
    with path.open("r+b") as file:
        header = file.read(100)
        file.seek(0)
        file.write(b"x" * 100)
    with pytest.raises(StorageError):
        open_store(path, StillClock())
    with path.open("r+b") as file:
        file.write(header)

    open_store(path, StillClock()).close()
    open_store(path, StillClock()).close()


def test_queries_read_beside_an_active_service_and_write_nothing(path: Path) -> None:
    with closing(open_store(path, StillClock())) as store, open_queries(path) as queries:
        store.commit(Changes(experiments={"later": an_experiment(id="later")}))

        assert [e.id for e in queries.experiments()] == ["later", EXPERIMENT_ID]


# ── lineage ─────────────────────────────────────────────────────────────────────────────────────
def lineage_of(path: Path) -> str:
    with closing(open_store(path, StillClock())) as store:
        return store.lineage


def test_a_database_keeps_its_lineage_also_when_it_is_moved(path: Path, tmp_path: Path) -> None:
    lineage = lineage_of(path)
    (tmp_path / "elsewhere").mkdir()
    moved = path.rename(tmp_path / "elsewhere" / "moved.db")

    assert lineage_of(moved) == lineage
    assert len(lineage) == 16


def test_a_copy_gets_a_lineage_of_its_own_and_the_log_says_so(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lineage = lineage_of(path)
    copy = Path(shutil.copy(path, tmp_path / "copy.db"))
    caplog.set_level("INFO", logger="tuner_service.storage.lineage")
    of_the_copy = lineage_of(copy)

    assert of_the_copy != lineage
    assert lineage_of(copy) == of_the_copy
    assert lineage_of(path) == lineage
    assert [record.message for record in caplog.records] == ["database_is_a_copy"]


# ── upkeep ──────────────────────────────────────────────────────────────────────────────────────
def test_the_log_is_moved_into_the_database_and_stays_small(path: Path) -> None:
    log = path.with_name("tuner.db-wal")
    with closing(open_store(path, StillClock())) as store:
        for round_ in range(6):
            store.commit(Changes(blobs={f"blob {round_}": os.urandom(WAL_CHECKPOINT_BYTES // 2)}))
            assert log.stat().st_size < 3 * WAL_CHECKPOINT_BYTES
        assert path.stat().st_size > WAL_CHECKPOINT_BYTES


def test_idempotency_keys_and_blobs_that_nothing_names_are_forgotten_after_a_while(path: Path) -> None:
    key = StoredIdempotencyKey(key="k", body_digest="d", experiment_id=EXPERIMENT_ID, at=START)
    with closing(open_store(path, StillClock())) as store:
        store.commit(Changes(idempotency_keys=[key], blobs={"never named": b"x"}))
    with closing(open_store(path, StillClock(START + KEEP_UNNAMED_S))) as store:
        assert store.queries.blob("never named") == b"x"
        assert store.queries.idempotency_key("k") == key
    with closing(open_store(path, StillClock(START + KEEP_UNNAMED_S + 1))) as store:
        assert store.queries.blob("never named") is None
        assert store.queries.idempotency_key("k") is None


def test_tokens_are_kept_by_name(path: Path) -> None:
    with closing(open_store(path, StillClock())) as store:
        replaced, ci, local = (
            StoredToken(name=name, role="admin", sha256=sha256, created_at=START)
            for name, sha256 in (("local", "aa"), ("ci", "bb"), ("local", "cc"))
        )
        for token in (replaced, local, ci):
            store.put_token(token)

        assert store.tokens() == [ci, local]


def test_what_is_too_large_for_a_column_is_refused_and_the_next_commit_works(path: Path) -> None:
    with closing(open_store(path, StillClock())) as store:
        with pytest.raises(StorageError, match="too large"):
            store.commit(Changes(metrics=[a_metric(sequence=1000, step=2**63)]))
        store.commit(Changes(journal=[a_line()]))


def test_the_revision_in_the_code_is_the_one_in_the_file(path: Path) -> None:
    assert sqlite_file.inspect(path) == tables.HEAD_REVISION


def test_the_newest_time_is_that_of_the_last_line_of_what_has_not_ended(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "tuner.db", StillClock())) as store:
        assert store.newest_at() == 0.0
        ended = an_experiment(id="ended", next_line=2, ended_at=START + 90)
        store.commit(
            Changes(
                experiments={EXPERIMENT_ID: an_experiment(next_line=3), "ended": ended},
                journal=[
                    a_line(line=1, at=START + 1),
                    a_line(line=2, at=START + 7),
                    a_line(line=1, at=START + 90, experiment_id="ended"),
                ],
            )
        )
        assert store.newest_at() == START + 7


@pytest.mark.parametrize("gone", ["removed", "moved", "replaced", "folder removed"])
def test_a_database_that_is_not_in_its_place_any_more_is_noticed(tmp_path: Path, gone: str) -> None:
    path = tmp_path / "home" / "tuner.db"
    path.parent.mkdir()
    with closing(open_store(path, StillClock())) as store:
        assert store.is_in_place()

        match gone:
            case "removed":
                path.unlink()
            case "moved":
                path.parent.rename(tmp_path / "elsewhere")
            case "replaced":
                shutil.copy(path, tmp_path / "copy.db")
                (tmp_path / "copy.db").replace(path)
            case _:
                shutil.rmtree(path.parent)

        assert not store.is_in_place()


def test_a_database_that_cannot_be_looked_at_now_counts_as_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_store(tmp_path / "tuner.db", StillClock())) as store:

        def refused(_path: Path) -> os.stat_result:
            raise OSError(errno.ESTALE, "Stale file handle")

        with monkeypatch.context() as patched:
            patched.setattr(Path, "stat", refused)
            assert store.is_in_place()


# ── nothing stays open ──────────────────────────────────────────────────────────────────────────
def descriptors_of(folder: Path) -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists them
            found.append(str(descriptor.readlink()))
    return [name for name in found if name.startswith(str(folder))]


def test_queries_give_their_connections_back(path: Path) -> None:
    with open_queries(path) as queries:
        assert queries.experiment(EXPERIMENT_ID) is not None
        assert queries.version() is not None
        assert descriptors_of(path.parent) != []

    assert descriptors_of(path.parent) == []


def test_a_database_that_is_refused_is_let_go(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE journal RENAME TO diary")
        connection.commit()

    with pytest.raises(StorageError, match="table journal is missing"):
        open_store(path, StillClock())

    assert descriptors_of(path.parent) == []
