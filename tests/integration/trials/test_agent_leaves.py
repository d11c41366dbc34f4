"""An agent that is ordered to leave, or finds what another version wrote, and what is not understood."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, started
from tests.waiting import wait_until
from trials.wire.encoding import encode
from trials.wire.files import FILE_ATTEMPT, FILE_CLAIM, FILE_RESOURCES, FILES_FORMAT, FORMAT
from trials.wire.messages import PROTOCOL_VERSION, Hello, NotUnderstood, Ping, Pong, RemoveExperiment, Stop

HELD = """
import os, time, trials
trial = trials.init()
trial.report(step=0, accuracy=0.5)
while not os.path.exists(os.environ["GATE"]):
    time.sleep(0.01)
trial.report_final(accuracy=1)
"""


def test_an_agent_that_is_ordered_to_leave_ends_and_the_next_one_has_its_trial(
    home: Path, service: FakeService, start_agent: Callable[..., AgentProcess], tmp_path: Path
) -> None:
    first = start_agent()
    service.launch(HELD, environment={"GATE": str(tmp_path / "gate")})
    wait_until(lambda: service.values("accuracy") == [0.5])
    service.orders_to_leave = True
    service.disconnect()
    assert first.wait() == 0
    assert '"event":"ordered_to_leave"' in (home / "agent" / "agent.log").read_text()

    service.orders_to_leave = False
    start_agent()
    (tmp_path / "gate").touch()
    assert service.wait_for_exit().exit.code == 0
    assert service.values("accuracy") == [0.5, 1.0]


def test_a_service_that_welcomes_in_another_version_is_not_spoken_to(home: Path) -> None:
    service = FakeService(home)
    service.version = PROTOCOL_VERSION + 4
    agent = AgentProcess(home)
    try:
        log = home / "agent" / "agent.log"
        wait_until(lambda: log.exists() and '"event":"refused"' in log.read_text())
        assert f"the service speaks version {service.version}, the agent {PROTOCOL_VERSION}" in log.read_text()
    finally:
        agent.kill()
        service.close()


@pytest.mark.parametrize("name", [FILE_ATTEMPT, FILE_CLAIM])
def test_an_attempt_of_an_unknown_format_is_left_alone_until_an_agent_comes_that_knows_it(
    home: Path, service: FakeService, start_agent: Callable[..., AgentProcess], tmp_path: Path, name: str
) -> None:
    first = start_agent()
    launch = service.launch(HELD, environment={"GATE": str(tmp_path / "gate")})
    wait_until(lambda: service.values("accuracy") == [0.5])
    started(service)  # its parent has written the last of its files
    first.kill()
    file = service.folder() / name
    own = file.read_text()
    file.write_text(json.dumps(json.loads(own) | {FORMAT: FILES_FORMAT + 1}))
    before = contents(service.folder())

    second = start_agent()
    (observed,) = service.wait_for(Hello, count=2).attempts
    assert observed.unreadable.startswith(f"{name} is of format {FILES_FORMAT + 1}, and this agent knows format")
    assert observed.exit is None
    service.send(launch)
    service.send(Stop(key=launch.key, nonce="n1", grace_s=0.0, reason="for a test"))
    service.send(RemoveExperiment(experiment_id="exp"))
    service.send(Ping())
    service.wait_for(Pong)
    assert second.terminate() == 0
    assert contents(service.folder()) == before
    assert '"event":"format_unknown"' in (home / "agent" / "agent.log").read_text()

    file.write_text(own)
    start_agent()
    (tmp_path / "gate").touch()
    assert service.wait_for_exit().exit.code == 0
    assert service.values("accuracy") == [0.5, 1.0]


def contents(folder: Path) -> dict[Path, bytes]:
    """But for the samples that its parent takes, whoever is its agent."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != FILE_RESOURCES}


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
