"""What a node of Ray's does by itself, and what becomes of an order to end, whenever it comes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from tests.waiting import wait_until
from trials.agent import ray_node
from trials.agent.bounds import EXIT_SERVICE_LOST
from trials.agent.held import HeldAgent
from trials.agent.ray_node import RayNode

ORDER: dict[str, Any] = {"token": "t", "url": "http://h:1", "pid": 1}
KILLED = -9


class Keeper:
    """``code``: what it ends with; None: not before it is told to."""

    def __init__(self, code: int | None = None) -> None:
        self.code, self.told = code, list[bytes]()
        self.stdin = SimpleNamespace(write=self._tell, flush=lambda: None)
        self._ended = threading.Event()

    def _tell(self, line: bytes) -> None:
        if self.code is not None:
            raise BrokenPipeError
        self.told.append(line)
        self._ended.set()

    def wait(self) -> int:
        if self.code is None:
            self._ended.wait(60)
        return self.code or 0


class Scene:
    """``given_back``: the placement groups that were to be removed, each as often as that was tried."""

    def __init__(self) -> None:
        self.given_back: list[str] = []
        self.keepers: list[Keeper] = []
        self.started = 0
        self.pauses: list[float] = []
        self.on_pause: Callable[[], None] = lambda: None
        self.removed_after = 1
        self.error: BaseException = OSError("no more processes")

    def start(self) -> Any:
        self.started += 1
        if not self.keepers:
            raise self.error
        return self.keepers.pop(0)

    def is_removed(self, group: str) -> bool:
        self.given_back.append(group)
        return len(self.given_back) >= self.removed_after

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene()
    monkeypatch.setattr(ray_node, "_root", lambda: tmp_path)
    monkeypatch.setattr(ray_node, "_is_removed", scene.is_removed)
    monkeypatch.setattr(ray_node, "_end_this_actor", lambda: None)
    monkeypatch.setattr(ray_node, "WATCH_S", 0.0)
    monkeypatch.setattr(RayNode, "_start", scene.start)
    monkeypatch.setattr(RayNode, "_look_for_drains", lambda _: None)
    monkeypatch.setattr(time, "sleep", scene.sleep)
    return scene


def given_back(scene: Scene) -> list[str]:
    """Once no thread of the node does anything more: none may go on in another test."""
    wait_until(lambda: ray_node.GIVE_BACK_S in scene.pauses)
    return scene.given_back


def a_node() -> RayNode:
    return RayNode("ray-a", "group", ["ray-a"])


def test_it_goes_where_whoever_asked_for_it_is_gone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_node, "UNORDERED_S", 0.0)
    node = a_node()

    assert given_back(scene) == ["group"]
    assert node.phase() == "ended"
    node.serve(ORDER)  # too late: it is on its way out
    assert (scene.given_back, scene.started) == (["group"], 0)


def test_it_stays_once_it_has_an_order(scene: Scene) -> None:
    scene.keepers = [Keeper()]
    node = a_node()
    node.serve(ORDER)
    wait_until(lambda: node.phase() == "running")
    node._give_back_unordered()  # returns at once

    assert (scene.given_back, node.phase()) == ([], "running")
    node.end(1.5)
    assert given_back(scene) == ["group"]


def test_what_is_told_to_end_before_it_was_told_anything_is_given_back(scene: Scene) -> None:
    node = a_node()
    node.end(60.0)
    node.end(60.0)  # said again, as the next bridge does

    assert given_back(scene) == ["group"]
    assert (node.phase(), scene.started) == ("ended", 0)


def test_what_is_told_to_end_before_its_agent_has_begun_begins_none(scene: Scene) -> None:
    scene.keepers = [Keeper()]
    node = a_node()
    with node._changed:  # so that no other thread comes between the two
        node.serve(ORDER)
        node.end(60.0)

    assert given_back(scene) == ["group"]
    assert (node.phase(), scene.started) == ("ended", 0)


def test_an_order_to_end_that_a_killed_keeper_could_not_take_is_given_to_the_next_one(scene: Scene) -> None:
    following = Keeper()
    scene.keepers = [Keeper(KILLED), following]
    node = a_node()
    scene.on_pause = lambda: node.end(7.5)
    node.serve(ORDER)

    assert given_back(scene) == ["group"]
    assert following.told == [b"end 7.5\n"]
    assert ray_node.RESPAWN_S in scene.pauses


def test_what_cannot_be_ended_in_order_is_given_back_all_the_same(scene: Scene) -> None:
    scene.keepers = [Keeper(KILLED) for _ in range(10)]
    node = a_node()
    scene.on_pause = lambda: node.end(0.0)
    node.serve(ORDER)

    assert given_back(scene) == ["group"]
    assert scene.started == 1 + ray_node.ENDINGS


class NoThread:
    """No thread of these names can be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.names = names
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if thread.name in self.names:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)


def test_an_order_for_which_no_thread_can_be_started_was_not_taken_and_can_be_given_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.keepers = [Keeper()]
    node, no_thread = a_node(), NoThread(monkeypatch, "hold")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        node.serve(ORDER)
    no_thread.names = ()
    node.serve(ORDER)

    wait_until(lambda: node.phase() == "running")
    node.end(0.0)
    given_back(scene)


