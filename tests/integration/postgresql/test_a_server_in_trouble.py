"""A server that is there and cannot do what it is asked: it is said so, and work goes on when it can."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.builders import EXPERIMENT_ID, StillClock, a_trial
from tests.contract.stores import changes_for
from tests.postgresql import Server, a_server, user_of_the_server
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.errors import UnavailableError
from tuner_service.storage.engine import open_store
from tuner_service.storage.postgresql import store as retrying

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[Server]:
    server = a_server("max_connections=12")
    yield server
    server.end()


@pytest.fixture
def small_disk(server: Server) -> Iterator[Path]:
    """Of 24 MiB, of which the database is on from its start."""
    place = server.folder / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"a disk that can be filled needs the right to mount one: {done.stderr.decode().strip()}")
    if (user := user_of_the_server()) is not None:
        shutil.chown(place, user)
    yield place
    server.stop()
    subprocess.run(["umount", "--lazy", place], check=True)


def assert_has_trials(store: Any, numbers: list[int]) -> None:
    assert [trial.number for trial in store.queries.trials(EXPERIMENT_ID)] == numbers


def take_connections(server: Server, held: ExitStack) -> None:
    """Until there are no more."""
    while True:
        held.enter_context(psycopg.connect(server.url("postgres")))


def fill(store: Any, saved: list[str]) -> None:
    while True:
        name = f"blob{len(saved)}"
        store.commit(Changes(blobs={name: random.Random(len(saved)).randbytes(2_000_000)}))
        saved.append(name)


def test_a_server_without_connections_is_said_to_and_used_when_it_has_some(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "RETRIED_S", 0.5)
    url = server.filled_database()
    with closing(open_store(url, StillClock())) as store, ExitStack() as others:
        store.commit(changes_for(a_trial(number=1)))
        assert_has_trials(store, [1])
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tuner-service%' "
            "AND query NOT LIKE '%tuner_services%'"
        )
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            take_connections(server, others)
        with pytest.raises(UnavailableError, match="too many clients"):
            store.commit(changes_for(a_trial(number=2)))
        with pytest.raises(UnavailableError, match="too many clients"):
            store.queries.experiments()

        others.close()
        store.commit(changes_for(a_trial(number=2)))
        assert_has_trials(store, [1, 2])


def test_a_full_disk_of_the_server_refuses_commits_and_they_work_when_there_is_room(
    server: Server, small_disk: Path
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(6 << 20))
    server.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    server.execute("CREATE DATABASE small TEMPLATE template0 TABLESPACE small ENCODING 'UTF8'")
    with closing(open_store(server.url("small"), StillClock())) as store:
        store.commit(changes_for(a_trial(number=1)))
        saved: list[str] = []
        with pytest.raises(UnavailableError, match=r"disk is full.*nothing was changed"):
            fill(store, saved)
        assert saved
        assert store.queries.blob(f"blob{len(saved)}") is None
        assert_has_trials(store, [1])

        ballast.unlink()
        store.commit(changes_for(a_trial(number=2)))
        assert_has_trials(store, [1, 2])
        assert all(store.queries.blob(name) is not None for name in saved)


def test_a_server_that_takes_no_writes_is_waited_for(server: Server) -> None:
    """As one that has just become a replica of another."""
    url = server.filled_database()
    name = url.split("@/")[1].partition("?")[0]
    with closing(open_store(url, StillClock())) as store:
        store.commit(changes_for(a_trial(number=1)))
        server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tuner%'")
        with pytest.raises(UnavailableError, match="takes no writes"):
            store.commit(changes_for(a_trial(number=2)))
        assert_has_trials(store, [1])

        server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tuner%'")
        store.commit(changes_for(a_trial(number=2)))
        assert_has_trials(store, [1, 2])
