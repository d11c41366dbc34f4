"""What a standby reads of a real server: beside the active service, and while there is nothing to be read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.builders import EXPERIMENT_ID, START, StillClock, a_trial
from tests.contract.stores import changes_for
from tests.postgresql import the_server
from tests.waiting import wait_until
from tuner_service import standing_by
from tuner_service.config import Settings
from tuner_service.ports import StoredToken
from tuner_service.service.tokens import hash_of
from tuner_service.standing_by import Standby
from tuner_service.storage.engine import open_queries, open_store

pytestmark = pytest.mark.slow


def asked(standby: Standby, path: str, token: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        app = standby.app()
        assert app is not None
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as client:
            return await client.get(path, headers={"authorization": f"Bearer {token}"})

    return asyncio.run(ask())


@pytest.fixture
def url() -> str:
    return the_server().filled_database()


@pytest.fixture
def standby(url: str, tmp_path: Path) -> Iterator[Standby]:
    with closing(Standby(Settings(home=tmp_path, db=url))) as standby:
        standby.start()
        yield standby


def test_rows_are_read_as_they_are_committed_and_tokens_end_when_they_are_revoked(url: str, standby: Standby) -> None:
    with closing(open_store(url, StillClock(), url="http://127.0.0.1:8701")) as store:
        store.commit(changes_for(a_trial(number=1)))
        token = StoredToken(name="ann", role="read_only", sha256=hash_of("secret"), created_at=START)
        store.put_token(token)
        wait_until(lambda: standby.active() == "http://127.0.0.1:8701")
        wait_until(lambda: asked(standby, f"/api/v1/trials/{EXPERIMENT_ID}/1", "secret").status_code == 200)
        assert asked(standby, f"/api/v1/trials/{EXPERIMENT_ID}/2", "secret").status_code == 404
        store.commit(changes_for(a_trial(number=2)))
        wait_until(lambda: asked(standby, f"/api/v1/trials/{EXPERIMENT_ID}/2", "secret").status_code == 200)
        store.put_token(replace(token, revoked_at=START))
        wait_until(lambda: asked(standby, f"/api/v1/trials/{EXPERIMENT_ID}/2", "secret").status_code == 401)
    wait_until(lambda: standby.active() == "")


def test_whoever_only_reads_is_told_of_each_commit(url: str) -> None:
    with closing(open_store(url, StillClock())) as store, closing(open_queries(url)) as queries:
        assert queries.version_waits, "a server is asked, which is not for the event loop"
        versions = [queries.version()]
        for number in (1, 2):
            store.commit(changes_for(a_trial(number=number)))
            versions.append(queries.version())

    assert None not in versions
    assert len(set(versions)) == 3


def test_tables_of_another_version_are_not_read(url: str, standby: Standby) -> None:
    wait_until(lambda: standby.app() is not None)
    with psycopg.connect(url, autocommit=True) as connection:
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone() or ("",)
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        wait_until(lambda: standby.app() is None)
        connection.execute("UPDATE alembic_version SET version_num = %s", (revision,))
        wait_until(lambda: standby.app() is not None)


def test_whatever_a_look_meets_the_next_one_is_taken(
    url: str, standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str) -> None:
        raise ImportError("the package is being exchanged")

    with closing(open_store(url, StillClock(), url="http://127.0.0.1:8701")):
        wait_until(lambda: standby.active() == "http://127.0.0.1:8701")
        with monkeypatch.context() as broken:
            broken.setattr(standing_by, "services_of", fails)
            wait_until(lambda: standby.active() == "")
        wait_until(lambda: standby.active() == "http://127.0.0.1:8701")


def test_an_empty_database_is_waited_for(tmp_path: Path) -> None:
    url = the_server().new_database()
    with closing(Standby(Settings(home=tmp_path, db=url))) as standby:
        standby.start()
        assert (standby.app(), standby.active()) == (None, "")
        open_store(url, StillClock()).close()
        wait_until(lambda: standby.app() is not None)


def test_nobody_is_sent_to_the_standby_itself_while_it_takes_over(url: str, tmp_path: Path) -> None:
    mine, settings = "http://127.0.0.1:8701", Settings(home=tmp_path, db=url)
    with (
        closing(open_store(url, StillClock(), url=mine)),
        closing(Standby(settings, url=mine)) as me,
        closing(Standby(settings, url="http://127.0.0.1:8702")) as another,
    ):
        me.start()
        another.start()
        assert (me.active(), another.active()) == ("", mine)