def test_a_node_that_could_take_no_order_is_given_back_by_the_thread_that_it_has(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = a_node()
    NoThread(monkeypatch, "hold", "give back")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        node.serve(ORDER)
    node.end(0.0)

    assert given_back(scene) == ["group"]


def test_a_node_without_a_thread_that_looks_for_drains_runs_and_says_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.keepers = [Keeper()]
    node = a_node()
    NoThread(monkeypatch, "drains")

    assert node.serve(ORDER)["blind"] == "Ray is not asked when this node is drained: can't start new thread"
    wait_until(lambda: node.phase() == "running")
    node.end(0.0)
    given_back(scene)


@pytest.mark.parametrize("error", [OSError("no more processes"), RuntimeError("no head"), KeyError("machine")])
def test_an_agent_that_cannot_be_started_is_told_of_and_tried_again(scene: Scene, error: Exception) -> None:
    scene.error = error
    node, said = a_node(), list[str]()

    def look() -> None:
        said.append(node.watch(-1)["reason"])
        scene.keepers.append(Keeper())

    scene.on_pause = look
    node.serve(ORDER)

    wait_until(lambda: node.phase() == "running")
    assert said == [f"its agent cannot be started: {error}"]
    assert node.watch(-1)["reason"] == ""
    node.end(0.0)
    given_back(scene)


def test_a_node_that_is_told_to_end_while_its_agent_cannot_be_started_is_given_back(scene: Scene) -> None:
    scene.error = RuntimeError("no head")
    node = a_node()
    scene.on_pause = lambda: node.end(0.0)
    node.serve(ORDER)

    assert given_back(scene) == ["group"]
    assert node.phase() == "ended"


def test_a_node_that_nobody_holds_any_more_is_given_back(scene: Scene) -> None:
    scene.error = SystemExit("whatever it was")
    node = a_node()
    with node._changed:  # as ``serve`` does, which would begin a thread
        node._order = ORDER
        node._changed.notify_all()

    with pytest.raises(SystemExit):
        node._hold()

    assert scene.given_back == ["group"]
    assert node.phase() == "ended"


def test_its_group_is_removed_again_and_again_until_it_is_gone(scene: Scene) -> None:
    scene.removed_after = 4
    node = a_node()
    node.end(0.0)

    assert given_back(scene) == ["group"] * 4
    assert scene.pauses == [ray_node.OTHERS_S] * 3 + [ray_node.GIVE_BACK_S]


class RayError(Exception):
    """As Ray's."""


class ActorUnavailableError(RayError):
    """As Ray's."""


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with what these functions take of Ray's."""
    ray, util, groups = ModuleType("ray"), ModuleType("ray.util"), ModuleType("ray.util.placement_group")
    for module in (ray, util, groups):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    found: Any = ray
    found.groups = groups
    found.exceptions = SimpleNamespace(
        RayError=RayError, ActorUnavailableError=ActorUnavailableError, GetTimeoutError=TimeoutError
    )
    found.get_actor = lambda name: SimpleNamespace(phase=SimpleNamespace(remote=lambda: name))
    return found


def raising(error: Exception) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


@pytest.mark.parametrize(
    ("get", "is_gone"),
    [(lambda name: name, False), (raising(RuntimeError("no head")), False), (raising(ValueError("none")), True)],
)
def test_a_group_is_gone_when_ray_knows_none_of_that_name(ray: Any, get: Callable[..., Any], is_gone: bool) -> None:
    ray.groups.get_placement_group, ray.groups.remove_placement_group = get, lambda _: None

    assert ray_node._is_removed("group") is is_gone


@pytest.mark.parametrize(
    ("get", "lives"),
    [
        (lambda *_, **__: "running", True),
        (lambda *_, **__: "ended", False),
        (raising(TimeoutError()), True),
        (raising(ActorUnavailableError()), True),
        (raising(RayError()), False),
        (raising(RuntimeError("no head")), True),
    ],
)
def test_another_node_of_its_group_lives_until_it_is_known_to_have_ended(
    ray: Any, get: Callable[..., Any], lives: bool
) -> None:
    ray.get = get

    assert ray_node._lives("ray-b") is lives


def a_node_that_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RayNode, list[list[str]]]:
    """And the commands that it would have started."""
    started: list[list[str]] = []
    monkeypatch.setattr(ray_node, "_root", lambda: tmp_path)
    monkeypatch.setattr(RayNode, "_environment", lambda _: {})
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    node = RayNode.__new__(RayNode)
    node._name, node._home = "ray-a", tmp_path / "ray-a"
    return node, started


def test_an_agent_elsewhere_follows_what_its_node_was_told_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started once: a service that comes back may have another address, and shows another certificate."""
    node, started = a_node_that_starts_nothing(tmp_path, monkeypatch)
    node._order = ORDER | {"machine": "of the service"}

    node._write(node._order)
    node._start()
    node._write(node._order | {"url": "https://h:2", "certificate": "PEM"})

    assert started[0][-5:] == ["--agent-id", "ray-a", "--log-format", "json", "--told"]
    assert "http://h:1" not in started[0]
    told = json.loads((tmp_path / "ray-a" / "service.json").read_text())
    assert told == {"url": "https://h:2", "pid": 1, "certificate": "PEM"}


def test_an_agent_beside_the_service_asks_the_kernel_who_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, started = a_node_that_starts_nothing(tmp_path, monkeypatch)
    node._order = ORDER | {"machine": ray_node.machine()}
    node._start()
    assert started[0][-4:] == ["--agent-id", "ray-a", "--log-format", "json"]


@pytest.mark.parametrize(("code", "is_last"), [(0, True), (EXIT_SERVICE_LOST, True), (1, False), (-9, False)])
def test_an_agent_that_has_ended_as_it_was_meant_to_is_not_started_again(
    tmp_path: Path, code: int, is_last: bool
) -> None:
    held = HeldAgent(tmp_path, [])
    held._agent = cast("Any", SimpleNamespace(poll=lambda: code))
    held._started_at = time.monotonic()

    assert held.look() == (code if is_last else None)
