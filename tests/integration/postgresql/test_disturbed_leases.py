"""What people and machines do to the lease and to the database under a service: deleted rows, backups, roles."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.builders import EXPERIMENT_ID, a_trial
from tests.contract.stores import StillClock, changes_for, reports_line
from tests.integration.postgresql.test_one_active_service import holder_of
from tests.postgresql import the_server
from tests.waiting import wait_until
from tuner_service.domain.errors import StorageError, UnavailableError
from tuner_service.storage.engine import open_queries, open_store, services_of
from tuner_service.storage.postgresql import connecting
from tuner_service.storage.postgresql import lease as lease_of_a_server
from tuner_service.storage.postgresql import store as store_of_a_server
from tuner_service.storage.postgresql.lease import LeaseLostError, ThisService

pytestmark = pytest.mark.slow


@pytest.fixture
def url() -> str:
    return the_server().filled_database()


def name_of(url: str) -> str:
    return url.split("@/")[1].partition("?")[0]


def numbers(store: Any) -> list[int]:
    return [trial.number for trial in store.queries.trials(EXPERIMENT_ID)]


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    return the_server().execute(statement, database=name_of(url))


# ── people ──────────────────────────────────────────────────────────────────────────────────────
def test_a_service_whose_row_of_the_lease_was_deleted_ends_and_no_epoch_comes_again(url: str) -> None:
    with holder_of(url) as asleep:
        ((epoch,),) = execute(url, "SELECT epoch FROM tuner_lease")
        asleep.signal(signal.SIGSTOP)
        execute(url, "DELETE FROM tuner_lease")
        execute(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tuner-s%'")
        with closing(open_store(url, StillClock())) as store:
            assert execute(url, "SELECT epoch FROM tuner_lease") != [(epoch,)]
            asleep.signal(signal.SIGCONT)
            asleep.say("")
            assert asleep.answers() == "LeaseLostError False"
            execute(url, "DELETE FROM tuner_lease")
            with pytest.raises(LeaseLostError, match="row of the lease is gone"):
                store.commit(changes_for(a_trial(number=1)))
            assert numbers(store) == []


def test_what_a_transaction_that_somebody_left_open_keeps_is_not_read_by_each_commit(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each renewal leaves a version of the row there; the owner knows where the newest is."""
    monkeypatch.setattr(lease_of_a_server, "RENEW_S", 0.01)
    with (
        psycopg.connect(url, application_name="of ann") as stranger,
        closing(open_store(url, StillClock())) as store,
        psycopg.connect(url, autocommit=True) as asking,
    ):
        stranger.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        stranger.execute("SELECT count(*) FROM meta")
        lease = store._lease  # type: ignore[attr-defined]
        wait_until(lambda: execute(url, "SELECT renewals FROM tuner_lease")[0][0] > 200)
        monkeypatch.setattr(lease_of_a_server, "RENEW_S", 0.5)
        for has_newest in (False, True):
            if has_newest:
                store.commit(changes_for(a_trial(number=1)))
            assert 0 in [whole_reads(asking, lease) for _ in range(10)], "once it was renewed in between, perhaps"
        execute(url, "VACUUM FULL tuner_lease")  # it lies elsewhere from here on
        assert store.commit(changes_for(a_trial(number=2))) == 2
        assert numbers(store) == [1, 2]


def whole_reads(connection: psycopg.Connection[Any], lease: Any) -> int:
    """How often the fence of one transaction reads through the table of the lease."""
    reads = "SELECT coalesce(max(seq_scan), 0) FROM pg_stat_xact_user_tables WHERE relname = 'tuner_lease'"
    with connection.transaction():
        (before,) = connection.execute(reads).fetchone() or (0,)
        lease.fence(connection)
        (after,) = connection.execute(reads).fetchone() or (0,)
    return int(after - before)


def test_a_transaction_that_somebody_left_open_is_named_until_it_has_ended(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_of_a_server, "WATCH_S", 0.0)
    monkeypatch.setattr(lease_of_a_server, "OPEN_FOR_S", 0.0)
    with (
        closing(open_store(url, StillClock())) as store,
        psycopg.connect(url, application_name="report of ann") as stranger,
    ):
        assert store.warning() == ""
        stranger.execute("SELECT count(*) FROM meta")
        wait_until(lambda: "a transaction of report of ann" in store.warning())
        assert f"pg_terminate_backend({stranger.info.backend_pid})" in store.warning()
        stranger.commit()
        wait_until(lambda: store.warning() == "")


def test_a_standby_may_be_there_first(url: str) -> None:
    """Of a database without a service, and without any table of a service's."""
    execute(url, "DROP TABLE IF EXISTS tuner_lease; DROP TABLE IF EXISTS tuner_services")
    with closing(open_store(url, StillClock(), waits=lambda: None)) as store:
        assert store.commit(changes_for(a_trial(number=1))) == 1
        assert [service.role for service in services_of(url)] == ["active"]


