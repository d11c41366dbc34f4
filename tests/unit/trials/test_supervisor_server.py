"""The server of supervisors: what it makes of an order, and of how a supervisor ended; without processes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor_kernel import Kernel, ToldServer
from trials.agent.forks import servers as agents_side
from trials.agent.forks.isolation import of_supervisors
from trials.agent.forks.server import Server
from trials.agent.forks.servers import SUPERVISORS_AGAIN_S, ForkServers
from trials.agent.home import Home
from trials.agent.supervision import parent
from trials.agent.supervision.attempt_life import START_AGAIN_S, START_TIMEOUT_S, Supervised
from trials.agent.supervision.orders import ORDER_BYTES, send_order
from trials.agent.supervision.supervisor_loop import EXIT_NO_ROOM
from trials.files import read_json, sync_file, to_json

SPENT = 256  # as waitpid gives an exit code: this one is 1
ORDER = {"why": "the command does not run Python"}


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


@pytest.fixture
def server(kernel: Kernel) -> ToldServer:  # whose forks it counts
    return ToldServer()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "1-n1"
    made.mkdir()
    return made


def exit_of(folder: Path) -> dict[str, Any] | None:
    return read_json(str(folder / "exit.json"))


def test_each_order_is_one_supervisor(server: ToldServer, kernel: Kernel, folder: Path) -> None:
    server._follow({"start": str(folder), **ORDER})
    server._follow({"start": str(folder.parent / "2-n2"), **ORDER})

    assert len(kernel.forked) == 2


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_fork_that_finds_too_little_is_tried_again_for_a_minute(
    server: ToldServer, kernel: Kernel, folder: Path, number: int
) -> None:
    kernel.errors = [number, number]
    server._follow({"start": str(folder), **ORDER})
    server._start_again()
    assert kernel.errors == [number], "not at once"
    for _ in range(2):
        kernel.now += START_AGAIN_S
        server._start_again()
    assert (kernel.forked, exit_of(folder)) == ([7], None)

    kernel.ended = [(7, 0)]
    server._reap()
    kernel.errors = [number, number]
    server._follow({"start": str(folder), **ORDER})
    kernel.now += START_TIMEOUT_S
    server._start_again()
    found = exit_of(folder)
    assert found is not None
    assert (found["cause"], os.strerror(number) in found["tail"]) == ("launch_failed", True)
    assert server.told == ["n1"]


def test_a_launch_that_no_time_mends_has_failed_at_once(
    server: ToldServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise ValueError("nobody has foreseen it")

    monkeypatch.setattr(server._first, "prepare", refuse)
    server._follow({"start": str(folder), **ORDER})

    assert "nobody has foreseen it" in (exit_of(folder) or {})["tail"]


def test_a_supervisor_that_ended_before_its_claim_has_failed_with_what_it_said(
    server: ToldServer, kernel: Kernel, folder: Path
) -> None:
    server._follow({"start": str(folder), **ORDER})
    (folder / "supervisor.log").write_text("ImportError: no such module\n")
    kernel.ended = [(7, SPENT)]
    server._reap()

    found = exit_of(folder)
    assert found is not None
    assert (found["cause"], "ImportError: no such module" in found["tail"]) == ("launch_failed", True)
    assert read_json(str(folder / "claim.json")) is not None, "nobody else may start it now"
    assert server.told == ["n1"]


@pytest.mark.parametrize(("status", "claimed"), [(0, False), (0, True), (SPENT, True), (9, True)])
def test_of_a_supervisor_that_did_its_work_or_has_claimed_it_nothing_is_said(
    server: ToldServer, kernel: Kernel, folder: Path, status: int, *, claimed: bool
) -> None:
    server._follow({"start": str(folder), **ORDER})
    if claimed:
        (folder / "claim.json").write_text("{}")
    kernel.ended = [(7, status)]
    server._reap()

    assert exit_of(folder) is None
    assert server.told == []


def test_one_that_found_no_room_is_started_again_until_there_is(
    server: ToldServer, kernel: Kernel, folder: Path
) -> None:
    server._follow({"start": str(folder), **ORDER})
    kernel.now += START_TIMEOUT_S  # a disk may be full for long
    kernel.ended = [(7, EXIT_NO_ROOM << 8)]
    server._reap()
    server._follow({"end": True})
    assert not server._may_end(), "it has an attempt to start"

    kernel.now += START_AGAIN_S
    server._start_again()
    assert (kernel.forked, exit_of(folder)) == ([7, 8], None)
    assert server._may_end(), "supervisors go on without it"


def test_of_an_attempt_whose_folder_is_gone_nothing_is_made(server: ToldServer, kernel: Kernel, folder: Path) -> None:
    server._follow({"start": str(folder), **ORDER})
    folder.rmdir()
    kernel.ended = [(7, SPENT)]
    server._reap()

    assert not folder.exists()


@pytest.mark.parametrize("more", [0, 1])
def test_an_order_that_would_be_cut_is_not_sent(tmp_path: Path, more: int) -> None:
    path = str(tmp_path / "orders")
    order = {"start": "/folder", "why": ""}
    order["why"] = "x" * (ORDER_BYTES - len(to_json(order)) + more)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        listening.bind(path)

        assert send_order(path, order) is not bool(more)
        if not more:
            assert json.loads(listening.recv(ORDER_BYTES)) == order


# ── the agent's side ────────────────────────────────────────────────────────────────────────────
BASE = {"PATH": "/bin", "A": "1"}


def test_supervisors_have_all_variables_of_their_agent_and_another_agent_another_server() -> None:
    found = of_supervisors(BASE, python="/python")

    assert found.variables == BASE
    assert found.key == of_supervisors(dict(BASE), python="/python").key
    others = [of_supervisors(BASE | {"A": "2"}, python="/python"), of_supervisors(BASE, python="/other")]
    assert found.key not in {other.key for other in others}


class AgentsSide:
    """``ForkServers`` whose servers are no processes: ``started`` are those that it would have started."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lost: list[list[Path]] = []
        self.started: list[Server] = []
        self.sent: list[dict[str, Any]] = []
        self.home = Home(home)
        self.forks = ForkServers(self.home, on_lost=self.lost.append)
        self.takes_orders = True
        monkeypatch.setattr(self.forks, "_start", self._start)
        monkeypatch.setattr(agents_side, "send_order", self._send)

    def _start(self, wanted: Any) -> Server:
        server = Server(self.home, number="1", key=wanted.key, orders="o", state=self.home.path / "s")
        server.supervises = True
        server.is_alive = lambda: True  # type: ignore[method-assign]
        self.started.append(server)
        self.forks._servers[wanted.key] = server
        return server

    def _send(self, _path: str, order: dict[str, Any]) -> bool:
        self.sent.append(order)
        return self.takes_orders

    def supervise(self, folder: Path) -> bool:
        return asyncio.run(self.forks.supervise(folder, nonce="n1", why="it asks for it"))


