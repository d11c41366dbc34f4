"""An agent of the version before with this service, and this agent with a service of the version before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.harness import ROOT, Home
from tests.waiting import wait_until

EARLIER = "9d998bf"  # the last revision that spoke version 1 only


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both packages as they were then."""
    folder = tmp_path_factory.mktemp("earlier")
    packed = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip(f"revision {EARLIER} is not in this copy's history: {packed.stderr.decode(errors='replace')}")
    subprocess.run(["tar", "x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


@contextmanager
def agent_of(tree: Path, home: Home) -> Iterator[None]:
    """There before the service, which then starts no agent of its own."""
    command = [sys.executable, "-m", "trials.agent", "--home", str(home.home), "--agent-id", "local"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "TUNER_AGENT_IDLE_EXIT_S": "30"}
    with subprocess.Popen(command, env=environment) as agent:
        wait_until((home.home / "agent" / "agent.log").exists)
        try:
            yield
            assert agent.poll() is None, "the agent did not live to the end"
        finally:
            agent.terminate()


def has_run_to_the_end(home: Home) -> None:
    home.begin()
    home.running(2, step=4)
    home.open_gate()
    home.completed()
    for number in (1, 2):
        trial = home.trial(number)
        assert trial["status"] == "succeeded"
        assert home.steps(number) == list(range(10))
    assert home.tuner("logs", f"{home.id}/1") == ""


def agent_log(home: Home) -> str:
    return (home.home / "agent" / "agent.log").read_text()


@pytest.mark.slow
def test_an_agent_of_the_version_before_works_with_this_service(make_home: Callable[..., Home], earlier: Path) -> None:
    home = make_home()
    with agent_of(earlier, home):
        has_run_to_the_end(home)
        assert "event=welcomed" in agent_log(home)
        assert "ERROR" not in agent_log(home)


@pytest.mark.slow
def test_this_agent_works_with_a_service_of_the_version_before(make_home: Callable[..., Home], earlier: Path) -> None:
    home = make_home(environment={"PYTHONPATH": str(earlier)})
    with agent_of(ROOT, home):
        has_run_to_the_end(home)
        assert (home.home / "agent" / "lock").exists()
        assert "ERROR" not in agent_log(home)
