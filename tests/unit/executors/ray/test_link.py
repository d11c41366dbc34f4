"""What becomes of a bridge that ends, or says what is not understood."""

from __future__ import annotations

import io
import json
import os
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner_service.executor_options import RayOptions
from tuner_service.executors.ray.executor import RayExecutor
from tuner_service.executors.ray.link import BridgeLink


class Process:
    """Says ``said``, and has ended then."""

    pid = 1

    def __init__(self, said: bytes) -> None:
        self.stdin = Path("/dev/null").open("w")  # noqa: SIM115  closed by the link
        self.stdout = io.TextIOWrapper(io.BytesIO(said), encoding="utf-8")

    def kill(self) -> None:
        """It has ended."""

    def wait(self, _limit_s: float | None = None) -> int:
        return 3


NODES = {"kind": "nodes", "items": [], "lost": []}
Step = Callable[[float], RayExecutor]


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Step:
    """Of an executor whose bridges say what is set as ``said`` at ``started``."""
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.run)  # a bridge that is quicker than its executor
    executor = RayExecutor(
        folder=tmp_path, options=RayOptions(), lineage="l", key=str, submit=lambda _: Future(), now=lambda: 1.0
    )

    def made(at: float) -> RayExecutor:
        executor._see_to_bridge(at)
        return executor

    return made


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"what Ray prints\n",
        b"\xff\xfe\n",
        b"5\n",
        json.dumps({"kind": "nodes"}).encode() + b"\n",
        json.dumps({**NODES, "items": [{"agent": "a"}]}).encode() + b"\n",
        json.dumps(NODES).encode() + b"\n",
    ],
)
def test_a_bridge_that_ends_whatever_it_has_said_is_followed_by_another(
    said: bytes, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def start(command: list[str], **_: Any) -> Process:
        started.append(command)
        return Process(said)

    monkeypatch.setattr(subprocess, "Popen", start)

    executor = step(1.0)
    assert executor.view()["bridge_pid"] is None
    step(executor._next_bridge)

    assert len(started) == 2


def test_who_sends_to_a_bridge_that_was_stopped_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It reads nothing, and a pipe holds 64 KiB; once it reads, it is told all, in order."""
    reading, writing = os.pipe()
    process = Process(b"")
    process.stdin.close()
    process.stdin = os.fdopen(writing, "w")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    link = BridgeLink(folder=tmp_path, python="", is_of_own=False, on_frame=lambda _: None, on_end=lambda _: None)
    frames = [{"number": number, "text": "x" * 50_000} for number in range(4)]
    for frame in frames:
        link.send(frame)

    said = b""
    while said.count(b"\n") < len(frames):
        said += os.read(reading, 1 << 20)
        link.send_rest()
    os.close(reading)
    process.stdin.close()
    assert [json.loads(line) for line in said.splitlines()] == frames


@pytest.mark.parametrize("ends", ["by itself", "in order"])
def test_the_pipe_is_never_closed_while_a_thread_may_write_into_it(
    ends: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The number of a closed one may be another file's a moment later, which would get what was for the bridge."""
    closing: list[bool] = []
    process: Any = Process(b"")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    link = BridgeLink(folder=tmp_path, python="", is_of_own=False, on_frame=lambda _: None, on_end=lambda _: None)
    link._orders = SimpleNamespace(close=lambda: closing.append(link._sending.locked()))  # type: ignore[assignment]

    (link._read if ends == "by itself" else link.end)()
    process.stdin.close()

    assert closing == [True]
