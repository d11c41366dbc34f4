from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running
from tests.process_table import processes
from tests.waiting import wait_until
from trials.files import read_json
from trials.processes.ending import kill_tree


def _has_ended(pid: int) -> bool:
    return not is_running(pid)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Whatever a test leaves running under it is killed."""
    path = tmp_path / "home"
    yield path
    # Not by their state files: one that is still importing has none yet, and would run on for seconds.
    for pid in [pid for pid, words in processes() if any(word.startswith(f"{path}/agent/fork/") for word in words)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until(partial(_has_ended, pid))
    for folder in path.glob("attempts/*/*/*"):
        claim = read_json(str(folder / "claim.json"))
        kill_tree(None, folder.name.partition("-")[2])
        if claim is not None:
            pid = int(claim.get("pid", os.getpid()))
            if is_running(pid) and pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
                wait_until(partial(_has_ended, pid))


@pytest.fixture
def service(home: Path) -> Iterator[FakeService]:
    fake = FakeService(home)
    yield fake
    fake.close()


@pytest.fixture
def start_agent(home: Path, service: FakeService) -> Iterator[Callable[..., AgentProcess]]:
    """Start an agent and wait until it is connected."""
    agents: list[AgentProcess] = []

    def start(*arguments: str, **environment: str) -> AgentProcess:
        from trials.wire.messages import Hello

        before = len(service.of(Hello))
        agents.append(AgentProcess(home, *arguments, **environment))
        service.wait_for(Hello, count=before + 1)
        return agents[-1]

    yield start
    for agent in agents:
        agent.kill()


@pytest.fixture
def agent(start_agent: Callable[..., AgentProcess]) -> AgentProcess:
    return start_agent()
