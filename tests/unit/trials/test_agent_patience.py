"""How long trials run on without a service: each is told once, with its own grace, and only after the whole time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trials.agent.agent import Agent
from trials.agent.attempts import HeldAttempt
from trials.agent.home import Home
from trials.agent.patience import DEFAULT_GRACE_S, FILE_SERVICE_LOST, Patience
from trials.wire.attempt import AttemptKey
from trials.wire.messages import Stop
from trials.wire.records import ExitCause, ExitRecord

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


class Recording(Agent):
    """It holds what the test gives it, and notes what it is ordered to stop."""

    def __init__(self, home: Home, *held: HeldAttempt) -> None:
        super().__init__(home)
        self.held = {one.nonce: one for one in held}
        self.stopped: list[Stop] = []

    def stop(self, order: Stop) -> None:
        self.stopped.append(order)


def held(home: Home, nonce: str, *, spec: object = None) -> HeldAttempt:
    folder = home.attempt_folder(KEY, nonce)
    folder.mkdir(parents=True)
    if spec is not None:
        (folder / "attempt.json").write_text(json.dumps({"spec": spec}))
    return HeldAttempt(folder, key=KEY, nonce=nonce, lineage="l")


def test_trials_are_told_once_after_the_whole_time_each_with_its_own_grace(home: Home) -> None:
    ended = held(home, "c")
    ended.exit = ExitRecord(cause=ExitCause.EXITED, code=0)
    agent = Recording(home, held(home, "a", spec={"stop_grace_s": 7}), held(home, "b", spec="nonsense"), ended)
    patience = Patience(home)
    patience.welcomed(10.0)

    patience.look(agent, away_s=9.9)
    assert agent.stopped == []
    patience.look(agent, away_s=10.0)
    patience.look(agent, away_s=11.0)

    assert [(one.nonce, one.grace_s, one.reason) for one in agent.stopped] == [
        ("a", 7.0, "service_lost"),
        ("b", DEFAULT_GRACE_S, "service_lost"),
    ]


def test_after_another_welcome_trials_are_told_again(home: Home) -> None:
    agent, patience = Recording(home, held(home, "a")), Patience(home)
    for _ in range(2):
        patience.welcomed(1.0)
        patience.look(agent, away_s=2.0)

    assert [one.nonce for one in agent.stopped] == ["a", "a"]


def test_it_is_kept_for_the_agents_that_come_after_and_taken_back(home: Home) -> None:
    Patience(home).welcomed(2.5)
    assert Patience(home).limit_s == 2.5

    Patience(home).welcomed(None)
    assert Patience(home).limit_s is None


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-1", "0", "1" * 5_000])
def test_a_file_of_nonsense_is_no_limit(home: Home, text: str) -> None:
    (home.agent / FILE_SERVICE_LOST).write_text(text)

    found = Patience(home).limit_s
    assert found is None or found > 1e30


def test_without_a_limit_trials_run_on(home: Home) -> None:
    agent = Recording(home, held(home, "a"))

    Patience(home).look(agent, away_s=1e9)

    assert agent.stopped == []


def test_where_it_cannot_be_kept_this_agent_knows_it_all_the_same(home: Home) -> None:
    patience = Patience(home)
    (home.agent / FILE_SERVICE_LOST).mkdir()

    patience.welcomed(3.0)

    assert patience.limit_s == 3.0
