"""Requests to a service elsewhere go over connections that are open already."""

from __future__ import annotations

import http.client
import time
from pathlib import Path
from typing import Any

import pytest

from trials.agent.moving.service_files import KEPT_OPEN_S, ServiceFiles
from trials.agent.ways import ServiceAddress
from trials.wire.remote_files import OFFSET, PIECE_BYTES


class Answer:
    """Of a service that takes what it is sent, from ``offset`` on."""

    def __init__(self, status: int, offset: int) -> None:
        self.status, self.headers = status, {OFFSET: str(offset)}
        self.length, self.will_close = 0, False

    def read(self, _size: int = -1) -> bytes:
        return b""

    def isclosed(self) -> bool:
        return True


class Service:
    """Has ``here`` bytes of what is sent. ``hangs_up``: it has closed the connections that were left open."""

    def __init__(self, here: int = 0) -> None:
        self.here, self.hangs_up = here, False
        self.asked: list[tuple[str, int]] = []
        self.opened = 0
        self.url = "http://one:1"

    def address(self) -> ServiceAddress:
        return ServiceAddress(url=self.url)

    def token(self) -> str:
        return "t"

    def connection(self, _address: ServiceAddress) -> Any:
        self.opened += 1
        return Connection(self)


class Connection:
    def __init__(self, service: Service) -> None:
        self._service, self._was_used, self._answer = service, False, Answer(204, 0)

    def request(self, method: str, _target: str, *, body: bytes | None, headers: dict[str, str]) -> None:
        service = self._service
        if self._was_used and service.hangs_up:
            raise http.client.RemoteDisconnected("it has hung up")
        self._was_used = True
        offset = int(headers.get(OFFSET, 0))
        service.asked.append((method, offset))
        taken = method == "PUT" and offset == service.here
        service.here += len(body or b"") if taken else 0
        self._answer = Answer(200 if method == "GET" else 204 if taken else 409, service.here)

    def getresponse(self) -> Answer:
        return self._answer

    def close(self) -> None: ...


def files_of(service: Service, monkeypatch: pytest.MonkeyPatch) -> ServiceFiles:
    files = ServiceFiles(service, agent_id="a")  # type: ignore[arg-type]
    monkeypatch.setattr(files, "_connection", service.connection)
    return files


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    return path


def test_a_file_of_one_piece_takes_one_request_and_the_next_one_no_other_connection(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service()
    files = files_of(service, monkeypatch)
    for _ in range(3):
        service.here = 0
        files.put_file(str(source), "tuner:///logs/x")

    assert (service.asked, service.opened) == ([("PUT", 0)] * 3, 1)


def test_a_file_of_one_piece_goes_on_where_an_earlier_agent_came_to(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(here=4)
    files_of(service, monkeypatch).put_file(str(source), "tuner:///logs/x")

    assert (service.asked, service.here) == ([("PUT", 0), ("PUT", 4)], 10)


def test_a_longer_file_is_asked_for_before_it_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, service = tmp_path / "long", Service(here=PIECE_BYTES)
    path.write_bytes(bytes(PIECE_BYTES + 1))
    files_of(service, monkeypatch).put_file(str(path), "tuner:///logs/x")

    assert service.asked == [("GET", 0), ("PUT", PIECE_BYTES)]


@pytest.mark.parametrize("why", ["hung up on", "old", "of another service"])
def test_a_connection_that_is_no_good_any_more_is_replaced(
    why: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service()
    files = files_of(service, monkeypatch)
    files.put_file(str(source), "tuner:///logs/x")
    service.here, service.hangs_up = 0, why == "hung up on"
    if why == "old":
        now = time.monotonic() + KEPT_OPEN_S
        monkeypatch.setattr(time, "monotonic", lambda: now)
    if why == "of another service":
        service.url = "http://two:1"
    files.put_file(str(source), "tuner:///logs/x")

    assert (service.here, service.opened) == (10, 2)
