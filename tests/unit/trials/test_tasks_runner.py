"""What a node says where its machine has nothing to spare."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from trials.tasks import runner
from trials.tasks.runner import Runner


class Node:
    """A runner, and what it has said."""

    def __init__(self, folder: Path) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.runner = Runner(-1, self._writing, folder)

    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in os.read(self._reading, 1 << 16).splitlines()]

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(runner, "Waker", lambda _: SimpleNamespace(descriptor=-1))
    node = Node(tmp_path)
    yield node
    node.close()


@pytest.mark.parametrize("name", ["pipe2", "memfd_create"])
def test_a_step_that_cannot_be_given_to_a_process_fails_its_job_and_not_the_node(
    name: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise OSError(24, "Too many open files")

    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(os, name, refuse)
        instance = {"command": [], "environment": {}}
        order = {"do": "run", "job": "j", "instances": [instance, instance], "plan": "e30=", "interval_ms": 5}
        node.runner._follow(order)

    failure = {"instance": 0, "why": "cannot start: Too many open files", "code": None}
    assert node.said() == [{"event": "ended", "job": "j", "failure": failure}]
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
