"""Further parameters for a running script, handed on by a real agent."""

from __future__ import annotations

import json

import pytest

from tests.integration.trials.fake_service import FakeService
from tests.waiting import wait_until
from trials.wire.attempt import AttemptKey
from trials.wire.launch import CheckpointRef
from trials.wire.messages import FurtherParameters, Stop

pytestmark = pytest.mark.usefixtures("agent")

KEY = AttemptKey(experiment_id="exp", number=1, attempt=1)
PHASES = """
import trials
with trials.init({"batch": 8}) as trial:
    while True:
        trial.report_final(accuracy=trial.parameters["lr"], batch=trial.parameters["batch"])
        if trial.next_parameters() is None:
            break
"""
CHECKPOINTING = """
import trials
with trials.init() as trial:
    if trial.restore() is None:
        trial.next_parameters()
        trial.save_checkpoint({"half": "way"}, step=4)
    trial.report_final(accuracy=trial.parameters["lr"])
"""


def further(index: int, lr: float | None) -> FurtherParameters:
    return FurtherParameters(key=KEY, nonce="n1", index=index, parameters=None if lr is None else {"lr": lr})


def wanted(service: FakeService, nonce: str = "n1") -> list[int]:
    return [record["index"] for record in service.spools.get(nonce, []) if record["kind"] == "parameters_wanted"]


def test_a_script_asks_through_its_spool_and_gets_the_answer_as_a_file(service: FakeService) -> None:
    service.launch(PHASES)
    wait_until(lambda: wanted(service) == [1])
    service.send(further(1, 0.2))
    service.send(further(1, 0.2))
    wait_until(lambda: wanted(service) == [1, 2])
    service.send(further(2, None))

    assert service.wait_for_exit().exit.code == 0
    assert service.values("accuracy") == [0.1, 0.2]
    assert service.values("batch") == [8, 8]
    assert json.loads((service.folder() / "parameters-1.json").read_text()) == {"parameters": {"lr": 0.2}}


def test_what_an_earlier_attempt_was_given_is_there_from_the_start(service: FakeService) -> None:
    service.launch(PHASES, further_parameters=({"lr": 0.2}, {"lr": 0.3}))
    wait_until(lambda: wanted(service) == [1, 2, 3])
    service.send(further(3, None))

    assert service.wait_for_exit().exit.code == 0
    assert service.values("accuracy") == [0.1, 0.2, 0.3]


def test_a_trial_that_waits_for_parameters_can_be_stopped(service: FakeService) -> None:
    launch = service.launch(PHASES)
    wait_until(lambda: wanted(service) == [1])
    service.send(Stop(key=launch.key, nonce="n1", grace_s=5.0, reason="stopped_by_user"))

    assert service.wait_for_exit().exit.stop_reason == "stopped_by_user"


def test_from_a_checkpoint_it_goes_on_with_the_parameters_it_was_saved_under(service: FakeService) -> None:
    given = ({"lr": 0.2},)
    service.launch(CHECKPOINTING, further_parameters=given)
    service.wait_for_exit()
    (record,) = [r for r in service.spools["n1"] if r["kind"] == "checkpoint"]

    checkpoint = CheckpointRef(digest=record["digest"], step=4, size=record["size"])
    service.launch(CHECKPOINTING, nonce="n2", attempt=2, further_parameters=given, checkpoints=(checkpoint,))

    assert service.wait_for_exit("n2").exit.code == 0
    assert service.values("accuracy", "n2") == [0.2]
    assert wanted(service, "n2") == []
