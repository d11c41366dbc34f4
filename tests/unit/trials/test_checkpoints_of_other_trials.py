"""A trial asks its agent for checkpoints of another one: by a file, and the answer is a folder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trials.checkpoints.restoring import WAKE_AGAIN_S, CheckpointMissingError, OtherTrials
from trials.wire.files import FILE_RESTORE, FILE_WANTED, FOLDER_WANTED

ENTRY = {"file": "000000003-ab.ckpt", "digest": "ab" * 32, "step": 3}


class Asking:
    """A trial that waits: each time it looks again, the test may do something in its folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now, self.woken = folder, 10.0, list[float]()
        self.meanwhile: Callable[[], None] = lambda: None
        self.is_stopping = False
        self.question: dict[str, Any] = {}
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def sleep(self, _: float) -> None:
        self.now += 1.0
        self.question = json.loads((self.folder / FILE_WANTED).read_bytes())
        self.meanwhile()

    def answer(self, **said: Any) -> None:
        answer = self.folder / FOLDER_WANTED.format(id=self.question["id"])
        answer.mkdir()
        (answer / FILE_RESTORE).write_text(json.dumps(said))

    def entries(self) -> list[Any]:
        others = OtherTrials(self.folder, wake=lambda: self.woken.append(self.now))
        return list(others.entries(7, step=3, is_stopping=lambda: self.is_stopping))


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asking:
    return Asking(tmp_path, monkeypatch)


def test_it_asks_for_a_trial_and_a_step_and_gets_files_beside_the_answer(asking: Asking) -> None:
    asking.meanwhile = lambda: asking.answer(checkpoints=[ENTRY, {"step": 1}])

    (entry,) = asking.entries()

    folder = asking.folder / FOLDER_WANTED.format(id=asking.question["id"])
    assert entry == ENTRY | {"file": str(folder / ENTRY["file"])}  # type: ignore[operator]  # a text
    assert (asking.question["number"], asking.question["step"]) == (7, 3)
    assert not (asking.folder / FILE_WANTED).exists()


def test_an_agent_that_came_meanwhile_is_woken_again(asking: Asking) -> None:
    def later() -> None:
        if asking.now >= 10.0 + 2 * WAKE_AGAIN_S:
            asking.answer(checkpoints=[])

    asking.meanwhile = later

    assert asking.entries() == []
    assert asking.woken == [10.0, 10.0 + WAKE_AGAIN_S]


def test_what_the_agent_says_is_missing_is_raised_with_its_words(asking: Asking) -> None:
    asking.meanwhile = lambda: asking.answer(error="trial 7 has no checkpoint")

    with pytest.raises(CheckpointMissingError, match="trial 7 has no checkpoint"):
        asking.entries()


def test_a_trial_that_is_asked_to_stop_waits_no_longer(asking: Asking) -> None:
    def stop() -> None:
        asking.is_stopping = True

    asking.meanwhile = stop

    with pytest.raises(CheckpointMissingError, match="asked to stop"):
        asking.entries()
    assert not (asking.folder / FILE_WANTED).exists()
