"""The agent with services of this version and the one before, and of none it knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService
from tests.waiting import wait_until
from trials.wire.encoding import encode
from trials.wire.messages import SUPPORTED_VERSIONS, Hello, NotUnderstood, Ping, Pong

REPORTING = "import trials\ntrials.init().report_final(accuracy=1)"
EARLIER = json.loads((Path(__file__).parents[2] / "approved" / "agent-protocol-1.json").read_text())


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_a_trial_runs_for_a_service_of_each_version(home: Path, version: int) -> None:
    service = FakeService(home)
    service.version = version
    agent = AgentProcess(home)
    try:
        hello = service.wait_for(Hello)
        assert (hello.version, hello.supported) == (1, SUPPORTED_VERSIONS)
        service.launch(REPORTING)
        assert service.wait_for_exit().exit.code == 0
        assert service.values("accuracy") == [1.0]
        if version == 1:
            kinds = {message.kind for message in service.messages}
            assert kinds <= set(EARLIER["messages"])
    finally:
        agent.kill()
        service.close()


def test_what_the_agent_does_not_understand_is_named_and_it_goes_on(service: FakeService, agent: AgentProcess) -> None:
    connection = service._connection
    assert connection is not None
    connection.send('{"kind": "dance"}')
    assert service.wait_for(NotUnderstood).about == "dance"
    connection.send('{"kind": "stop", "key": 3}')
    answer = service.wait_for(NotUnderstood, count=2)
    assert (answer.about, answer.reason) == ("stop", "stop.key: expected dict, got int")
    connection.send('{"kind": "pong"}')
    assert (
        "'pong' is not for an agent at this point; it takes welcome, "
        in service.wait_for(NotUnderstood, count=3).reason
    )
    connection.send(encode(NotUnderstood(about="x", reason="y")))
    connection.send(encode(Ping()))

    service.wait_for(Pong)
    assert len(service.of(NotUnderstood)) == 3


def test_a_service_that_speaks_no_version_of_the_agents_is_left_with_both_named(home: Path) -> None:
    service = FakeService(home)
    service.version = 7
    agent = AgentProcess(home)
    try:
        log = home / "agent" / "agent.log"
        wait_until(lambda: log.exists() and "event=refused" in log.read_text())
        assert "the service speaks version 7, the agent 1, 2" in log.read_text()
    finally:
        agent.kill()
        service.close()
