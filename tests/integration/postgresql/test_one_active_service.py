"""The lease: who may write, who may not any more, and how soon another one can."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import takeover_campaign
from tests.builders import EXPERIMENT_ID, StillClock, a_trial
from tests.contract.stores import changes_for
from tests.lease_holders import a_standby, holder_of, seconds_until
from tests.postgresql import the_server
from tests.postgresql_proxy import proxy_of
from tests.waiting import wait_until
from tuner_service.domain.errors import InUseError
from tuner_service.storage.engine import open_store, services_of
from tuner_service.storage.postgresql import claiming, connecting, lease, opening
from tuner_service.storage.postgresql.lease import LEASE_S, LeaseLostError

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def url() -> str:
    return the_server().filled_database()


def test_a_second_service_is_refused_and_told_who_has_the_database(url: str) -> None:
    with closing(open_store(url, StillClock(), home="/the/home")):
        with pytest.raises(InUseError, match=rf"process {os.getpid()} .*home /the/home"):
            open_store(url, StillClock())
        (active,) = services_of(url)
    assert (active.role, active.pid, active.home) == ("active", os.getpid(), "/the/home")
    assert list(services_of(url)) == []


def test_a_service_that_ended_leaves_the_database_to_the_next_one_at_once(url: str) -> None:
    open_store(url, StillClock()).close()
    begun = time.monotonic()
    open_store(url, StillClock()).close()
    assert time.monotonic() - begun < LEASE_S / 2


def test_a_killed_service_is_followed_at_once(url: str) -> None:
    with holder_of(url) as holder:
        holder.say("")
        assert holder.answers() == "done"
        thread, opened = a_standby(url)
        assert {s.role for s in services_of(url)} == {"active", "standby"}
        holder.signal(signal.SIGKILL)
        assert seconds_until(opened, time.monotonic()) < 2.0
    thread.join()
    with closing(opened[0]) as store:
        assert [trial.number for trial in store.queries.trials(EXPERIMENT_ID)] == [1]
        assert store.commit(changes_for(a_trial(number=2))) == 2


@pytest.mark.parametrize("inside", [False, True], ids=["between transactions", "inside a transaction"])
def test_a_stopped_service_is_followed_and_refused_when_it_goes_on(url: str, inside: bool) -> None:
    with holder_of(url) as holder:
        holder.say("")
        assert holder.answers() == "done"
        thread, opened = a_standby(url)
        if inside:
            holder.say("inside")
            assert holder.answers() == "inside"
        holder.signal(signal.SIGSTOP)
        assert seconds_until(opened, time.monotonic()) < 5.0
        thread.join()
        with closing(opened[0]) as store:
            store.commit(changes_for(a_trial(number=7)))
            holder.signal(signal.SIGCONT)
            holder.say("")
            refusal = holder.answers()
            if inside:  # its connection is gone; what it does next is refused
                assert refusal.startswith("ConnectionLostError")
                holder.say("")
                refusal = holder.answers()
            assert refusal == "LeaseLostError False"
            assert [trial.number for trial in store.queries.trials(EXPERIMENT_ID)] == [1, 7]
            assert store.queries.trials(EXPERIMENT_ID)[0].message != "of the one before"
            assert store.queries.sequence() == 2


def test_an_owner_that_was_cut_off_for_a_moment_goes_on(url: str) -> None:
    with proxy_of(the_server()) as proxy, closing(open_store(proxy.url(url), StillClock())) as store:
        store.commit(changes_for(a_trial(number=1)))
        proxy.cut_all()
        assert store.commit(changes_for(a_trial(number=2))) == 2
        with pytest.raises(InUseError):
            open_store(url, StillClock())
        assert store.is_in_place()


def test_an_owner_that_was_cut_off_too_long_finds_that_it_has_been_followed(url: str) -> None:
    with proxy_of(the_server()) as proxy, closing(open_store(proxy.url(url), StillClock())) as before:
        before.commit(changes_for(a_trial(number=1)))
        thread, opened = a_standby(url)
        proxy.is_open = False
        proxy.cut_all()
        assert seconds_until(opened, time.monotonic()) < 5.0
        thread.join()
        with closing(opened[0]) as store:
            store.commit(changes_for(a_trial(number=2)))
            proxy.is_open = True
            with pytest.raises(LeaseLostError, match="taken the database"):
                before.commit(changes_for(a_trial(number=3)))
            assert not before.is_in_place()
            assert [s.role for s in services_of(url)] == ["active", "gone"]


@pytest.mark.parametrize("stands_there", [False, True])
def test_the_fence_refuses_who_was_followed_before_it_has_heard_of_it(
    url: str, monkeypatch: pytest.MonkeyPatch, *, stands_there: bool
) -> None:
    """``stands_there``: the next owner's row came to where the one before has seen its own last."""
    monkeypatch.setattr(lease, "RENEW_S", 3_600.0)  # nothing else tells it
    database = urlsplit(url).path[1:]
    with closing(open_store(url, StillClock())) as before:
        before.commit(changes_for(a_trial(number=1)))
        the_server().execute("UPDATE tuner_lease SET epoch = epoch + 1", database=database)
        if stands_there:
            ((place,),) = the_server().execute("SELECT ctid::text FROM tuner_lease", database=database)
            before._lease._place = str(place)  # type: ignore[attr-defined]  # a store on a server
        with pytest.raises(LeaseLostError, match="taken the database"):
            before.commit(changes_for(a_trial(number=2)))
        assert before.queries.sequence() == 1


