"""Scripts for NNI's population based training: their folders are the checkpoints of the trial."""

from __future__ import annotations

import pytest

from tests.integration.trials.fake_service import FakeService
from trials.wire.launch import CheckpointRef

pytestmark = pytest.mark.usefixtures("agent")
SCRIPT = """
import os
import nni
parameters = nni.get_next_parameter()
load, save = parameters["load_checkpoint_dir"], parameters["save_checkpoint_dir"]
assert nni.get_current_parameter("save_checkpoint_dir") == save
path = os.path.join(load, "model", "weights.txt")
steps = int(open(path).read()) if os.path.exists(path) else 0
while steps < 8:
    steps += 1
    os.makedirs(os.path.join(save, "model"), exist_ok=True)
    with open(os.path.join(save, "model", "weights.txt"), "w") as file:
        file.write(str(steps))
    nni.report_intermediate_result(steps)
nni.report_final_result(steps)
"""
FOLDERS = {"load_checkpoint_dir": "", "save_checkpoint_dir": ""}


def newest_checkpoint(service: FakeService, nonce: str) -> CheckpointRef:
    record = [record for record in service.spools[nonce] if record["kind"] == "checkpoint"][-1]
    return CheckpointRef(digest=record["digest"], step=record["step"], size=record["size"])


def test_a_trial_rests_with_what_it_saved_and_goes_on_from_it(service: FakeService) -> None:
    service.launch(SCRIPT, compat="nni", parameters=FOLDERS, until_step=2)
    assert service.wait_for_exit().exit.code == 0
    assert service.values("accuracy") == [1.0, 2.0, 3.0]

    service.launch(
        SCRIPT, nonce="n2", attempt=2, compat="nni", parameters=FOLDERS, checkpoints=(newest_checkpoint(service, "n1"),)
    )
    assert service.wait_for_exit("n2").exit.code == 0
    assert service.values("accuracy", "n2") == [4.0, 5.0, 6.0, 7.0, 8.0, 8.0]
    steps = [r["step"] for r in service.spools["n2"] if "values" in r and r.get("step") is not None]
    assert steps == [3, 4, 5, 6, 7]


def test_a_fork_finds_what_its_source_saved(service: FakeService) -> None:
    service.launch(SCRIPT, compat="nni", parameters=FOLDERS, until_step=4)
    service.wait_for_exit()

    service.launch(
        SCRIPT, nonce="n2", number=2, compat="nni", parameters=FOLDERS, checkpoints=(newest_checkpoint(service, "n1"),)
    )
    assert service.wait_for_exit("n2").exit.code == 0
    assert service.values("accuracy", "n2")[0] == 6.0


def test_a_script_without_the_folders_among_its_parameters_saves_nothing(service: FakeService) -> None:
    service.launch("import nni\nnni.get_next_parameter()\nnni.report_intermediate_result(1)", compat="nni")

    assert service.wait_for_exit().exit.code == 0
    assert [r for r in service.spools["n1"] if r["kind"] == "checkpoint"] == []
