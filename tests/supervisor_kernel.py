"""A server of supervisors without processes: what the kernel would answer it, and what it tells its agent."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest

from trials.agent.forks import supervising
from trials.agent.forks.supervising import SupervisorServer


class Kernel:
    """Forks are numbers from 7 on. One fails with each of ``errors``, and all while ``error`` is set; ``ended`` are to
    be reaped.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.error = 100.0, 0
        self.forked: list[int] = []
        self.errors: list[int] = []
        self.ended: list[tuple[int, int]] = []
        monkeypatch.setattr(supervising, "fork", self.fork)
        monkeypatch.setattr(os, "waitpid", self.waitpid)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def fork(self) -> int:
        error = self.errors.pop(0) if self.errors else self.error
        if error:
            raise OSError(error, os.strerror(error))
        self.forked.append(len(self.forked) + 7)
        return self.forked[-1]

    def waitpid(self, _pid: int, _flags: int) -> tuple[int, int]:
        return self.ended.pop(0) if self.ended else (0, 0)


class ToldServer(SupervisorServer):
    """``told``: the nonces that it has woken its agent for."""

    def __init__(self) -> None:
        super().__init__({"wake": "", "orders": "o", "key": "k", "id": "1"})
        self.told: list[str] = []
        claim = {"pid": 1, "orders": "o"}
        self._parent = SimpleNamespace(claim=claim, wake_agent=lambda nonce, _: self.told.append(nonce))  # type: ignore[assignment]
