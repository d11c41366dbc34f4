"""The client on real sockets: connections that break, answers that are none, the agents' channel."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.api_server import serving
from tests.api_service import ADMIN_TOKEN, READ_ONLY_TOKEN, a_body
from tuner_service.client import (
    Client,
    ClientError,
    ProblemError,
    TokenWithheldError,
    UnreachableError,
    UnsendableError,
)
from tuner_service.config import Settings
from tuner_service.local_service import find_service

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def settings_of(home: Path) -> Settings:
    return Settings(home=home, db=f"sqlite:///{home}/tuner.db")


@contextmanager
def answering(*answers: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives each connection one answer and closes it; None: closes without one. Yields what came."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    received.append(connection.recv(65536))
                    if answer is not None:
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", received
        thread.join()


def test_a_read_is_repeated_on_a_fresh_connection_when_the_old_one_was_closed() -> None:
    with answering(ANSWER, ANSWER) as (url, received):
        client = Client(url, "t")
        client.call("GET", "/a")
        client.call("GET", "/b")
        client.close()

    assert [request.split()[1] for request in received] == [b"/a", b"/b"]


def test_a_command_that_may_have_arrived_is_not_repeated() -> None:
    with answering(ANSWER, None) as (url, received):
        client = Client(url, "t")
        client.call("GET", "/a")
        client.close()
        with pytest.raises(UnreachableError):
            client.call("POST", "/b", body={})

    assert len(received) == 2


def test_a_service_that_does_not_answer_in_time_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}", "t")
        with pytest.raises(UnreachableError, match=r"within 0\.05 s"):
            client.call("GET", "/", timeout_s=0.05)


def test_an_answer_that_is_no_problem_is_still_an_error() -> None:
    with answering(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops") as (url, _):
        client = Client(url, "t")
        with pytest.raises(ProblemError, match="answered 502"):
            client.call("GET", "/")
        client.close()


def test_another_process_at_the_old_address_is_not_taken_for_the_service(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with answering(ANSWER) as (url, _):
        (tmp_path / "service.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))

        assert find_service(settings_of(tmp_path)) is None


OTHER_PROCESS = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    connection, _ = listening.accept()
    print(len(connection.recv(65536)), flush=True)
"""


