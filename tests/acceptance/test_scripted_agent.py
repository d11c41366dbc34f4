"""A whole experiment of the real service with an agent that was written from docs/agent-protocol.md alone."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests import scripted_agent
from tests.acceptance.harness import Home
from tests.scripted_agent import Attempt, ScriptedAgent
from tests.waiting import wait_until
from trials.wire.messages import PROTOCOL_VERSION

SCRIPT = "print('never run')\n"
STATE = os.urandom((1 << 20) + 17)  # two frames


@pytest.fixture
def agent(home: Home) -> Iterator[ScriptedAgent]:
    made = ScriptedAgent(home.home)
    with made.in_place_of_the_nodes_own():
        yield made


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """``work`` goes on beside the block; what it gave is there after it."""
    given: list[Any] = []
    thread = threading.Thread(target=lambda: given.append(work()))
    thread.start()
    yield given
    thread.join()


def a_search(home: Home, **overrides: Any) -> None:
    home.begin(SCRIPT, **({"budget": {"trials": 3, "parallel": 2}} | overrides))


def statuses(home: Home) -> dict[int, str]:
    return {trial["number"]: trial["status"] for trial in home.trials()}


def test_the_scripted_agent_imports_nothing_of_the_project() -> None:
    tree = ast.parse(Path(scripted_agent.__file__).read_text())
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not {name for name in imported if name.split(".")[0] in {"trials", "tuner_service", "tests"}}


def test_a_whole_experiment_by_an_agent_written_from_the_page(home: Home, agent: ScriptedAgent) -> None:
    a_search(home, trial={"max_attempts": 2, "keep": {"last": 1}})
    assert agent.connect()["version"] == scripted_agent.VERSION
    first, second = agent.launched(1), agent.launched(2)

    assert agent.code_of(first)["train.py"].decode() == SCRIPT
    assert first.spec["command"] == ["python", "train.py"]
    assert 0 <= first.spec["parameters"]["x"] <= 1
    begins_reports_and_reconnects(agent, first)
    is_stopped_by_a_person(home, agent, second)
    goes_on_from_its_checkpoint(agent, first)
    for number, loss in ((3, 0.25), (4, 0.5)):  # one in the place of that which was given up
        other = agent.launched(number)
        agent.start(other)
        agent.send_reports(other, first=1)  # of nothing at all
        other.metric(None, loss=loss)
        agent.exited(other)

    assert home.completed()["best"]["number"] == 3
    assert statuses(home) == {1: "succeeded", 2: "canceled", 3: "succeeded", 4: "succeeded"}
    assert home.steps(1) == [0, 1, 2, 2, 3]
    assert [a["status"] for a in home.trial(1)["attempt_details"]] == ["exited", "exited"]
    assert agent.attempts == {}
    home.tuner("rm", home.id)
    assert agent.wait_for_kind("remove_experiment")["experiment_id"] == home.id
    # The checkpoint after it was kept in its place.
    assert [(d["nonce"], d["name"]) for d in agent.deleted] == [(first.nonce, "1.ckpt")]


def begins_reports_and_reconnects(agent: ScriptedAgent, attempt: Attempt) -> None:
    agent.start(attempt)
    attempt.metric(0, loss=3.0)
    attempt.metric(1, loss=2.0, accuracy=float("nan"))
    assert agent.store(STATE)["error"] is None
    attempt.checkpoint(1, STATE)
    agent.report(attempt)
    attempt.metric(2, loss=1.5)
    agent.send_reports(attempt)
    agent.drop()  # whether the service has taken the line, nobody knows
    attempt.lines.append("this is no record")
    agent.connect()
    agent.send_reports(attempt, first=2)  # some of them for the second time
    wait_until(lambda: agent.wait_for_kind("acknowledge", nonce=attempt.nonce)["sequence"] == len(attempt.lines))
    assert agent.fetch("0" * 64) is None


def is_stopped_by_a_person(home: Home, agent: ScriptedAgent, attempt: Attempt) -> None:
    agent.start(attempt)
    attempt.stdout = "first line\nlast line ∎\n".encode()
    attempt.metric(0, loss=9.0)
    agent.report(attempt)
    with meanwhile(lambda: home.tuner("logs", f"{home.id}/{attempt.number}")) as shown:
        agent.wait_for_kind("read_log", stream="stdout", nonce=attempt.nonce)
        with meanwhile(lambda: home.tuner("trial", "stop", f"{home.id}/{attempt.number}")):
            order = agent.wait_for_kind("stop", nonce=attempt.nonce)
    assert shown == ["first line\nlast line ∎\n"]
    assert order["grace_s"] == 2.0
    agent.exited(attempt, cause="stopped", code=None, signal=15, stop_reason=order["reason"])


def goes_on_from_its_checkpoint(agent: ScriptedAgent, attempt: Attempt) -> None:
    agent.exited(attempt, code=1, tail="RuntimeError: of the script")
    again = agent.launched(attempt.number, attempt=2)
    assert again.spec["parameters"] == attempt.spec["parameters"]
    assert again.spec["seed"] == attempt.spec["seed"]
    (reference,) = again.spec["checkpoints"]
    assert (reference["step"], reference["size"], reference["path"]) == (1, len(STATE), None)
    assert agent.fetch(reference["digest"]) == STATE
    agent.start(again)
    asks_for_the_checkpoints_of_another_trial(agent, again, reference)
    again.metric(2, loss=1.5)
    again.metric(3, loss=1.0)
    newer = os.urandom(100)
    assert agent.store(newer)["error"] is None
    again.checkpoint(3, newer)
    again.metric(None, loss=1.0)
    agent.exited(again)


def asks_for_the_checkpoints_of_another_trial(agent: ScriptedAgent, attempt: Attempt, known: dict[str, Any]) -> None:
    wanted = {"kind": "checkpoints_wanted", "nonce": attempt.nonce, "experiment_id": attempt.key["experiment_id"]}
    agent.say(wanted | {"request_id": "r1", "number": attempt.number})
    found = agent.wait_for_kind("checkpoints_found", request_id="r1")
    assert (found["nonce"], found["checkpoints"], found["error"]) == (attempt.nonce, [known], None)
    agent.say(wanted | {"request_id": "r2", "number": 77, "step": 5})
    refused = agent.wait_for_kind("checkpoints_found", request_id="r2")
    assert refused["checkpoints"] == []
    assert "there is no trial 77" in refused["error"]


def test_further_parameters_come_when_they_are_asked_for_and_again_in_the_next_attempt(
    home: Home, agent: ScriptedAgent
) -> None:
    a_search(home, budget={"trials": 1, "parallel": 1}, trial={"max_attempts": 2})
    agent.connect()
    attempt = agent.launched(1)
    agent.start(attempt)
    attempt.wants_parameters(1)
    agent.report(attempt)
    given = agent.wait_for_kind("further_parameters", nonce=attempt.nonce)
    assert given["index"] == 1
    assert given["parameters"] != attempt.spec["parameters"]
    agent.exited(attempt, code=1)

    again = agent.launched(1, attempt=2)
    assert again.spec["further_parameters"] == [given["parameters"]]
    agent.start(again)
    again.metric(None, loss=1.0)
    agent.exited(again)
    home.completed()


def test_what_is_not_understood_is_refused_by_name_and_the_channel_goes_on(home: Home, agent: ScriptedAgent) -> None:
    a_search(home, budget={"trials": 1, "parallel": 1})
    agent.connect()
    attempt = agent.launched(1)
    for message, about, reason in (
        ({"kind": "dance"}, "dance", "unknown kind 'dance'; known: acknowledge, "),
        ({"kind": "launch", "key": attempt.key}, "launch", "launch: "),
        ({"kind": "forget", "nonce": "n"}, "forget", "'forget' is not for a service at this point; it takes hello, de"),
        (
            {"kind": "started", "key": attempt.key, "nonce": 3, "process": None},
            "started",
            "started.nonce: expected str",
        ),
        ({"no": "kind"}, "", "unknown kind None; known: "),
    ):
        agent.say(message)
        answer = agent.wait_for_kind("not_understood")
        assert answer["about"] == about
        assert answer["reason"].startswith(reason)

    agent.start(attempt)
    attempt.metric(None, loss=1.0)
    agent.exited(attempt)
    home.completed()


def test_an_agent_of_another_version_is_ordered_to_leave_and_nonsense_is_refused(
    home: Home, agent: ScriptedAgent
) -> None:
    a_search(home, budget={"trials": 1, "parallel": 1})
    other = {
        "kind": "hello",
        "version": PROTOCOL_VERSION + 1,
        "agent_id": "local",
        "pid": 1,
        "attempts": "something else",
    }
    for hello, kind, reason in (
        (other, "leave", f"the agent speaks version {PROTOCOL_VERSION + 1}, the service {PROTOCOL_VERSION}"),
        (agent.hello() | {"attempts": 3}, "refused", "hello.attempts: expected list, got int"),
        (agent.hello() | {"agent_id": "b"}, "refused", "the hello of agent 'b' came on the channel of 'local'"),
        ({"kind": "pong"}, "refused", "the first message must be a hello, not 'pong'"),
        ({"no": "kind"}, "refused", "the first message must be a hello, not ''"),
    ):
        with agent.channel() as channel:
            agent._channel = channel
            agent.say(hello)
            refused = agent.wait_for_kind(kind)
            with pytest.raises(ConnectionClosed):
                channel.recv(timeout=scripted_agent.ANSWER_S)
        assert refused["reason"].startswith(reason)
    agent._channel = None
    with pytest.raises(InvalidStatus) as denied, agent.channel(token="of somebody else"):
        pass
    assert denied.value.response.status_code in {401, 403}
