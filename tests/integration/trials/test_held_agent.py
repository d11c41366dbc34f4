"""An agent that lives no longer than its holder, below a keeper, as a node of Ray runs it; without any Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.harness import is_running
from tests.process_table import processes
from tests.waiting import PATIENCE_S, wait_until
from trials.agent.held import ORPHAN_GRACE_S, order_in
from trials.wire.programs import KEEPER

LEAVE_S = 100


@dataclass
class Held:
    home: Path
    keeper: subprocess.Popen[bytes]

    def pids(self, module: str) -> list[int]:
        return [pid for pid, words in processes() if module in words and str(self.home) in words]

    def agent(self) -> int:
        """Of one that serves the home."""
        wait_until((self.home / "agent" / "agent.log").exists)
        return wait_until(lambda: self.pids("trials.agent"))[0]

    def let_go(self) -> None:
        assert self.keeper.stdin is not None
        self.keeper.stdin.close()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    home = tmp_path / "node"
    command = [sys.executable, "-I", "-S", str(KEEPER), "--unbounded", str(LEAVE_S), str(tmp_path / "kept"), "0"]
    command += [sys.executable, "-P", "-m", "trials.agent.held", "--home", str(home), "--", "--agent-id", "n1"]
    environment = {**os.environ, "PYTHONPATH": str(KEEPER.parents[2]), "TUNER_AGENT_IDLE_EXIT_S": "600"}
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    yield Held(home, keeper)
    if keeper.poll() is None:
        keeper.terminate()
    keeper.wait(PATIENCE_S)
    keeper.stdin.close()  # type: ignore[union-attr]  # it is a pipe


def test_an_agent_that_dies_is_started_again(held: Held) -> None:
    first = held.agent()
    os.kill(first, signal.SIGKILL)

    wait_until(lambda: any(pid != first and is_running(pid) for pid in held.pids("trials.agent")))


def test_nothing_is_left_when_the_holder_is_gone(held: Held) -> None:
    agent = held.agent()
    held.let_go()

    assert held.keeper.wait(PATIENCE_S) == 0
    assert not is_running(agent)
    assert not held.home.exists()


def test_an_order_ends_it_while_the_holder_is_there(held: Held) -> None:
    agent = held.agent()
    assert held.keeper.stdin is not None
    held.keeper.stdin.write(b"end 0\n")
    held.keeper.stdin.flush()

    assert held.keeper.wait(PATIENCE_S) == 0
    assert not is_running(agent)
    assert not held.home.exists()


def test_whoever_kills_the_keeper_kills_what_holds_the_agent(held: Held) -> None:
    held.agent()
    holders = held.pids("trials.agent.held")
    held.keeper.kill()

    wait_until(lambda: not any(map(is_running, holders)))
    left = held.pids("trials.agent")
    # The next keeper of the folder ends what this one left.
    subprocess.run([*held.keeper.args[:8], "true"], stdin=subprocess.PIPE, check=True, timeout=180)  # type: ignore[index,misc]  # a list
    assert not any(map(is_running, left))


@pytest.mark.parametrize(
    ("said", "grace_s"),
    [
        (b"", ORPHAN_GRACE_S),
        (b"end 30\n", 30.0),
        (b"end soon\n", ORPHAN_GRACE_S),
        (b"end -4\n", 0.0),
        (b"stay\n", None),
    ],
)
def test_an_order_is_read_from_what_comes(said: bytes, grace_s: float | None) -> None:
    assert order_in(said) == grace_s
