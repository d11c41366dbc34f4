"""An address at which something else answers: every call says so, and none ends in an error of Python's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tuner_service import Experiment, Service, Trial, TunerError, connect, quick_start

EXPERIMENT = {
    "id": "8f3k2", "name": "x", "status": "running", "reason": "none", "message": "", "counts": {}, "running_s": 0,
    "budget": {"trials": 1, "duration": None, "parallel": 1}, "best": None, "ok": True,
    "objective": {"metric": "loss", "goal": "minimize"},
}  # fmt: skip
TRIAL = {"number": 1, "status": "running", "parameters": {}, "value": None, "final": {}}
ODD = {
    "a page": b"<html>hello", "nothing": b"", "null": b"null", "a list": b"[]", "a number": b"5", "a text": b'"x"',
    "items of another kind": b'{"items": 5, "next": null}', "odd items": b'{"items": [5], "next": null}',
    "an odd id": b'{"id": 5}', "very deep": b"[" * 100_000, "many digits": b'{"a": ' + b"9" * 5_000 + b"}",
}  # fmt: skip


class Elsewhere(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    status, data = 200, b""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()
        self.wfile.write(self.data)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer  # noqa: N815  # as that class calls them

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_HOME", str(tmp_path / "home"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(Elsewhere, "data", json.dumps(EXPERIMENT).encode())
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def calls(service: Service, address: str) -> dict[str, Callable[[], Any]]:
    one, trial = Experiment(service.line, EXPERIMENT), Trial(service.line, "8f3k2", TRIAL)
    return {
        "connect": lambda: connect(url=address, token="t"), "experiments": service.experiments,
        "experiment": lambda: service.experiment("a"), "show": one.show, "status": lambda: one.status,
        "best": lambda: one.best, "trials": one.trials, "trial": lambda: one.trial(1),
        "wait": lambda: one.wait(timeout=0), "ask": lambda: one.ask(timeout=0), "logs": trial.logs,
        "follow_logs": lambda: list(trial.follow_logs()), "download": lambda: trial.download("left"),
        "to_pandas": one.to_pandas, "export": lambda: one.export("x.csv"), "space": one.space,
        "space_revisions": one.space_revisions, "devices": service.devices, "add": lambda: one.add({"x": 1}),
        "set_quota_group": lambda: service.set_quota_group("a"), "pause": one.pause,
        "quick_start": lambda: quick_start(command="true", objective="loss", trials=1, service=service),
    }  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("status", [200, 404, 500])
def test_what_something_else_answers_is_an_error_of_its_own(
    address: str, monkeypatch: pytest.MonkeyPatch, odd: str, status: int
) -> None:
    service = connect(url=address, token="t")
    monkeypatch.setattr(Elsewhere, "data", ODD[odd])
    monkeypatch.setattr(Elsewhere, "status", status)

    refused = {name: said_by(call) for name, call in calls(service, address).items()}
    service.close()
    assert all(len(text) < 1_000 for text in refused.values())
    assert status == 200 or all(refused.values()), refused


def said_by(call: Callable[[], Any]) -> str:
    """What its TunerError says; empty where there was none. Any other error ends the test."""
    try:
        call()
    except TunerError as error:
        return str(error)
    return ""