def test_a_service_ends_where_a_backup_was_restored_under_it(url: str) -> None:
    """What it acknowledged since is gone: it may not write what it knows beside that."""
    with closing(open_store(url, StillClock())) as store:
        store.commit(changes_for(a_trial(number=1)))
        tables = ("trials", "commits", "experiments")
        for table in tables:
            execute(url, f"CREATE TABLE IF NOT EXISTS backup_of_{table} AS SELECT * FROM {table}")
        store.commit(changes_for(a_trial(number=2)))
        execute(url, f"TRUNCATE {', '.join(tables)} CASCADE")
        for table in reversed(tables):
            execute(url, f"INSERT INTO {table} SELECT * FROM backup_of_{table}; DROP TABLE backup_of_{table}")
        with pytest.raises(LeaseLostError, match=r"earlier state: its newest commit is 1, and commit 2"):
            store.commit(changes_for(a_trial(number=3)))
        assert not store.is_in_place()
    with closing(open_store(url, StillClock())) as store:
        assert numbers(store) == [1]
        assert store.commit(changes_for(a_trial(number=2))) == 2


def test_a_dump_that_was_taken_under_a_service_goes_on_elsewhere_while_that_one_works(url: str, tmp_path: Any) -> None:
    server, restored = the_server(), the_server().new_database()
    with closing(open_store(url, StillClock())) as store:
        store.commit(changes_for(a_trial(number=1), lines=(reports_line(1, first=1, last=2),)))
        dump = [str(server.programs / "pg_dump"), "--format=custom", f"--file={tmp_path / 'tuner.dump'}", url]
        subprocess.run(dump, check=True, capture_output=True)
        store.commit(changes_for(a_trial(number=2)))
        restore = [str(server.programs / "pg_restore"), f"--dbname={restored}", str(tmp_path / "tuner.dump")]
        subprocess.run(restore, check=True, capture_output=True)
        with closing(open_store(restored, StillClock())) as copy:
            assert numbers(copy) == [1]
            assert copy.lineage != store.lineage
            assert copy.commit(changes_for(a_trial(number=3))) == 2
        assert store.commit(changes_for(a_trial(number=4))) == 3
        assert numbers(store) == [1, 2, 4]


def test_a_service_whose_database_was_dropped_and_made_anew_ends(url: str) -> None:
    with closing(open_store(url, StillClock())) as store:
        store.commit(changes_for(a_trial(number=1)))
        the_server().execute(f"DROP DATABASE {name_of(url)} WITH (FORCE)")
        the_server().execute(f"CREATE DATABASE {name_of(url)} TEMPLATE template0")
        with pytest.raises(LeaseLostError, match="dropped and made anew"):
            store.commit(changes_for(a_trial(number=2)))
        assert not store.is_in_place()


@pytest.mark.parametrize(
    ("statement", "is_read"),
    [
        ("LOCK TABLE trials IN ACCESS EXCLUSIVE MODE", False),
        ("LOCK TABLE trials IN SHARE MODE", True),  # as CREATE INDEX has
        ("SELECT * FROM tuner_lease FOR UPDATE", True),
    ],
)
def test_what_somebody_has_locked_is_not_waited_for_without_end_and_used_once_it_is_free(
    statement: str, is_read: bool, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "LOCK_WAIT_MS", 100)
    with closing(open_store(url, StillClock())) as store:
        store.commit(changes_for(a_trial(number=1)))
        with psycopg.connect(url) as somebody:
            somebody.execute(statement)  # type: ignore[call-overload]  # statements of tests
            with pytest.raises(UnavailableError, match="another transaction holds what is needed"):
                store.commit(changes_for(a_trial(number=2)))
            if is_read:
                assert numbers(store) == [1]
            else:
                with pytest.raises(UnavailableError, match="another transaction holds what is needed"):
                    store.load()
        store.commit(changes_for(a_trial(number=2)))
        assert numbers(store) == [1, 2]


def test_whatever_a_renewal_meets_the_next_one_is_made(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def fails(_: Any) -> None:
        failed.set()
        raise OSError("no descriptor is to be had")

    def renewals() -> int:
        return int(execute(url, "SELECT renewals FROM tuner_lease")[0][0])

    with closing(open_store(url, StillClock())) as store:
        with monkeypatch.context() as broken:
            broken.setattr(ThisService, "row", fails)
            assert failed.wait(60)
        before = renewals()
        wait_until(lambda: renewals() > before + 1)
        assert store.commit(changes_for(a_trial(number=1))) == 1


def test_a_service_of_which_nothing_changes_says_that_it_is_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_of_a_server, "SHOWN_S", 0.0)

    def seen_at() -> Any:
        return execute(url, "SELECT seen_at FROM tuner_services")

    with closing(open_store(url, StillClock())):
        before = wait_until(seen_at)
        wait_until(lambda: seen_at() != before)
        again = seen_at()
        wait_until(lambda: seen_at() != again)


