"""A launch that cannot be made costs its own attempt, and nothing else that the same fork server runs."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running
from tests.waiting import wait_until
from trials.files import read_json
from trials.wire.messages import Stop

StartAgent = Callable[..., AgentProcess]
WAITS = "import time\nprint('here', flush=True)\nwhile True: time.sleep(0.05)\n"
WRONG: dict[str, dict[str, Any]] = {
    "half a surrogate pair": {"parameters": {"lr": "\ud800"}, "arguments_prefix": "--"},
    "half a pair in a name": {"parameters": {"\ud800": 1}, "arguments_prefix": "--"},
    "a NUL": {"parameters": {"lr": "a\0b"}},
    "a variable without a name": {"environment": {"": "x"}},
    "a variable that is no text": {"environment": {"A": 5}},
    "no parameters": {"parameters": None},
    "no command": {"command": 7},
    "a seed that is none": {"seed": "seven"},
}


def fork_server_of(service: FakeService) -> dict[str, Any]:
    """Who has claimed the trial."""
    found = read_json(str(service.folder() / "claim.json"))
    assert found is not None
    return found


def order(server: dict[str, Any], order: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.connect(server["orders"])
        sending.send(json.dumps(order).encode())


def a_copy(folder: Path, number: int, **spec: Any) -> Path:
    """The folder of another attempt, that no agent would have written so."""
    attempt = read_json(str(folder / "attempt.json"))
    assert attempt is not None
    copy = folder.parent / f"copy-{number}"
    (copy / "work").mkdir(parents=True)
    shutil.copy(folder / "work" / "train.py", copy / "work")
    attempt |= {"nonce": f"{attempt['nonce']}-{number}", "spec": attempt["spec"] | spec}
    (copy / "attempt.json").write_text(json.dumps(attempt))
    return copy


@pytest.fixture
def server(service: FakeService, start_agent: StartAgent) -> dict[str, Any]:
    """One that runs a trial."""
    start_agent()
    service.launch(WAITS)
    wait_until((service.folder() / "process.json").exists)
    return fork_server_of(service)


def test_what_cannot_be_started_fails_by_itself_with_its_reason(service: FakeService, server: dict[str, Any]) -> None:
    trial = read_json(str(service.folder() / "process.json"))
    assert trial is not None
    for number, (what, spec) in enumerate(WRONG.items()):
        folder = a_copy(service.folder(), number, **spec)
        order(server, {"start": str(folder)})
        record = wait_until(lambda: read_json(str(folder / "exit.json")))  # noqa: B023  within this turn
        assert record["cause"] == "launch_failed", what
        assert "cannot be" in record["tail"], what
        record["tail"].encode()

    assert is_running(server["pid"])
    assert is_running(trial["pid"])
    launch = service.launch("print('the next one')", nonce="n2", number=2)
    assert service.wait_for_exit("n2").exit.cause == "exited"
    assert launch.key.number == 2
    service.send(Stop(key=service.launch(WAITS).key, nonce="n1", grace_s=0.1, reason="stopped_by_user"))
    assert service.wait_for_exit("n1").exit.cause == "stopped"


@pytest.mark.parametrize(
    "wrong",
    [{"start": "/nowhere"}, {"start": 5}, {"stop": "x", "grace_s": "soon", "reason": 1}, [], 3, "start"],
    ids=str,
)
def test_an_order_that_makes_no_sense_harms_nothing(service: FakeService, server: dict[str, Any], wrong: Any) -> None:
    broken = service.folder().parent / "broken"
    broken.mkdir()
    (broken / "attempt.json").write_text('{"nonce": 5}')
    order(server, wrong)
    order(server, {"start": str(broken)})

    service.launch("print('the next one')", nonce="n2", number=2)
    assert service.wait_for_exit("n2").exit.cause == "exited"
    assert is_running(server["pid"])