def test_a_standby_that_is_told_to_end_takes_its_row_away(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []

    def told_to_end(_: float) -> None:
        seen.append({service.role for service in services_of(url)})
        raise SystemExit(0)

    monkeypatch.setattr(claiming, "time", SimpleNamespace(sleep=told_to_end, monotonic=time.monotonic))
    with closing(open_store(url, StillClock())):
        with pytest.raises(SystemExit):
            open_store(url, StillClock(), waits=lambda: None)
        assert seen == [{"active", "standby"}]
        assert [service.role for service in services_of(url)] == ["active"]


def test_a_standby_waits_on_while_what_a_takeover_needs_is_locked(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connecting, "LOCK_WAIT_MS", 50)
    monkeypatch.setattr(opening, "PUT_OFF_S", 0.01)
    first = open_store(url, StillClock())
    thread, opened = a_standby(url)
    with psycopg.connect(url) as somebody:
        somebody.execute("LOCK TABLE blobs IN ACCESS EXCLUSIVE MODE")
        first.close()
        wait_until(lambda: caplog.text.count("takeover_put_off") > 1)
        assert not opened
    thread.join()
    with closing(opened[0]) as store:
        assert store.commit(changes_for(a_trial(number=1))) == 1
        assert [service.role for service in services_of(url)] == ["active"]


def test_twenty_takeovers_in_a_row_each_add_their_row_once(url: str) -> None:
    for number in range(1, 21):
        with closing(open_store(url, StillClock())) as store:
            assert store.commit(changes_for(a_trial(number=number))) == number
    with closing(open_store(url, StillClock())) as store:
        assert [trial.number for trial in store.queries.trials(EXPERIMENT_ID)] == list(range(1, 21))


def test_writers_that_are_killed_and_stopped_one_after_the_other_lose_and_double_nothing() -> None:
    """A short `make takeover-campaign`."""
    takeover_campaign.run(the_server(), rounds=3, seed=2)


def test_of_many_that_wait_one_at_a_time_has_it(url: str) -> None:
    active, most, order = [0], [0], threading.Lock()

    def serve() -> None:
        with closing(open_store(url, StillClock(), waits=lambda: None)) as store:
            with order:
                active[0] += 1
                most[0] = max(most[0], active[0])
            store.commit(changes_for(a_trial(number=store.queries.sequence() + 1)))
            with order:
                active[0] -= 1

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    with closing(open_store(url, StillClock())) as store:
        assert store.queries.sequence() == 4
