"""Trials outlive the version that started them: a service of another one makes its agent leave, and adopts them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.harness import ROOT, Home, is_running
from tests.process_table import parent
from tests.waiting import wait_until
from trials.wire.messages import PROTOCOL_VERSION

BEFORE = "929df84"  # it knew no order to leave, spoke versions 1 and 2, and gave its files no format
IDLE_EXIT_S = 120.0  # no agent leaves by itself
OF_EACH_TRIAL = [*range(10)]


def as_another_version(folder: Path) -> Path:
    """A copy of both packages that speaks the next version of the protocol."""
    for name in ("trials", "tuner_service", "migrations"):
        shutil.copytree(ROOT / name, folder / name)  # with what is compiled of it
    messages = folder / "trials" / "wire" / "messages.py"
    own = f"PROTOCOL_VERSION = {PROTOCOL_VERSION}\n"
    text = messages.read_text()
    assert own in text
    messages.write_text(text.replace(own, f"PROTOCOL_VERSION = {PROTOCOL_VERSION + 1}\n"))
    return folder


@pytest.fixture(scope="session")
def another(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return as_another_version(tmp_path_factory.mktemp("another"))


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The revision BEFORE; a copy of another version where this copy of the sources has no such history."""
    folder = tmp_path_factory.mktemp("before")
    packed = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        return as_another_version(folder)
    subprocess.run(["tar", "x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


def exchange(home: Home, new: Path) -> None:
    """End the service, and start one of the packages in ``new``. Its agent and trials are there before and after."""
    pids = {name: home.pids(name) for name in ("agent", "trial")}
    home.tuner("serve", "--stop")
    assert {name: home.pids(name) for name in pids} == pids
    home.environment["PYTHONPATH"] = str(new)
    home.serve()


def the_agent(home: Home) -> int:
    """0 while it starts a process, which has its command line until it runs its own program."""
    found = home.pids("agent")
    return found[0] if len(found) == 1 else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "isolation"),
    [("before", ROOT, "fork"), ("before", ROOT, "spawn"), ("another", ROOT, "fork"), (ROOT, "another", "spawn")],
    ids=["from-the-commit-before", "from-the-commit-before-spawned", "from-another-version", "to-another-version"],
)
def test_running_trials_survive_the_exchange_of_the_version(
    make_home: Callable[..., Home], request: pytest.FixtureRequest, old: Path | str, new: Path | str, isolation: str
) -> None:
    old, new = (request.getfixturevalue(tree) if isinstance(tree, str) else tree for tree in (old, new))
    home = make_home(environment={"PYTHONPATH": str(old), "TUNER_AGENT_IDLE_EXIT_S": str(IDLE_EXIT_S)})
    home.begin(budget={"trials": 4, "parallel": 2}, trial={"isolation": isolation})
    home.running(2, step=4)
    (former,), trials = home.pids("agent"), home.pids("trial")
    assert len(trials) == 2
    parents = [parent(trial) for trial in trials]  # what forks supervisors may go: its program is another one now

    exchange(home, new)
    wait_until(lambda: not is_running(former))
    agent = wait_until(lambda: the_agent(home))
    assert agent != former
    assert home.pids("trial") == trials
    assert [parent(trial) for trial in trials] == parents
    assert set(parents) <= set(home.pids("supervisor"))
    home.running(2, step=4)
    home.open_gate()
    home.completed()

    assert home.attempts() == [(number, 1) for number in range(1, 5)]
    for number in range(1, 5):
        assert home.trial(number)["status"] == "succeeded"
        assert home.steps(number) == OF_EACH_TRIAL
    assert '"event":"attempt_damaged"' not in (home.home / "agent" / "agent.log").read_text()
    assert wait_until(lambda: the_agent(home)) == agent
