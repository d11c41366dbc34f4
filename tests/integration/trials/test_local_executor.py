"""The agent of this machine is kept alive, also where it cannot be started for a while."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tuner_service.executors import local
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


def ended(process: subprocess.Popen[bytes]) -> None:
    """Also where its executor takes it for one that nobody waits for."""
    process.returncode = None
    process.kill()
    process.wait()


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
            ended(process)


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


def test_an_agent_is_told_which_process_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it knows that a service is on its way for as long as that opens its database."""
    commands = list[list[str]]()
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command))
    LocalExecutor(home=tmp_path, service_file=tmp_path / "service.json")._spawn()

    (command,) = commands
    assert command[command.index("--service-pid") + 1] == str(os.getpid())


class HeldHome:
    """A home whose agent is a process that holds its lock and does with SIGTERM as it was told."""

    def __init__(self, home: Path, *, obeys: bool) -> None:
        (home / "agent").mkdir()
        handled = "" if obeys else "signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        script = (
            "import fcntl, signal, sys, time; lock = open(sys.argv[1], 'wb'); fcntl.flock(lock, fcntl.LOCK_EX); "
            f"{handled}print(flush=True); time.sleep(600)"
        )
        command = [sys.executable, "-c", script, str(home / "agent" / "lock")]
        self.agent = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.agent.stdout is not None
        self.agent.stdout.readline()
        self.agent.stdout.close()


@pytest.mark.parametrize("obeys", [True, False])
def test_an_agent_of_another_version_that_does_not_leave_is_ended_and_one_of_its_own_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, obeys: bool
) -> None:
    spawns, other = Spawns(), HeldHome(tmp_path, obeys=obeys)
    monkeypatch.setattr(LocalExecutor, "_spawn", spawns)
    monkeypatch.setattr(local, "LEAVE_S", 0.05)
    monkeypatch.setattr(local, "LEAVE_AFTER_TERM_S", 0.05)
    executor = LocalExecutor(home=tmp_path, service_file=tmp_path / "service.json")
    executor.start()
    try:
        executor.dismiss(other.agent.pid)
        executor.dismiss(other.agent.pid)  # it connects again and again meanwhile
        assert other.agent.wait(timeout=180) == (-signal.SIGTERM if obeys else -signal.SIGKILL)
        wait_until(lambda: len(spawns.made) == 1)
    finally:
        executor.close()
        for process in (*spawns.made, other.agent):
            ended(process)


def test_a_process_that_is_not_the_agent_of_the_home_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawns = Spawns()
    monkeypatch.setattr(LocalExecutor, "_spawn", spawns)
    monkeypatch.setattr(local, "LEAVE_S", 0.0)
    executor = LocalExecutor(home=tmp_path, service_file=tmp_path / "service.json")
    executor.start()
    try:
        executor.dismiss(spawns.made[0].pid)  # it has no lock of this home open
        for nobody in (2**22, 2**70, 0, -1):
            executor.dismiss(nobody)
        assert executor._leaving is None
        assert spawns.made[0].poll() is None
    finally:
        executor.close()
        for process in spawns.made:
            ended(process)
