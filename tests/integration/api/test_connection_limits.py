"""Limits that hold before anybody is known, on real sockets."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from tests.api_server import serving
from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, ApiService, a_body
from tests.hostile_requests import probing
from tests.waiting import wait_until
from tuner_service.api import agents, connection_limits
from tuner_service.api.connection_limits import MAX_HEAD_BYTES, MAX_HEADERS

PATIENCE_S = 30.0
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
UPLOAD = (
    "POST /api/v1/experiments?dry_run=true HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    f"authorization: Bearer {ADMIN_TOKEN}\r\ncontent-length: %d\r\n\r\n"
)


class Door:
    """Opens connections to a service, all closed at the end."""

    def __init__(self, url: str, api: ApiService, stack: ExitStack) -> None:
        self.url, self.api = url, api
        self.port = int(url.rpartition(":")[2])
        self._stack = stack

    def open(self, receive_buffer: int | None = None) -> socket.socket:
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.settimeout(PATIENCE_S)
        connection.connect(("127.0.0.1", self.port))
        return self._stack.enter_context(connection)

    def sent(self, data: bytes) -> socket.socket:
        connection = self.open()
        connection.sendall(data)
        return connection


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    with serving(tmp_path) as api, ExitStack() as stack:
        yield Door(json.loads((tmp_path / "service.json").read_text())["url"], api, stack)


def answer_of(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, json.loads(response.read() or b"{}")


def is_closed(connection: socket.socket) -> bool:
    """Waits for the other side to hang up."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    return True


def is_served(door: Door) -> bool:
    return answer_of(door.sent(HEALTH))[0] == 200


# ── heads ───────────────────────────────────────────────────────────────────────────────────────
def test_a_header_without_an_end_is_refused_at_once_and_nobody_waits(door: Door) -> None:
    piece = b"a" * (1 << 20)
    with probing(door.url) as waits, pytest.raises(ConnectionError):  # noqa: PT012  # the loop is what is sent
        connection = door.sent(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: ")
        for _ in range(64):
            connection.sendall(piece)

    assert waits.longest_s < 1.5


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * MAX_HEAD_BYTES,
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * MAX_HEAD_BYTES,
        b"GET / HTTP/1.1\r\n" + b"x: 1\r\n" * (MAX_HEADERS + 1) + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"\x78" * 10 + b": 1\r\n" + b"y: 1\r\n" * (MAX_HEAD_BYTES // 6),
    ],
    ids=["request line", "header", "headers", "short headers"],
)
def test_a_head_beyond_a_limit_is_refused_with_431(door: Door, head: bytes) -> None:
    status, problem = answer_of(door.sent(head[: MAX_HEAD_BYTES + 100]))

    assert (status, problem["status"]) == (431, 431)
    assert is_served(door)


def test_a_head_as_long_as_it_may_be_is_read(door: Door) -> None:
    head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: "
    padding = MAX_HEAD_BYTES - len(head) - 5

    assert answer_of(door.sent(head + b"a" * padding + b"\r\n\r\n"))[0] == 200
    names = b"".join(b"x-%d: 1\r\n" % number for number in range(MAX_HEADERS - 1))
    assert answer_of(door.sent(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + names + b"\r\n"))[0] == 200


def test_what_is_not_http_is_refused_as_a_problem(door: Door) -> None:
    status, problem = answer_of(door.sent(b"HELO localhost\r\n\r\n"))

    assert (status, problem["title"]) == (400, "Bad Request")


