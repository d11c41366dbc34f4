"""The agent's own entering of a group, so that the next trial's process enters one at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from trials.processes import control_group_moves as moves
from trials.processes.control_group_moves import GroupMoves
from trials.processes.control_groups import ENV_CGROUPS, ControlGroup


def in_a_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())  # waits for the threads, too


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(moves, "own_group", lambda: "/group/of/the/agent")

    def enter(self: ControlGroup) -> bool:
        found.append(self.path)
        return True

    monkeypatch.setattr(ControlGroup, "enter", enter)
    return found


def test_the_agent_enters_the_group_that_it_is_in(entered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_CGROUPS, raising=False)

    in_a_loop(GroupMoves().expect)

    assert entered == ["/group/of/the/agent"]


def test_one_entering_at_a_time_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_CGROUPS, raising=False)
    monkeypatch.setattr(moves, "own_group", lambda: "/group")
    times, may_go_on = [], threading.Event()
    monkeypatch.setattr(ControlGroup, "enter", lambda self: times.append(self.path) or may_go_on.wait(10))
    group_moves = GroupMoves()

    def twice() -> None:
        group_moves.expect()
        group_moves.expect()
        may_go_on.set()

    in_a_loop(twice)

    assert times == ["/group"]


def test_while_the_kernel_is_ready_nothing_is_entered(entered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV_CGROUPS, raising=False)
    times = iter([10.0, 10.0 + moves.READY_S / 2, 10.0 + moves.READY_S])
    monkeypatch.setattr(moves, "time", SimpleNamespace(monotonic=lambda: next(times)))
    group_moves = GroupMoves()

    for _ in range(3):
        in_a_loop(group_moves.expect)

    assert len(entered) == 2


@pytest.mark.parametrize("reason", ["switched off", "not granted"])
def test_without_groups_nothing_is_entered(reason: str, entered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "switched off":
        monkeypatch.setenv(ENV_CGROUPS, "off")
    else:
        monkeypatch.setattr(moves, "own_group", lambda: None)

    in_a_loop(GroupMoves().expect)

    assert entered == []
