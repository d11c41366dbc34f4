"""Unit tests and the simulation neither use the network, nor start processes, nor sleep: that is for tiers above."""

from __future__ import annotations

import socket
import subprocess
import time
from typing import Any, NoReturn

import pytest


class ForbiddenInThisTierError(AssertionError):
    """The test does what only integration tests may."""


def _forbidden(what: str) -> Any:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise ForbiddenInThisTierError(f"a test of this tier may not {what}; move it to tests/integration")

    return refuse


def _only_within_the_machine(method: Any) -> Any:
    def checked(self: socket.socket, address: Any) -> Any:
        if self.family != socket.AF_UNIX:
            _forbidden("use the network")()
        return method(self, address)

    return checked


@pytest.fixture(autouse=True)
def no_outside_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """``tests.waiting`` holds on to the real sleep: it is the one place that waits."""
    for name in ("connect", "bind"):
        monkeypatch.setattr(socket.socket, name, _only_within_the_machine(getattr(socket.socket, name)))
    monkeypatch.setattr(subprocess.Popen, "__init__", _forbidden("start a process"))
    monkeypatch.setattr(time, "sleep", _forbidden("sleep"))
