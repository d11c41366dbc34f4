"""A connection that dies in COMMIT, and a server that goes away: nothing is lost, nothing is there twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.builders import EXPERIMENT_ID, StillClock, a_line, a_metric, a_trial, an_experiment
from tests.postgresql import Server, a_server, the_server
from tests.postgresql_proxy import Cut, Proxy, proxy_of
from tests.waiting import wait_until
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.errors import UnavailableError
from tuner_service.storage.engine import open_store
from tuner_service.storage.postgresql import connecting, silence
from tuner_service.storage.postgresql import store as retrying

pytestmark = pytest.mark.slow


def step(number: int) -> Changes:
    return Changes(
        experiments={EXPERIMENT_ID: an_experiment(next_line=number + 1)},
        trials={(EXPERIMENT_ID, number): a_trial(number=number)},
        journal=[a_line(line=number, payload={"number": number})],
        metrics=[a_metric(number=number, sequence=sequence, line=number) for sequence in range(1, 21)],
    )


def assert_holds(store: Any, steps: int) -> None:
    assert [line.line for line in store.queries.journal(EXPERIMENT_ID)] == list(range(1, steps + 1))
    assert len(store.queries.all_metrics(EXPERIMENT_ID)) == 20 * steps
    assert store.queries.sequence() == steps


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with proxy_of(the_server()) as proxy:
        yield proxy


@pytest.fixture
def own_server() -> Iterator[Server]:
    server = a_server()
    yield server
    server.end()


@pytest.mark.parametrize("cut", list(Cut))
def test_a_commit_whose_connection_is_cut_is_there_once(cut: Cut, proxy: Proxy) -> None:
    with closing(open_store(proxy.url(the_server().filled_database()), StillClock())) as store:
        for number in range(1, 4):
            if number == 2:
                proxy.cuts.append(cut)
            assert store.commit(step(number)) == number

        assert proxy.done == [cut]
        assert_holds(store, 3)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_a_commit_whose_connection_is_cut_at_any_of_its_statements_is_there_once(cut: Cut, proxy: Proxy) -> None:
    with closing(open_store(proxy.url(the_server().filled_database()), StillClock())) as store:
        number, was_cut = 1, True
        store.commit(step(number))
        while was_cut:
            proxy.cut_at = (number - 1, cut)
            number += 1
            assert store.commit(step(number)) == number
            was_cut = proxy.cut_at is None
        proxy.cut_at = None

        assert len(proxy.done) > 5, "a commit is several statements"
        assert_holds(store, number)


def test_commits_whose_look_up_is_cut_too_are_there_once(proxy: Proxy) -> None:
    with closing(open_store(proxy.url(the_server().filled_database()), StillClock())) as store:
        proxy.cuts += [Cut.AFTER, Cut.AFTER, Cut.BEFORE, Cut.AFTER, Cut.BEFORE]
        for number in range(1, 5):
            assert store.commit(step(number)) == number

        assert len(proxy.done) == 5
        assert_holds(store, 4)


def test_whether_a_commit_was_taken_is_known_once_the_server_has_done_with_it() -> None:
    url = the_server().filled_database()
    with (
        closing(open_store(url, StillClock())) as store,
        psycopg.connect(url) as under_way,
        psycopg.connect(url, autocommit=True) as looking,
        ThreadPoolExecutor() as pool,
    ):
        assert store.commit(step(1)) == 1
        # As the server has it whose client was cut off in its COMMIT, before it does what that says.
        under_way.execute("SELECT epoch FROM tuner_lease FOR KEY SHARE")
        under_way.execute("INSERT INTO commits SELECT 2, touched FROM commits WHERE sequence = 1")
        taken = pool.submit(store._was_taken, 2, time.monotonic() + 60)  # type: ignore[attr-defined]  # of this store
        waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        wait_until(lambda: taken.done() or looking.execute(waiting).rowcount > 0)
        under_way.commit()

        assert taken.result()


def test_a_server_that_stays_away_is_said_to_and_what_was_not_acknowledged_can_be_sent_again(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "RETRIED_S", 0.3)
    with closing(open_store(proxy.url(the_server().filled_database()), StillClock())) as store:
        store.commit(step(1))
        proxy.is_open = False
        proxy.cut_all()
        with pytest.raises(UnavailableError, match="cannot be reached"):
            store.commit(step(2))
        with pytest.raises(UnavailableError, match="cannot be reached"):
            store.load()

        proxy.is_open = True
        assert store.commit(step(2)) == 2
        assert_holds(store, 2)


def test_a_server_killed_under_load_and_started_again_keeps_each_step_once(own_server: Server) -> None:
    with closing(open_store(own_server.filled_database(), StillClock())) as store:
        ended = threading.Event()
        saved: list[int] = []

        def work() -> None:
            while not ended.is_set():
                saved.append(store.commit(step(len(saved) + 1)))

        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(3):
            before = len(saved)
            wait_until(lambda before=before: len(saved) > before + 5)  # type: ignore[misc]  # mypy knows no such lambda
            own_server.kill()
            own_server.start()
        before = len(saved)
        wait_until(lambda: len(saved) > before + 5)
        ended.set()
        worker.join()

        assert saved == list(range(1, len(saved) + 1))
        assert_holds(store, len(saved))


def test_a_read_of_a_server_that_hangs_is_given_up_and_the_next_one_refused_until_it_answers(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay up: nothing but the time says that it hangs."""
    monkeypatch.setattr(silence, "SILENT_S", 0.05)
    monkeypatch.setitem(connecting.DEFAULTS, "connect_timeout", "2")  # the least that there is
    with closing(open_store(proxy.url(the_server().filled_database()), StillClock())) as store:
        store.commit(step(1))
        assert len(store.queries.journal(EXPERIMENT_ID)) == 1
        proxy.flows.clear()
        with pytest.raises(UnavailableError, match="the server does not answer"):
            store.queries.journal(EXPERIMENT_ID)
        begun = time.monotonic()
        with pytest.raises(UnavailableError, match="the server does not answer"):
            store.queries.journal(EXPERIMENT_ID)
        assert time.monotonic() - begun < 1, "it keeps no thread of readers"
        proxy.flows.set()

        assert wait_until(lambda: read_of(store)) == 1


def read_of(store: Any) -> int:
    try:
        return len(store.queries.journal(EXPERIMENT_ID))
    except UnavailableError:
        return 0


def test_a_read_after_the_server_came_back_finds_a_new_connection(own_server: Server) -> None:
    with closing(open_store(own_server.filled_database(), StillClock())) as store:
        store.commit(step(1))
        assert len(store.queries.journal(EXPERIMENT_ID)) == 1
        own_server.stop()
        with pytest.raises(UnavailableError):
            store.queries.journal(EXPERIMENT_ID)
        own_server.start()

        assert len(store.queries.journal(EXPERIMENT_ID)) == 1
