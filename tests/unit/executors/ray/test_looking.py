"""When the Ray executor looks at what waits for room."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner_service.dispatcher.commands import TimePassed
from tuner_service.dispatcher.room import Room
from tuner_service.domain.node_kinds import NodeKind
from tuner_service.executor_options import RayOptions
from tuner_service.executors.ray.executor import LOOK_PAUSE_S, LOOK_SHARE, RayExecutor

NOTHING = Room(lacking={}, waits=False, busy=frozenset(), connected=frozenset())
ONE = Room(lacking={NodeKind(runtime_env={}): 1}, waits=True, busy=frozenset(), connected=frozenset())


class Scene:
    """``takes_s``: what a look takes. Time passes by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, takes_s: float) -> None:
        self.at, self.takes_s, self.room, self.looks = 100.0, takes_s, NOTHING, 0
        self.submitted: list[Any] = []
        monkeypatch.setattr(time, "monotonic", lambda: self.at)
        self.executor = RayExecutor(
            folder=Path(), options=RayOptions(), lineage="l", key=str, submit=self._submit, now=lambda: 1.0
        )
        self.dispatcher: Any = SimpleNamespace(is_busy=True, state=SimpleNamespace(agents={}), room=self._room)

    def _room(self, **_: Any) -> Room:
        self.looks += 1
        self.at += self.takes_s
        return self.room

    def _submit(self, command: Any) -> Future[None]:
        self.submitted.append(command)
        return Future()

    def step(self, room: Room) -> int:
        """Of the runner; what is wanted then."""
        self.room = room
        self.executor.look(self.dispatcher)
        return int(self.executor.view()["wanted"])


def test_a_trial_that_waits_from_the_next_step_on_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that makes an experiment and the one with its first suggestion are milliseconds apart."""
    scene = Scene(monkeypatch, takes_s=0.0001)
    scene.step(NOTHING)
    scene.at += 0.005

    assert scene.step(ONE) == 1


@pytest.mark.parametrize(("takes_s", "pause_s"), [(0.001, 0.001 * LOOK_SHARE), (1.0, LOOK_PAUSE_S)])
def test_looks_that_take_long_are_left_out_for_a_while_and_made_up_for(
    takes_s: float, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, slept = Scene(monkeypatch, takes_s=takes_s), list[float]()
    monkeypatch.setattr(time, "sleep", slept.append)
    scene.step(NOTHING)
    scene.executor._look_after_all()
    scene.at += pause_s / 2
    assert (scene.step(ONE), scene.looks, scene.submitted) == (0, 1, [])

    scene.executor._look_after_all()
    scene.executor._look_after_all()

    assert slept == [pytest.approx(pause_s / 2)]
    assert scene.submitted == [TimePassed(at=1.0)]
    scene.at += pause_s
    assert (scene.step(ONE), scene.looks) == (1, 2)
