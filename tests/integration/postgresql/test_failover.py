"""The server behind one address fails and its replica is promoted: what was acknowledged counts, or nobody writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest

from tests.builders import EXPERIMENT_ID
from tests.contract.stores import StillClock
from tests.postgresql import Server, a_server
from tests.postgresql_proxy import Proxy, proxy_of
from tests.takeover_campaign import METRICS, step
from tests.waiting import wait_until
from tuner_service.domain.errors import InUseError, UnavailableError
from tuner_service.storage.engine import open_store
from tuner_service.storage.postgresql.lease import LEASE_S, RENEW_S, LeaseLostError

pytestmark = pytest.mark.slow


@pytest.fixture
def primary() -> Iterator[Server]:
    server = a_server()
    yield server
    server.end()


@pytest.fixture
def replica(primary: Server) -> Iterator[Server]:
    server = primary.replica()
    yield server
    server.end()


@pytest.fixture
def proxy(primary: Server) -> Iterator[Proxy]:
    with proxy_of(primary) as proxy:
        yield proxy


def name_of(url: str) -> str:
    return url.split("@/")[1].partition("?")[0]


def fail_over(proxy: Proxy, replica: Server) -> None:
    proxy.server.kill()
    replica.promote()
    proxy.server = replica


def assert_holds(store: Any, steps: int) -> None:
    assert [line.line for line in store.queries.journal(EXPERIMENT_ID)] == list(range(1, steps + 1))
    assert len(store.queries.all_metrics(EXPERIMENT_ID)) == METRICS * steps


def test_a_synchronous_replica_that_is_promoted_has_each_acknowledged_step_once(
    primary: Server, replica: Server, proxy: Proxy
) -> None:
    database = primary.filled_database()
    url = proxy.url(database)
    primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.execute("SELECT pg_reload_conf()")
    wait_until(lambda: primary.execute("SELECT sync_state FROM pg_stat_replication") == [("sync",)])
    with closing(open_store(url, StillClock())) as store:
        lineage, saved, ended = store.lineage, list[int](), threading.Event()

        def work() -> None:
            while not ended.is_set():
                with suppress(UnavailableError):  # for longer than a commit is held: whoever sent it sends it again
                    saved.append(store.commit(step(len(saved) + 1)))

        worker = threading.Thread(target=work)
        worker.start()
        wait_until(lambda: len(saved) > 5)
        fail_over(proxy, replica)
        before = len(saved)
        wait_until(lambda: len(saved) > before + 5)
        ended.set()
        worker.join()

        assert saved == list(range(1, len(saved) + 1))
        assert_holds(store, len(saved))
    with closing(open_store(url, StillClock())) as store:
        assert store.lineage == lineage, "it is the same database: its trials are its own"


def lines_of(server: Server, database: str) -> int:
    """Of the journal; none where the database itself has not come yet."""
    try:
        ((count,),) = server.execute("SELECT count(*) FROM journal", database=name_of(database))
    except psycopg.OperationalError:
        return 0
    return int(count)


def test_a_service_ends_where_a_replica_is_promoted_that_had_not_received_everything(
    primary: Server, replica: Server, proxy: Proxy
) -> None:
    database = primary.filled_database()
    url = proxy.url(database)
    with closing(open_store(url, StillClock())) as store:
        assert store.commit(step(1)) == 1
        wait_until(lambda: lines_of(replica, database) == 1)
        replica.stop()
        assert store.commit(step(2)) == 2
        primary.kill()
        replica.start()
        replica.promote()
        proxy.server = replica
        with pytest.raises(LeaseLostError, match="earlier state"):
            store.commit(step(3))
        assert not store.is_in_place()
    with closing(open_store(url, StillClock())) as store:
        assert_holds(store, 1)
        assert store.commit(step(2)) == 2


@pytest.mark.parametrize("of_the_role", ["on", "off"])
def test_a_service_whose_commits_wait_for_a_replica_that_is_gone_keeps_its_lease(
    primary: Server, of_the_role: str
) -> None:
    """A standby's would wait as well, and its takeover would show what no replica has."""
    url = primary.filled_database()
    primary.execute(f"ALTER SYSTEM SET synchronous_commit = '{of_the_role}'")
    primary.execute("SELECT pg_reload_conf()")
    with closing(open_store(url, StillClock())) as store:
        assert store.commit(step(1)) == 1
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        primary.execute("SELECT pg_reload_conf()")
        saved: list[int] = []
        worker = threading.Thread(target=lambda: saved.append(store.commit(step(2))))
        worker.start()
        wait_until(lambda: primary.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
        before = renewals(primary, url)
        wait_until(lambda: renewals(primary, url) > before + 2 * LEASE_S / RENEW_S)
        with pytest.raises(InUseError):
            open_store(url, StillClock())
        assert (lines_of(primary, url), saved) == (1, []), "nobody sees what no replica has"

        primary.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        primary.execute("SELECT pg_reload_conf()")
        worker.join()
        assert saved == [2]
        assert_holds(store, 2)


def renewals(server: Server, url: str) -> int:
    ((count,),) = server.execute("SELECT renewals FROM tuner_lease", database=name_of(url))
    return int(count)