@pytest.mark.parametrize("head", [b"", HEALTH[:20], HEALTH[:-2]], ids=["nothing", "a line", "no end"])
def test_a_head_that_does_not_come_is_not_waited_for(door: Door, head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_TIMEOUT_S", 0.2)

    status, problem = answer_of(door.sent(head))

    assert status == 408
    assert "0.2 s" in problem["detail"]


def test_the_time_for_a_head_holds_for_the_second_request_of_a_connection(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = door.sent(HEALTH)
    assert answer_of(connection)[0] == 200
    monkeypatch.setattr(connection_limits, "HEAD_TIMEOUT_S", 0.2)
    connection.sendall(HEALTH[:20])

    assert answer_of(connection)[0] == 408


def test_requests_one_behind_the_other_are_answered_in_order(door: Door) -> None:
    body = json.dumps(a_body(search_space={"a": {"_type": "choice", "_value": ["x" * 200_000]}})).encode()
    upload = (UPLOAD % len(body)).encode() + body
    connection = door.sent(HEALTH + upload + HEALTH + upload)
    stream = connection.makefile("rb")

    statuses = []
    for _ in range(4):
        statuses.append(int(stream.readline().split()[1]))
        headers = http.client.parse_headers(stream)
        stream.read(int(headers["content-length"]))
    assert statuses == [200, 200, 200, 200]
    stream.close()


# ── how many ────────────────────────────────────────────────────────────────────────────────────
def test_connections_that_ask_for_nothing_make_room_for_those_that_do(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 20)
    silent = [door.sent(HEALTH[: number % 30]) for number in range(60)]

    assert all(is_served(door) for _ in range(10))
    assert all(is_closed(connection) for connection in silent[:40])


def test_when_all_connections_are_asking_another_is_told_to_try_again(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 3)
    experiment_id = door.api.create()
    waiting = (
        f"GET /api/v1/experiments/{experiment_id}?wait_for=ended&timeout=60 HTTP/1.1\r\nhost: localhost\r\n"
        f"authorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
    )
    busy = [door.sent(waiting.encode()) for _ in range(3)]

    wait_until(lambda: answer_of(door.open())[0] == 503, timeout_s=PATIENCE_S)
    busy[0].close()
    wait_until(lambda: is_served(door), timeout_s=PATIENCE_S)


# ── bodies ──────────────────────────────────────────────────────────────────────────────────────
def test_a_body_that_does_not_come_is_not_waited_for(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "PROGRESS_TIMEOUT_S", 0.2)

    assert answer_of(door.sent((UPLOAD % 1_000).encode() + b"{"))[0] == 408


def test_a_body_that_nobody_reads_is_not_taken_for_ever(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "PROGRESS_TIMEOUT_S", 0.2)
    connection = door.sent((UPLOAD.replace(ADMIN_TOKEN, "nobody") % 1_000).encode() + b"{")

    assert answer_of(connection)[0] == 401
    assert is_closed(connection)


def test_a_body_that_comes_slowly_but_comes_is_read(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "PROGRESS_TIMEOUT_S", 1.0)
    monkeypatch.setattr(connection_limits, "LEAST_PROGRESS_BYTES", 1)
    body = json.dumps(a_body()).encode()
    connection = door.sent((UPLOAD % len(body)).encode())
    rest = list(body)
    looked = iter(range(1, 1 << 30))

    def send_some() -> bool:
        if next(looked) % 10 == 0:
            connection.sendall(bytes(rest[:20]))
            del rest[:20]
        return not rest

    wait_until(send_some, timeout_s=PATIENCE_S)
    assert answer_of(connection)[0] == 200


# ── answers ─────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def ask_for_much(door: Door) -> Callable[[], socket.socket]:
    """Asks for more than the buffers on the way can hold, and reads nothing."""
    experiment_id = door.api.create()
    for letter in "abcdef":
        space = {"a": {"_type": "choice", "_value": [letter * (3 << 20)]}}
        path = f"/api/v1/experiments/{experiment_id}/search-space"
        assert door.api.client.request("PUT", path, json={"search_space": space}).status_code == 200

    def ask() -> socket.socket:
        connection = door.open(receive_buffer=4_096)
        path = f"/api/v1/experiments/{experiment_id}/search-space/revisions"
        head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
        connection.sendall(head.encode())
        return connection

    return ask


def test_who_does_not_read_an_answer_is_hung_up_on(
    door: Door, ask_for_much: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "PROGRESS_TIMEOUT_S", 0.5)
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 1)
    ask_for_much()

    wait_until(lambda: is_served(door), timeout_s=PATIENCE_S)


def test_who_reads_an_answer_slowly_is_given_all_of_it(
    ask_for_much: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "PROGRESS_TIMEOUT_S", 1.0)
    monkeypatch.setattr(connection_limits, "IDLE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(connection_limits, "LEAST_PROGRESS_BYTES", 1)
    response = http.client.HTTPResponse(ask_for_much())
    response.begin()
    parts: list[bytes] = []

    def read_some() -> bool:
        parts.append(response.read(1 << 18))
        return not parts[-1]

    wait_until(read_some)
    assert int(response.headers["content-length"]) == sum(map(len, parts)) > 4 << 20
    assert len(json.loads(b"".join(parts))["items"]) == 3  # as many as one answer may hold: the first is small


# ── the agents' channel ─────────────────────────────────────────────────────────────────────────
def test_a_channel_without_a_token_is_not_opened_and_reads_nothing(door: Door) -> None:
    upgrade = (
        "GET /api/v1/agents/a/channel HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    connection = door.sent(upgrade.encode())

    assert answer_of(connection)[0] in {401, 403}
    assert is_closed(connection)


def test_a_channel_whose_agent_says_nothing_is_closed(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "HELLO_TIMEOUT_S", 0.2)
    url = door.url.replace("http", "ws") + "/api/v1/agents/local/channel"
    headers = {"Authorization": f"Bearer {AGENT_TOKEN}"}
    with connect(url, additional_headers=headers) as channel, pytest.raises(WebSocketException):
        channel.recv(timeout=PATIENCE_S)