@pytest.fixture
def side(tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentsSide]:
    made = AgentsSide(tmp_path / "home", monkeypatch)
    yield made
    made.forks._ends.close()


def test_no_launch_waits_for_the_server_of_supervisors(side: AgentsSide, kernel: Kernel, folder: Path) -> None:
    assert not side.supervise(folder)
    assert not side.supervise(folder), "it is still importing"
    assert (len(side.started), side.sent) == (1, [])

    side.started[0].ready.set()
    assert side.supervise(folder)
    assert side.sent == [{"start": str(folder), "why": "it asks for it"}]
    assert side.forks.has_given("n1")


def test_one_that_has_ended_is_started_again_but_not_all_the_time(
    side: AgentsSide, kernel: Kernel, folder: Path
) -> None:
    side.supervise(folder)
    side.started[0].ready.set()
    side.supervise(folder)
    side.forks._ended(side.started[0])
    assert side.lost == [[folder]], "its agent looks which of them nobody has claimed"

    side.supervise(folder)
    assert len(side.started) == 1
    kernel.now += SUPERVISORS_AGAIN_S
    side.supervise(folder)
    assert len(side.started) == 2


def test_one_that_takes_no_orders_is_done_without(side: AgentsSide, kernel: Kernel, folder: Path) -> None:
    side.supervise(folder)
    side.started[0].ready.set()
    side.started[0].is_alive = lambda: False  # type: ignore[method-assign]
    side.takes_orders = False
    side.forks._ends._descriptors["1"] = set()  # its end is watched, and was not told yet

    assert not side.supervise(folder)
    assert not side.forks.has_given("n1")


def test_it_takes_the_place_of_no_fork_server_and_is_told_nothing_of_exits(
    side: AgentsSide, folder: Path, kernel: Kernel
) -> None:
    for key in ("a", "b", "c"):
        side.forks._servers[key] = Server(side.home, number=key, key=key, orders="o", state=folder / "s")
    side.supervise(folder)
    side.started[0].ready.set()
    side.supervise(folder)

    assert side.forks._has_room()
    side.forks.note_end("n1", folder)
    side.forks.note_forgotten("n1")
    assert not side.forks.has_given("n1")
    assert not side.forks._make_room(), "none of the others is ready"
    assert [order for order in side.sent if "forget" in order] == []


# ── a supervisor ────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("lives_on", "synced"), [(False, True), (True, False)])
def test_an_exit_is_told_before_it_is_on_the_disk_and_a_supervisor_lives_no_longer_than_that(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, lives_on: bool, synced: bool
) -> None:
    seen: list[str] = []

    def sync(path: str) -> None:
        seen.append("synced")
        sync_file(path)

    monkeypatch.setattr("trials.agent.supervision.attempt_life.sync_file", sync)
    monkeypatch.setattr(os, "fsync", lambda _: seen.append("fsync"))
    key = {"experiment_id": "e", "number": 1, "attempt": 1}
    attempt = {"nonce": "n1", "spec": {}, "local": {"wake": ""}, "key": key}
    its_parent: Any = SimpleNamespace(
        claim={"pid": 1}, lives_on=lives_on, wake_agent=lambda *_: seen.append("told"), family=None
    )
    supervised = Supervised(str(folder), attempt, parent=its_parent)
    assert supervised.claim()
    assert seen == [], "a claim is not waited for"
    supervised._record_end({"cause": "stopped"})
    supervised.step()

    assert seen[:2] == (["told", "synced"] if synced else ["told"])
    assert supervised.is_over is synced


def test_a_supervisor_whose_attempt_is_over_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def poll() -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(parent.select, "poll", poll)
    monkeypatch.setattr(parent, "Waker", lambda _: None)
    found = parent.Parent(start=lambda _: 0, isolation="spawn")
    ended: Any = SimpleNamespace(due=0.0, is_over=False, nonce="n1")

    def step() -> float:
        ended.is_over = True
        return 0.0

    ended.step = step
    found.attempts["n1"] = ended

    found.turn()

    assert found.attempts == {}