@contextmanager
def another_process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """One that listens, and says how many bytes it was sent."""
    with subprocess.Popen([sys.executable, "-c", OTHER_PROCESS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"


def bytes_sent(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_process_that_took_the_address_of_the_service_is_sent_nothing(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with another_process() as (process, url):
        (tmp_path / "service.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))

        assert find_service(settings_of(tmp_path)) is None

        assert bytes_sent(process) == 0


def test_a_process_that_takes_the_address_while_a_command_runs_is_sent_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as api:
        api.create()
        client = find_service(settings_of(tmp_path))
        assert client is not None
        assert len(client.experiments()) == 1
    client.close()
    with another_process() as (process, url):
        (tmp_path / "service.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        client.url = url

        with pytest.raises(UnreachableError, match="another process than"):
            client.experiments()

        assert bytes_sent(process) == 0


def test_the_token_of_a_home_is_not_sent_to_a_url(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with another_process() as (process, url):
        settings = replace(settings_of(tmp_path), url=url, origins={"token": "default", "url": "flag"})

        with pytest.raises(TokenWithheldError, match="set TUNER_TOKEN"):
            find_service(settings)

        process.kill()


def test_the_service_of_the_home_may_also_be_named_by_its_address(tmp_path: Path) -> None:
    with serving(tmp_path):
        url = json.loads((tmp_path / "service.json").read_text())["url"]
        settings = replace(settings_of(tmp_path), url=url, origins={"token": "default", "url": "flag"})

        client = find_service(settings)

        assert client is not None
        assert client.experiments() == []
        client.close()


def test_a_token_that_was_given_with_a_url_goes_there(tmp_path: Path) -> None:
    origins = {"token": "environment", "url": "environment"}
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{'items':[],'next':null}".replace(b"'", b'"')) as (
        url,
        received,
    ):
        client = find_service(replace(settings_of(tmp_path), url=url, token="given", origins=origins))
        assert client is not None
        assert client.agents() == []
        client.close()

    assert b"Bearer given" in received[0]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with another_process() as (process, elsewhere):
        redirect = f"HTTP/1.1 {status} Moved\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n".encode()
        with answering(redirect) as (url, _):
            client = Client(url, "t")
            with pytest.raises(ProblemError, match=f"answered {status}"):
                client.call("GET", "/")
            client.close()
        assert process.poll() is None
        process.kill()


def test_a_proxy_for_the_web_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with answering(ANSWER) as (url, received):
        client = Client(url, "t")
        client.call("GET", "/a")
        client.close()

    assert len(received) == 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"pid": "x", "url": "y"}'])
def test_a_service_file_that_is_none_means_no_service(tmp_path: Path, content: str) -> None:
    (tmp_path / "service.json").write_text(content)

    assert find_service(settings_of(tmp_path)) is None


@pytest.mark.parametrize("damaged", [b"\xff\xfe", "t\u00f6".encode(), b"a\nb", b"a\0b"])
def test_a_damaged_token_file_is_named(tmp_path: Path, damaged: bytes) -> None:
    with serving(tmp_path):
        (tmp_path / "token").write_bytes(damaged)

        with pytest.raises(ClientError, match="token is damaged; remove it"):
            find_service(settings_of(tmp_path))


@pytest.mark.parametrize("key", ["\u20ac", "a\nb", "a\r\nX-Evil: 1", "\udcff", "\u00e4", "a\0"])
def test_a_key_that_no_header_takes_is_refused_before_anything_is_sent(key: str) -> None:
    client = Client("http://127.0.0.1:9", "t")
    with pytest.raises(UnsendableError, match="Idempotency-Key is one line"):
        client.create({}, key=key)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_body_that_json_has_no_form_for_is_refused_before_anything_is_sent(number: float) -> None:
    with pytest.raises(UnsendableError, match="cannot be written as JSON"):
        Client("http://127.0.0.1:9", "t").set_quota_group("g", {"gpus": number})


def test_a_name_that_is_no_text_is_the_name_of_nothing(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe")
    with serving(tmp_path) as api:
        api.create()
        client = find_service(settings_of(tmp_path))
        assert client is not None
        for call in (
            lambda: client.experiment(name),
            lambda: client.trial(name, 1),
            lambda: client.delete_quota_group(name),
        ):
            with pytest.raises(ProblemError, match="there is no"):
                call()
        with pytest.raises(ProblemError, match="wrong with the request"):
            client.trials("e1", {"status": name})
        client.close()


def test_a_service_is_found_and_lists_are_read_through_all_pages(tmp_path: Path) -> None:
    with serving(tmp_path) as api:
        for number in range(5):
            api.create(a_body(name=f"n{number}"))
        client = find_service(settings_of(tmp_path))
        assert client is not None

        found = list(client._pages("/api/v1/experiments", {}, page=2))

        assert {experiment["name"] for experiment in found} == {f"n{number}" for number in range(5)}
        client.close()


def page(numbers: list[int], following: str | None) -> bytes:
    data = json.dumps({"columns": {"number": numbers}, "next": following}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:  # the client left an answer unread
        return b""


@contextmanager
def answering_in_turn(*answers: bytes | None) -> Iterator[tuple[str, queue.Queue[bytes]]]:
    """A server that gives these answers, on one connection until a None closes it. Yields the paths as they come."""
    asked: queue.Queue[bytes] = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            for answer in answers:
                while not (received := _received(connection)):  # the client began a connection of its own accord
                    connection.close()
                    connection, _ = listening.accept()
                asked.put(received.split()[1])
                if answer is None:
                    connection.close()
                    connection, _ = listening.accept()
                else:
                    connection.sendall(answer)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        thread.join()


def test_the_next_page_of_a_table_is_asked_for_before_the_one_before_is_worked_on() -> None:
    with answering_in_turn(page([1, 2], "c"), page([3], None)) as (url, asked):
        client = Client(url, "t")
        pages = client.table("e", ("number",))

        first = next(pages)
        asked_meanwhile = [asked.get(timeout=180), asked.get(timeout=180)]

        assert first == [[1, 2]]
        assert b"cursor=c" in asked_meanwhile[1]
        assert list(pages) == [[[3]]]
        client.close()


def test_a_page_that_was_asked_for_in_vain_is_asked_for_again() -> None:
    with answering_in_turn(page([1], "c"), None, page([2], None)) as (url, asked):
        client = Client(url, "t")

        assert list(client.table("e", ("number",))) == [[[1]], [[2]]]
        assert asked.qsize() == 3
        client.close()


def test_an_answer_that_nobody_waits_for_any_more_is_not_given_to_another_call() -> None:
    with answering_in_turn(page([1], "c"), page([2], None), ANSWER) as (url, asked):
        client = Client(url, "t")
        next(client.table("e", ("number",)))
        asked.get(timeout=180), asked.get(timeout=180)

        assert client.call("GET", "/another").json() == {}
        client.close()


@pytest.mark.parametrize("token", [None, "wrong", READ_ONLY_TOKEN])
def test_the_agents_channel_is_closed_to_everybody_but_agents(tmp_path: Path, token: str | None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with serving(tmp_path):
        url = json.loads((tmp_path / "service.json").read_text())["url"].replace("http", "ws")

        with pytest.raises(InvalidStatus), connect(f"{url}/api/v1/agents/a/channel", additional_headers=headers):
            pass


def test_the_agents_channel_is_closed_to_pages_of_other_origins(tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Origin": "https://evil.example"}
    with serving(tmp_path):
        url = json.loads((tmp_path / "service.json").read_text())["url"].replace("http", "ws")

        with pytest.raises(InvalidStatus), connect(f"{url}/api/v1/agents/a/channel", additional_headers=headers):
            pass