def test_a_service_that_ends_waits_for_the_renewal_at_hand(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would come after the lease was given back otherwise."""
    row, begun, closed, done = ThisService.row, threading.Event(), threading.Event(), list[str]()

    def slow(service: ThisService) -> Any:
        begun.set()
        closed.wait(0.5)
        done.append("renewed")
        return row(service)

    store = open_store(url, StillClock())
    with monkeypatch.context() as slowed:
        slowed.setattr(ThisService, "row", slow)
        assert begun.wait(60)
        store.close()
        closed.set()
        done.append("closed")
    wait_until(lambda: len(done) == 2)

    assert done == ["renewed", "closed"]


class BusyClock(StillClock):
    """Asked for the time inside a transaction, it takes so long that the server ends that, the first time."""

    def __init__(self) -> None:
        self.asked = 0

    def now(self) -> float:
        self.asked += 1
        if self.asked == 2:
            threading.Event().wait(0.3)
        return super().now()


def test_a_commit_for_which_the_machine_is_too_busy_is_done_again_in_peace(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (connecting, store_of_a_server):
        monkeypatch.setattr(module, "IDLE_IN_TRANSACTION_MS", 100)
    clock = BusyClock()
    with closing(open_store(url, clock)) as store:
        clock.asked = 1
        assert store.commit(changes_for(a_trial(number=1))) == 1
        assert numbers(store) == [1]
        assert clock.asked > 2, "it was done once"


class CuttingClock(StillClock):
    """Asked for the time inside a transaction, it has the server end that session, the first time."""

    def __init__(self) -> None:
        self.cut: list[Callable[[], object]] = []

    def now(self) -> float:
        while self.cut:
            self.cut.pop()()
        return super().now()


def test_a_commit_whose_session_was_ended_at_once_is_done_again_and_given_no_more_time(url: str) -> None:
    clock = CuttingClock()
    with closing(open_store(url, clock)) as store:
        assert isinstance(store, store_of_a_server.PostgresqlStore)
        assert store.commit(changes_for(a_trial(number=1))) == 1
        clock.cut.append(lambda: execute(url, f"SELECT pg_terminate_backend({store._session})"))

        assert store.commit(changes_for(a_trial(number=2))) == 2

        assert (clock.cut, numbers(store)) == ([], [1, 2])
        assert store._idle_ms == store_of_a_server.IDLE_IN_TRANSACTION_MS


# ── roles ───────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def role() -> str:
    name = f"plain{time.monotonic_ns()}"
    the_server().execute(f"CREATE ROLE {name} LOGIN")
    return name


def test_a_role_without_privileges_owns_its_database_and_needs_nothing_more(role: str) -> None:
    """Whatever its operator has limited for other programs."""
    url = the_server().new_database()
    limits = {
        "statement_timeout": "'25ms'",
        "idle_session_timeout": "'100ms'",
        "default_transaction_isolation": "'serializable'",
        "synchronous_commit": "off",
        "extra_float_digits": "0",  # numbers of 15 digits
    }
    the_server().execute(f"ALTER DATABASE {name_of(url)} OWNER TO {role}")
    for setting, value in limits.items():
        the_server().execute(f"ALTER ROLE {role} SET {setting} = {value}")
    with closing(open_store(url.replace("tuner@", f"{role}@"), StillClock())) as store:
        store.commit(changes_for(a_trial(number=1, value=0.1 + 0.2)))
        with store.begin() as connection:
            asked = ", ".join(f"current_setting('{setting}')" for setting in limits)
            assert connection.exec_driver_sql(f"SELECT {asked}").one() == ("0", "0", "read committed", "on", "1")
            connection.exec_driver_sql("SELECT pg_sleep(0.05)")
        assert store.moved_rows.give_back() is False
        assert [trial.value for trial in store.queries.trials(EXPERIMENT_ID)] == [0.1 + 0.2]


def test_what_a_role_may_not_do_is_named_and_the_database_left_as_it_is(url: str, role: str) -> None:
    theirs = url.replace("tuner@", f"{role}@")
    for wanted in (open_queries, lambda where: open_store(where, StillClock())):
        with pytest.raises(StorageError, match=r"permission denied.*give the service's role"):
            wanted(theirs)
    execute(url, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    with closing(open_queries(theirs)) as queries:
        assert queries.experiments() == []
    with pytest.raises(StorageError, match=r"permission denied.*give the service's role"):
        open_store(theirs, StillClock())
    with closing(open_store(url, StillClock())) as store:
        assert store.commit(changes_for(a_trial(number=1))) == 1


def test_rights_that_are_taken_away_are_named_and_what_follows_is_committed_once_they_are_back(
    url: str, role: str
) -> None:
    the_server().execute(f"ALTER DATABASE {name_of(url)} OWNER TO {role}")
    execute(url, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; GRANT ALL ON SCHEMA public TO {role}")
    with closing(open_store(url.replace("tuner@", f"{role}@"), StillClock())) as store:
        execute(url, f"REVOKE INSERT ON trials FROM {role}")
        with pytest.raises(StorageError, match="permission denied for table trials"):
            store.commit(changes_for(a_trial(number=1)))
        execute(url, f"GRANT INSERT ON trials TO {role}")
        assert store.commit(changes_for(a_trial(number=1))) == 1
        assert numbers(store) == [1]
