"""The agent of this machine is kept alive, also where it cannot be started for a while."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tuner_service.executors.local import LocalExecutor


class Spawns:
    """Stands for the start of an agent: a process that sleeps, or the error of a machine without room for one."""

    def __init__(self) -> None:
        self.made: list[subprocess.Popen[bytes]] = []
        self.refused = 0
        self.refuse = False

    def __call__(self) -> subprocess.Popen[bytes]:
        if self.refuse:
            self.refused += 1
            raise BlockingIOError("Resource temporarily unavailable")
        self.made.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return self.made[-1]


def test_an_agent_that_cannot_be_started_for_a_while_is_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawns = Spawns()
    monkeypatch.setattr(LocalExecutor, "_spawn", spawns)
    executor = LocalExecutor(home=tmp_path, service_file=tmp_path / "service.json")
    executor.start()
    try:
        spawns.refuse = True
        spawns.made[0].kill()
        wait_until(lambda: spawns.refused >= 2)
        spawns.refuse = False
        wait_until(lambda: len(spawns.made) == 2)
    finally:
        executor.close()
        for process in spawns.made:
            process.kill()
            process.wait()


def test_where_no_agent_can_be_started_at_first_the_caller_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawns = Spawns()
    spawns.refuse = True
    monkeypatch.setattr(LocalExecutor, "_spawn", spawns)
    executor = LocalExecutor(home=tmp_path, service_file=tmp_path / "service.json")
    with pytest.raises(BlockingIOError):
        executor.start()
    executor.close()
