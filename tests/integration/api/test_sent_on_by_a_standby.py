"""A client with the address of a standby: what that does not answer is asked of the active service."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.api_server import serving
from tests.api_service import ADMIN_TOKEN, ApiService, a_body
from tuner_service.api.standby import StandbyApp, StandbyServer
from tuner_service.client import Client, ProblemError, UnreachableError
from tuner_service.local_service import read_service_file
from tuner_service.program.lines import settings_for


@contextmanager
def a_standby(active: list[str]) -> Iterator[str]:
    """Its address; the last in ``active`` is what it says of the active service."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = StandbyServer(listening, StandbyApp(lambda: active[-1]))
        server.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.stop()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiService]:
    with serving(tmp_path) as api:
        yield api


@pytest.fixture
def active(api: ApiService, tmp_path: Path) -> str:
    described = read_service_file(settings_for(tmp_path, None, None, None))
    assert described is not None
    return str(described["url"])


def test_a_change_and_a_read_reach_the_active_service(active: str) -> None:
    with a_standby([active]) as url, closing(Client(url, ADMIN_TOKEN)) as client:
        created = client.create(a_body())
        assert [one["id"] for one in client.experiments()] == [created["id"]]
        assert client.url == active
        assert client.another().url == active


def test_a_stream_reaches_the_active_service(active: str) -> None:
    with a_standby([active]) as url, closing(Client(url, ADMIN_TOKEN)) as client:
        created = client.create(a_body())
        client.url = url
        events = client.events(created["id"])
        assert b"event:" in next(events)
        assert client.url == active
        del events  # which lets go of the connection


def test_a_token_that_the_active_service_does_not_know_is_refused_there(active: str) -> None:
    with a_standby([active]) as url, closing(Client(url, "another")) as client:
        with pytest.raises(ProblemError) as refused:
            client.experiments()
        assert refused.value.status == 401


def test_without_an_active_service_the_standby_is_what_answers() -> None:
    with a_standby([""]) as url, closing(Client(url, ADMIN_TOKEN)) as client:
        with pytest.raises(ProblemError, match="nobody is active at this moment"):
            client.experiments()
        assert client.url == url


def test_an_address_beyond_the_rules_is_not_gone_to() -> None:
    with a_standby(["http://192.0.2.1:1"]) as url, closing(Client(url, ADMIN_TOKEN)) as client:
        assert client.readiness()["active"] == "http://192.0.2.1:1"
        with pytest.raises(ProblemError) as refused:
            client.experiments()
        assert refused.match(r"the active one is http://192\.0\.2\.1:1")


def test_standbys_that_name_each_other_are_not_asked_for_ever() -> None:
    first, second = [""], [""]
    with a_standby(first) as one, a_standby(second) as other, closing(Client(one, ADMIN_TOKEN)) as client:
        first.append(other)
        second.append(one)
        with pytest.raises(ProblemError, match="this service is a standby"):
            client.experiments()
        with pytest.raises(ProblemError, match="this service is a standby"):
            next(client.events("x"))


def test_when_the_active_one_is_gone_whoever_named_it_is_asked_again(active: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    with a_standby([active]) as url, closing(Client(url, ADMIN_TOKEN)) as client:
        client.experiments()
        client.close()
        client.url = gone  # as if it had ended
        assert client.experiments() == []
        assert client.url == active
        client.close()
        client.url = gone
        with pytest.raises(UnreachableError):  # a change that may have arrived is not repeated
            client.create(a_body())
        client.create(a_body())
        assert client.url == active
