"""What becomes of a bridge that ends, or says what is not understood."""

from __future__ import annotations

import io
import json
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tuner_service.executor_options import RayOptions
from tuner_service.executors.ray.executor import RayExecutor


class Process:
    """Says ``said``, and has ended then."""

    pid = 1

    def __init__(self, said: bytes) -> None:
        self.stdin, self.stdout = io.StringIO(), io.TextIOWrapper(io.BytesIO(said), encoding="utf-8")

    def kill(self) -> None:
        """It has ended."""

    def wait(self) -> int:
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
