"""A session on Ray, as far as it goes without Ray."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from trials.tasks import RaySession
from trials.tasks.ray_session import RayNodes


def test_without_ray_a_session_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(ImportError, match=r"pip install 'tuner-service\[ray\]'"):
        RaySession()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with what the end of a group takes of Ray's; ``calls``: what it was asked for."""
    found: Any = ModuleType("ray")
    groups: Any = ModuleType("ray.util.placement_group")
    for module in (found, ModuleType("ray.util"), groups):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    found.calls = []
    found.wait = lambda *_, **__: found.calls.append("wait")
    found.kill = lambda actor: found.calls.append(f"kill {actor.name}")
    groups.remove_placement_group = lambda group: found.calls.append(f"remove {group}")
    return found


@pytest.mark.parametrize("error", [RuntimeError("its head is away"), KeyboardInterrupt()])
@pytest.mark.parametrize("fails", ["wait", "kill"])
def test_a_group_whose_end_is_interrupted_leaves_no_actor_and_no_placement_group(
    fails: str, error: BaseException, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    does = getattr(ray, fails)

    def failing(*arguments: Any, **options: Any) -> None:
        does(*arguments, **options)
        raise error

    monkeypatch.setattr(ray, fails, failing)
    nodes = RayNodes(None, environment={}, works_in="", autoscaling=False)
    nodes._group = "group"
    for name in ("a", "b"):
        actor = SimpleNamespace(name=name, close=SimpleNamespace(remote=object))
        nodes._nodes[name] = SimpleNamespace(actor=actor, is_lost=False, found=None)  # type: ignore[assignment]
    with pytest.raises(type(error)):
        nodes.close({})

    assert ray.calls == ["wait", "kill b", "kill a", "remove group"]
