"""Each row of docs/many-machines.md, "How a node stands": what the service says of such a node, and does with it."""

from __future__ import annotations

import json
import logging
import platform
import re
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.unit.api.test_agent_channel import KEY, Script, a_hello, greeted, welcome
from trials.agent.channel import _why
from trials.agent.home import Home
from trials.agent.node_facts import FactsOfNode
from trials.wire.encoding import encode
from trials.wire.handshake import Leave
from trials.wire.messages import PROTOCOL_VERSION, Exited, Reports
from trials.wire.nodes import NodeFacts
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher.commands import AgentConnected, AttemptExited, ReportsReceived
from tuner_service.domain.trial import Attempt, AttemptStatus, Part, PartState
from tuner_service.service.cluster import Channel
from tuner_service.service.nodes import node_views, running_on

PAGE = Path(__file__).parents[3] / "docs" / "many-machines.md"
FIVE_MINUTES = 300.0
ROWS = (  # of the page, by how each begins; the tests below are in their order
    "less than 64 MiB are free on the disk",
    "the agent cannot write into its home",
    "its clock differs",
    "another Python",
    "another user",
    "another version of the agent's protocol",
    "a wrong token",
    "a token file that is empty",  # in test_token_files.py
    "another agent runs in a copy",  # in test_copied_agents.py
)


def test_the_page_has_the_rows_that_are_tested_here() -> None:
    part = PAGE.read_text(encoding="utf-8").partition("## How a node stands")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!what)([^|]+) \|", part, re.MULTILINE)

    assert len(rows) == len(ROWS)
    assert all(row.startswith(begins) for row, begins in zip(rows, ROWS, strict=True)), rows


def shown(node: NodeFacts, *, ahead_s: float = 0.0) -> dict[str, Any]:
    channel = Channel(hello=a_hello(node=node), send=lambda _: None, close=lambda: None, clock_ahead_s=ahead_s)
    (view,) = node_views([channel], {})
    return view


# ── a full disk, and no right to write ──────────────────────────────────────────────────────────
def test_a_full_disk_and_a_home_without_rights_are_trouble_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    home.agent.mkdir(parents=True)
    full = FactsOfNode(home, room=lambda _: ((64 << 20) - 1, 1 << 40)).now()

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    home.home_id()
    monkeypatch.setattr(Path, "write_bytes", refuse)
    without = FactsOfNode(home, room=lambda _: (1 << 40, 1 << 41)).now()

    for node, said in ((full, "make room there"), (without, "give its user the right to, or start it with another")):
        assert (shown(node)["state"], shown(node)["message"]) == ("in_trouble", node.trouble)
        assert said in node.trouble
        script = Script([], welcome)
        script.run(a_hello(node=node))
        (connected,) = [command for command in script.commands if isinstance(command, AgentConnected)]
        assert connected.trouble == node.trouble, "the dispatcher starts nothing there"


# ── a clock that is off ─────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ahead", [FIVE_MINUTES, -FIVE_MINUTES])
def test_a_clock_five_minutes_off_is_said_and_times_of_reports_and_ends_are_corrected(ahead: float) -> None:
    now = 1.0  # of the service's clock in these tests
    line = json.dumps({"kind": "metric", "step": 1, "values": {"a": 1.0}, "at": now + ahead, "final": False})
    ended = ExitRecord(cause=ExitCause.EXITED, code=0, started_at=now + ahead - 0.5, ended_at=now + ahead)
    frames = [
        encode(Reports(key=KEY, nonce="n", first_sequence=1, lines=(line, "no record"))),
        encode(Exited(key=KEY, nonce="n", exit=ended, last_sequence=2)),
    ]
    script = Script(frames, welcome)
    script.run(a_hello(node=NodeFacts(clock=now + ahead)))

    (reports,) = [command for command in script.commands if isinstance(command, ReportsReceived)]
    (end,) = [command for command in script.commands if isinstance(command, AttemptExited)]
    assert reports.records[0].at == pytest.approx(now)  # type: ignore[union-attr]  # the first is a metric
    assert end.exit.started_at == pytest.approx(now - 0.5)
    assert end.exit.ended_at == pytest.approx(now)
    view = shown(NodeFacts(), ahead_s=ahead)
    (note,) = view["notes"]
    assert view["state"] == "ready"
    assert note.startswith(f"its clock is 300 s {'ahead of' if ahead > 0 else 'behind'} the service's")
    assert "NTP" in note


