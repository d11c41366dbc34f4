"""Unit tests neither open sockets, nor start processes, nor sleep: what does belongs to a tier above."""

from __future__ import annotations

import socket
import subprocess
import time
from typing import Any, NoReturn

import pytest


class ForbiddenInUnitTestError(AssertionError):
    """The test does what only integration tests may."""


def _forbidden(what: str) -> Any:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise ForbiddenInUnitTestError(f"a unit test may not {what}; move it to tests/integration")

    return refuse


@pytest.fixture(autouse=True)
def no_outside_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _forbidden("connect a socket"))
    monkeypatch.setattr(socket.socket, "bind", _forbidden("bind a socket"))
    monkeypatch.setattr(subprocess.Popen, "__init__", _forbidden("start a process"))
    monkeypatch.setattr(time, "sleep", _forbidden("sleep"))
