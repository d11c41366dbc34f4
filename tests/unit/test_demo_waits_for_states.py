"""What the demo promises does not depend on the speed of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo import __main__ as demo
from examples.demo.home import DemoHome

TRAINING = {"pid": 7, "step": 3, "number": 6, "value": 0.5}
STARTING = {"pid": None, "step": None, "number": 7, "value": None}


class Client:
    """A service that shows ``looks`` one after the other: how many have ended, and who runs."""

    def __init__(self, *looks: tuple[int, list[demo.Row]]) -> None:
        self.looks = list(looks)

    def trials(self, _: str) -> list[demo.Row]:
        ended = {"status": "early_stopped", "last": {"step": 3, "metrics": {}}, "attempts": 1}
        return [{"number": n, **ended, "parameters": _parameters(), "value": 0.5} for n in range(self.looks[0][0])]

    def experiment(self, _: str) -> demo.Row:
        _, running = self.looks.pop(0)
        return {"status": "running", "running": running, "message": ""}


def _parameters() -> demo.Row:
    return {"optimizer": "adam", "lr": 0.1, "channels": 4}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoHome:
    monkeypatch.setattr(demo.time, "sleep", lambda _: None)
    return DemoHome(tmp_path)


def watch(client: Client) -> demo.Watch:
    story = demo.Story(coloured=False)
    return demo.Watch(story=story, client=client, experiment_id="e")  # type: ignore[arg-type]  # as much as it asks


def test_the_service_is_killed_only_when_trials_are_held_and_in_their_training(home: DemoHome) -> None:
    enough = demo.ENDED_BEFORE_KILL
    client = Client(
        (enough - 1, [TRAINING, TRAINING]),
        (enough, [TRAINING, TRAINING]),  # held from here on: these two may be at their end yet
        (enough + 2, [STARTING, STARTING]),
        (enough + 2, [TRAINING, STARTING]),
        (enough + 2, [TRAINING, TRAINING]),
        (enough + 3, []),
    )
    watch(client).until_time_to_kill(home)

    assert home.hold_file.exists()
    assert len(client.looks) == 1