def test_clocks_that_differ_by_less_than_a_second_are_left_as_they_are() -> None:
    line = json.dumps({"kind": "metric", "step": 1, "values": {"a": 1.0}, "at": 1.75, "final": False})
    script = Script([encode(Reports(key=KEY, nonce="n", first_sequence=1, lines=(line,)))], welcome)
    script.run(a_hello(node=NodeFacts(clock=1.9)))

    (reports,) = [command for command in script.commands if isinstance(command, ReportsReceived)]
    assert reports.records[0].at == 1.75  # type: ignore[union-attr]  # a metric
    assert shown(NodeFacts(), ahead_s=0.9)["notes"] == []


def test_a_clock_that_is_not_told_is_taken_for_right() -> None:
    line = json.dumps({"kind": "metric", "step": 1, "values": {"a": 1.0}, "at": 4_000.0, "final": False})
    script = Script([encode(Reports(key=KEY, nonce="n", first_sequence=1, lines=(line,)))], welcome)
    script.now = 5_000.0
    script.run(a_hello(node=NodeFacts()))

    (reports,) = [command for command in script.commands if isinstance(command, ReportsReceived)]
    assert reports.records[0].at == 4_000.0  # type: ignore[union-attr]  # a metric


# ── another Python, another user ────────────────────────────────────────────────────────────────
def test_another_python_is_said_and_the_node_is_used() -> None:
    view = shown(NodeFacts(python="3.99.1"))

    (note,) = view["notes"]
    assert (view["state"], view["python"]) == ("ready", "3.99.1")
    assert note.startswith("it runs Python 3.99.1, and the service")
    assert "trial.python" in note
    assert shown(NodeFacts(python=platform.python_version()))["notes"] == []


def test_another_user_is_named_and_the_node_is_used() -> None:
    view = shown(NodeFacts(user="nobody (65534)"))

    assert (view["state"], view["user"], view["notes"]) == ("ready", "nobody (65534)", [])


# ── another version, a wrong token ──────────────────────────────────────────────────────────────
def test_another_version_is_ordered_to_leave() -> None:
    hello = {"kind": "hello", "version": PROTOCOL_VERSION - 1, "agent_id": "a", "pid": 17}

    answer = greeted(json.dumps(hello))

    assert isinstance(answer, Leave)
    assert str(PROTOCOL_VERSION) in answer.reason


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (HTTPStatus.UNAUTHORIZED, "does not know the token; `tuner token add NAME --role agent --file F`"),
        (HTTPStatus.FORBIDDEN, "not for the agent of this name; `tuner token add NAME --role agent --file F`"),
        (HTTPStatus.BAD_GATEWAY, "status 502"),
    ],
)
def test_an_agent_that_is_not_let_in_says_why_and_what_to_do(status: HTTPStatus, said: str) -> None:
    error = InvalidStatus(SimpleNamespace(status_code=int(status)))  # type: ignore[arg-type]  # a response's status

    assert said in _why(error)
    assert logging.getLogger("trials.agent.channel").isEnabledFor(logging.WARNING)


# ── trials of several nodes ─────────────────────────────────────────────────────────────────────
def test_a_trial_of_several_nodes_runs_on_each_of_them_and_keeps_each_from_being_drained() -> None:
    parts = tuple(Part(agent_id=f"node-{n}", nonce=f"n{n}", state=PartState.RUNNING) for n in range(3))
    attempt = Attempt(key=KEY, nonce="n0", lineage="", agent_id="node-0", status=AttemptStatus.RUNNING, parts=parts)
    draining = NodeFacts(drained=True)
    channel = Channel(hello=a_hello(agent_id="node-1", node=draining), send=lambda _: None, close=lambda: None)

    views = {view["id"]: view for view in node_views([channel], running_on([attempt]))}

    trial = f"{KEY.experiment_id}/{KEY.number}"
    assert {name: view["trials"] for name, view in views.items()} == {f"node-{n}": [trial] for n in range(3)}
    assert views["node-1"]["state"] == "draining"
    assert views["node-2"]["state"] == "away", "it is known, so that it can be given up"


def test_a_clock_that_is_set_forward_is_believed_at_once_and_one_set_back_once_it_is_told_again() -> None:
    channel = Channel(hello=a_hello(), send=lambda _: None, close=lambda: None, clock_ahead_s=10.0)

    def told(ahead_s: float) -> float:
        channel.hear_clock(1_000.0 + ahead_s, at=1_000.0)
        return channel.clock_ahead_s

    assert [told(ahead_s) for ahead_s in (10.5, 9.5)] == [10.0, 10.0], "as the way of a message makes it"
    assert told(3_600.0) == 3_600.0
    assert told(3_560.0) == 3_600.0, "it may have waited behind a checkpoint"
    assert told(3_600.0) == 3_600.0
    assert told(-5.0) == 3_600.0
    assert told(-5.3) == -5.0, "the one that was on its way for less"
