"""Streams of events of a real service: killed under them, ended under them, and read by nobody."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

TIMEOUT_S = 60.0
BODY = {
    "objective": {"metric": "loss", "goal": "minimize"},
    "search_space": {"lr": {"type": "float", "low": 0.0, "high": 1.0}},
    "tuner": {"name": "random"},
    "budget": {"trials": 1, "parallel": 1},
    "trial": {"command": "sleep 600"},
}


@contextmanager
def served(home: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, int]]:
    """A service on ``home``: its process, host and port."""
    (home / "service.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tuner_service.cli.main", "serve", "--home", str(home), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until((home / "service.json").exists)
        host, port = json.loads((home / "service.json").read_text())["url"].removeprefix("http://").split(":")
        yield process, host, int(port)
    finally:
        process.kill()
        process.wait()


class Events:
    """One stream, read line by line."""

    def __init__(self, home: Path, host: str, port: int, *, last: str = "", path: str = "/api/v1/events") -> None:
        self.home = home
        self._connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
        headers = {"Authorization": f"Bearer {(home / 'token').read_text().strip()}"}
        self._connection.request("GET", path, headers=headers | ({"Last-Event-ID": last} if last else {}))
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200

    def next(self) -> dict[str, Any] | None:
        """None once the service has ended the stream, or died."""
        fields: dict[str, str] = {}
        while True:
            try:
                line = self._answer.readline().decode()
            except (OSError, ValueError):
                return None
            if not line:
                return None
            if line == "\n" and "event" in fields:
                return {"event": fields["event"], "id": fields.get("id", ""), "data": json.loads(fields["data"])}
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value

    def rest(self) -> list[dict[str, Any]]:
        """What comes up to the end, after which nothing is open."""
        found = list(iter(self.next, None))
        self.close()
        return found

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def call(home: Path, host: str, port: int, method: str, path: str, body: Any = None) -> Any:
    connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
    headers = {
        "Authorization": f"Bearer {(home / 'token').read_text().strip()}",
        "Content-Type": "application/json",
    }
    connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert answer.status < 300, data
    return json.loads(data) if data else None


def names(events: list[dict[str, Any]]) -> dict[str, str]:
    """What the patches say the experiments are called, the later ones last."""
    return {e["id"]: e["name"] for event in events for e in event["data"].get("experiments", ())}


def ids(events: list[dict[str, Any]]) -> list[int]:
    return [int(event["id"].partition("-")[0]) for event in events if event["id"]]


def test_a_service_killed_under_its_streams_tells_the_rest_after_its_restart(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with served(tmp_path) as (process, host, port):
        stream = Events(tmp_path, host, port)
        experiment_id = call(tmp_path, host, port, "POST", "/api/v1/experiments", BODY)["id"]
        path = f"/api/v1/experiments/{experiment_id}"
        for number in range(20):
            call(tmp_path, host, port, "PATCH", path, {"name": f"name {number}"})
        process.send_signal(signal.SIGKILL)
        told += stream.rest()
    with served(tmp_path) as (_, host, port):
        last = [event["id"] for event in told if event["id"]][-1]
        stream = Events(tmp_path, host, port, last=last)
        again = stream.next()
        assert again is not None
        assert again["event"] == "patch"
        told.append(again)
        call(tmp_path, host, port, "PATCH", path, {"name": "the last"})
        while names(told).get(experiment_id) != "the last":
            event = stream.next()
            assert event is not None
            told.append(event)
        call(tmp_path, host, port, "POST", f"{path}/stop")
        stream.close()

    assert ids(told) == sorted(ids(told))
    assert names([again]).get(experiment_id, names(told[: told.index(again)]).get(experiment_id)) == "name 19"
    assert "gap" not in {event["event"] for event in told}


def test_open_streams_end_with_the_service_within_a_second_even_where_nobody_reads(tmp_path: Path) -> None:
    with served(tmp_path) as (process, host, port):
        streams = [Events(tmp_path, host, port) for _ in range(20)]
        deaf = socket.create_connection((host, port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        token = (tmp_path / "token").read_text().strip()
        request = f"GET /api/v1/events HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
        deaf.sendall(request.encode())
        before = time.monotonic()
        process.send_signal(signal.SIGTERM)
        rests = [stream.rest() for stream in streams]
        ended_s = time.monotonic() - before
        process.wait(TIMEOUT_S)
        deaf.close()

    assert ended_s < 1.0
    assert all(events[0]["event"] == "begin" for events in rests)
