"""What a session does with its nodes when something goes wrong on the way."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from trials.tasks import NodeStartError, Task, TaskFailedError, meeting, trial_nodes
from trials.tasks import nodes as nodes_here
from trials.tasks.__main__ import AttemptSession
from trials.tasks.meeting import LeaderLostError, Place, join
from trials.tasks.nodes import LocalNodes, heard
from trials.tasks.shares import Machine
from trials.tasks.trial_nodes import TrialNodes, host

SOON_S = 10.0  # for what happens at once, on a machine that is busy
PLACE = Place(node=0, nodes=2, address="127.0.0.1", port=1, key="k")


class Node:
    """``name``: of it, added to ``closed``. The first one's end is not waited for: Ctrl-C."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self._name, self._closed = name, closed

    def close(self) -> None:
        self._closed.append(self._name)
        if self._name == "a":
            raise KeyboardInterrupt


class Lines:
    def __init__(self, said: list[Any]) -> None:
        self._said = said

    def order(self, order: Any) -> None:
        self._said.append(order)

    def close(self) -> None:
        self._said.append("closed")


def close_interrupted(nodes: Any) -> list[str]:
    closed: list[str] = []
    nodes._nodes = {name: Node(name, closed) for name in ("a", "b", "c")}
    with pytest.raises(KeyboardInterrupt):
        nodes.close({"failure": {}})
    return closed


class Failing:
    """One node, whose first task fails."""

    def __init__(self) -> None:
        self.orders: list[Any] = []
        failure = {"instance": 0, "why": "ended with signal 15", "code": -15}
        self._events = [
            {"event": "ready", "ports": [1]},
            {"event": "ended", "job": "task:local/true", "failure": failure},
            {"event": "stopped"},
        ]

    def check(self, wanted: Any) -> None: ...

    def start(self, wanted: Any, workspace_type: Any) -> None: ...

    def address(self, node: str) -> str:  # of all
        return "127.0.0.1"

    def order(self, node: str, order: Any) -> None:  # of all
        self.orders.append(order)

    def events(self, timeout_s: float | None) -> list[Any]:  # they are there
        return [("local", self._events.pop(0))]

    def close(self, result: Any) -> None: ...


@pytest.mark.parametrize(
    ("stop", "grace_s"), [(None, 10.0), ('{"grace_s": 120.0, "reason": "user"}', 120.0), ('{"grace_s": "x"}', 10.0)]
)
def test_where_a_trial_is_stopped_a_process_that_leaves_at_once_leaves_the_others_their_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str | None, grace_s: float
) -> None:
    if stop is not None:
        (tmp_path / "stop.json").write_text(stop)
    nodes = Failing()
    session = AttemptSession(str(tmp_path))
    monkeypatch.setattr(session, "nodes", lambda *_, **__: nodes)
    with pytest.raises(TaskFailedError):
        session.run(Task("true"))

    assert {"do": "stop", "grace_s": grace_s} in nodes.orders


@pytest.mark.parametrize("kind", ["pipes", "socket"])
def test_a_runner_that_does_not_read_its_orders_keeps_nobody_waiting_and_gets_them_once_it_does(kind: str) -> None:
    """It was stopped, or waits for a disk: the time of a session holds all the same."""
    if kind == "pipes":
        (orders_out, orders), (events, events_in) = os.pipe(), os.pipe()
    else:
        own, other = (end.detach() for end in socket.socketpair())
        orders_out, orders, events, events_in = other, own, own, os.dup(other)
    lines = nodes_here.Lines(events, orders)
    order = {"do": "run", "plan": "x" * 3_000_000}
    within(SOON_S, lambda: (lines.order(order), lines.order({"do": "stop"})))
    assert heard({"n": (lines, lines.read)}, 0.0) == []
    os.write(events_in, b'{"event": "ready"}\n')
    assert heard({"n": (lines, lines.read)}, None) == [("n", {"event": "ready"})]

    read = b""
    while read.count(b"\n") < 2:
        heard({"n": (lines, lines.read)}, 0.0)
        read += os.read(orders_out, 1 << 16)
    assert [json.loads(line) for line in read.splitlines()] == [order, {"do": "stop"}]
    assert not lines.has_unsent
    lines.close()
    assert json.loads(os.read(orders_out, 1 << 16)) == {"do": "quit"}
    for descriptor in (orders_out, events_in):
        os.close(descriptor)


def test_what_a_runner_that_is_gone_was_to_be_told_is_forgotten() -> None:
    (orders_out, orders), (events, events_in) = os.pipe(), os.pipe()
    lines = nodes_here.Lines(events, orders)
    lines.order({"do": "run", "plan": "x" * 3_000_000})
    assert lines.has_unsent
    for descriptor in (orders_out, events_in):
        os.close(descriptor)

    assert heard({"n": (lines, lambda: [{"event": "lost"}])}, None) == [("n", {"event": "lost"})]
    assert not lines.has_unsent
    lines.order({"do": "stop"})
    lines.close()


def within(seconds: float, work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive()


def test_nodes_here_are_all_closed_where_somebody_does_not_wait_for_the_first(tmp_path: Path) -> None:
    assert close_interrupted(LocalNodes(tmp_path, environment={}, labels={})) == ["a", "b", "c"]


def test_nodes_of_a_trial_are_all_closed_and_told_where_somebody_does_not_wait_for_the_first(tmp_path: Path) -> None:
    machine = Machine.here({}, name="node 0 of the trial")
    nodes = TrialNodes(PLACE, tmp_path, environment={}, machine=machine, timeout_s=1.0)
    said: list[Any] = []
    nodes._members = {1: (Lines(said), "", machine)}  # type: ignore[dict-item]  # has no descriptor

    assert close_interrupted(nodes) == ["a", "b", "c"]
    assert said == [{"do": "over", "failure": {}}, "closed"]


def test_a_node_of_a_trial_that_can_start_no_process_says_so_and_blames_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ends = [socket.socketpair(), socket.socketpair()]
    waiting = [own for own, _ in ends]

    def joined(*_: Any, **__: Any) -> socket.socket:
        return waiting.pop(0)

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(trial_nodes, "join", joined)
    monkeypatch.setattr(trial_nodes, "spawn_runner", refuse)
    ends[0][1].sendall(json.dumps({"do": "host", "nodes": ["n"]}).encode() + b"\n")

    with pytest.raises(NodeStartError, match=r"no process can be started on this node of the trial: .*temporarily"):
        host(PLACE, tmp_path, machine=Machine.here({}, name="node 1 of the trial"), timeout_s=1.0)

    for _, other in ends:
        assert other.recv(1) == b"", "its end is closed: node 0 knows that it is gone"
        other.close()


@pytest.mark.parametrize(
    "said", [b"{}\n", b"5\n", b"\xff\n", b'{"challenge": 1}\n{"proof": "\xc3\xbc"}\n', b'{"challenge": 1}\n{}\n']
)
def test_who_listens_in_the_place_of_the_first_node_and_is_not_it_is_only_asked_again(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[socket.socket] = []

    def connect(*_: Any, **__: Any) -> socket.socket:
        own, other = socket.socketpair()
        other.sendall(said)
        other.shutdown(socket.SHUT_WR)
        others.append(other)
        return own

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(meeting, "watch_silence", lambda *_: None)

    with pytest.raises(LeaderLostError, match="did not answer"):
        join(PLACE, {"node": 1}, timeout_s=0.01)

    for other in others:
        other.close()
