"""A connection that is kept open between two calls, and what the service may have done to it meanwhile."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from email.message import Message
from http.client import HTTPConnection
from typing import Any, Self

import pytest

from trials.agent.moving import service_files
from trials.wire.addresses import ACTIVE_HEADER
from tuner_service import client_http
from tuner_service.api.connection_limits import IDLE_TIMEOUT_S
from tuner_service.client import Client, UnreachableError
from tuner_service.client_http import KEPT_OPEN_S, UNAVAILABLE, Answer, ServiceConnection
from tuner_service.client_tls import NotTrustedError

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n{"decision":"continue"}'


class Service:
    """Its ends of the connections that a client opens; each answers as often as it was told, and then hangs up."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.requests: list[bytes] = []
        self._threads: list[threading.Thread] = []

    def opened(self, _url: str, *, timeout_s: float, **_: object) -> HTTPConnection:
        here, there = socket.socketpair()
        self.ends.append(there)
        connection = HTTPConnection("localhost", timeout=timeout_s)
        connection.auto_open, connection.sock = 0, here
        self._threads.append(threading.Thread(target=self._answer, args=(there, len(self.ends) == 1)))
        self._threads[-1].start()
        return connection

    def _answer(self, there: socket.socket, is_first: bool) -> None:
        """The first connection gives no answer to its second request."""
        for number in (1, 2):
            received = _request(there)
            if received:
                self.requests.append(received)
            if not received or (is_first and number == 2):
                break
            there.sendall(ANSWER)
        there.shutdown(socket.SHUT_RDWR)

    def hang_up(self) -> None:
        self.ends[-1].shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for thread in self._threads:
            thread.join()
        for end in self.ends:
            end.close()


def _request(there: socket.socket) -> bytes:
    """A whole one: its head and its body are sent one after the other. Empty where there is none."""
    head, received = b"", b""
    while not head.endswith(b"\r\n\r\n"):
        if not (byte := there.recv(1)):
            return b""
        head += byte
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length and len(received) < int(length[1]):
        received += there.recv(65536)
    return head + received


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service()
    monkeypatch.setattr(client_http, "opened", made.opened)
    with closing(made):
        yield made


@pytest.fixture
def client(service: Service) -> Iterator[Client]:  # to which it connects
    with closing(Client("http://localhost", "t")) as made:
        yield made


CHANGES: list[Callable[[Client], Any]] = [
    lambda client: client.stop("e"),
    lambda client: client.change("e", {}),
    lambda client: client.change_search_space("e", {}),
    lambda client: client.delete("e"),
    lambda client: client.tell("e", {}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_the_service_has_closed_the_connection_goes_over_a_new_one(
    service: Service, client: Client, change: Callable[[Client], Any]
) -> None:
    client.health()
    service.hang_up()

    change(client)

    assert [len(service.ends), len(service.requests)] == [2, 2]


def test_a_connection_that_is_idle_for_nearly_as_long_as_a_service_keeps_it_is_not_used(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.health()
    later = client_http.monotonic() + KEPT_OPEN_S
    monkeypatch.setattr(client_http, "monotonic", lambda: later)

    client.stop("e")

    assert len(service.ends) == 2


def test_clients_let_go_of_a_connection_before_the_service_does() -> None:
    assert max(KEPT_OPEN_S, service_files.KEPT_OPEN_S) < IDLE_TIMEOUT_S


@pytest.mark.parametrize("change", [CHANGES[2], CHANGES[4]])
def test_what_may_be_repeated_is_where_the_connection_ends_without_an_answer(
    service: Service, client: Client, change: Callable[[Client], Any]
) -> None:
    client.health()

    change(client)

    assert [len(service.ends), len(service.requests)] == [2, 3]


@pytest.mark.parametrize("change", [CHANGES[0], CHANGES[3]])
def test_what_may_not_be_repeated_is_not(service: Service, client: Client, change: Callable[[Client], Any]) -> None:
    client.health()

    with pytest.raises(UnreachableError):
        change(client)

    assert [len(service.ends), len(service.requests)] == [1, 2]


def test_what_a_service_is_known_by_is_read_again_before_it_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may run for longer than a CA is used."""
    file, shown = ["old"], ["old"]

    def opened(_url: str, *, tls: Callable[[], Any], **_: object) -> HTTPConnection:
        if tls() != shown[0]:
            raise NotTrustedError("who is that?")
        connection = HTTPConnection("localhost")
        connection.sock = socket.socket()
        return connection

    monkeypatch.setattr(client_http, "opened", opened)
    service = ServiceConnection("https://there", "t", tls=lambda: file[0])  # type: ignore[arg-type, return-value]
    service._connect(1.0)
    service.close()
    file[0] = shown[0] = "new"
    service._connect(1.0)
    service.close()
    shown[0] = "of a stranger"
    for _ in range(2):
        with pytest.raises(NotTrustedError):
            service._connect(1.0)
    file[0] = "of a stranger"
    service._connect(1.0)
    service.close()


class InTurn:
    """A connection that gives to each request its target, in the order in which they came."""

    status, headers = 200, Message()

    def __init__(self) -> None:
        self.sock: Any = socket.socket()
        self.targets: list[str] = []

    def request(self, _method: str, target: str, **_: object) -> None:
        self.targets.append(target)

    def getresponse(self) -> Self:
        return self

    def read(self) -> bytes:
        return self.targets.pop(0).encode()

    def close(self) -> None:
        self.sock.close()


def test_what_was_asked_for_ahead_is_the_answer_of_no_other_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_http, "opened", lambda *_, **__: InTurn())
    with closing(ServiceConnection("http://localhost", "t")) as connection:
        connection._ask("/a", {})
        assert connection.call("GET", "/b").data == b"/b"
        connection._ask("/a", {})
        assert connection.call("GET", "/a").data == b"/a"


@pytest.mark.parametrize(("admit", "url"), [(None, "http://127.0.0.1:2"), (lambda _: None, "http://127.0.0.1:1")])
def test_a_standby_sends_nobody_on_who_knows_the_service_by_its_home(admit: Any, url: str) -> None:
    connection = ServiceConnection("http://127.0.0.1:1", "t", admit=admit)
    answer = Answer(status=UNAVAILABLE, headers={ACTIVE_HEADER: "http://127.0.0.1:2"}, data=b"")

    connection._is_sent_on(answer)
    assert connection.url == url
