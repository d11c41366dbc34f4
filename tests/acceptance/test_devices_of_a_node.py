"""A real service, agent and trials on a node of simulated GPUs: who gets which, and what happens when one goes."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Home
from tests.simulated_devices import Gpus
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SEES = """
import os, pathlib, time, trials

gate = pathlib.Path(os.environ["GATE"])
with trials.init() as trial:
    pathlib.Path("seen").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "unset"))
    trial.report(step=0, loss=1.0)
    while not gate.exists():
        time.sleep(0.01)
    trial.report_final(loss=trial.parameters["x"])
"""


@pytest.fixture
def gpus(tmp_path: Path) -> Gpus:
    return Gpus(
        tmp_path / "devices.json",
        [{"uuid": f"GPU-{n}", "name": "A100", "memory_mb": 80_000, "used_mb": 5} for n in range(4)],
    )


@pytest.fixture
def node(make_home: Callable[..., Home], gpus: Gpus) -> Home:
    return make_home(environment={"TUNER_SIMULATED_DEVICES": str(gpus.file)})


def begin(node: Home, resources: dict[str, Any], script: str = SEES, **overrides: Any) -> str:
    trial = {"resources": resources} | overrides.pop("trial", {})
    return node.begin(
        script, trial=trial, budget={"trials": 40, "parallel": 40} | overrides.pop("budget", {}), **overrides
    )


def held(node: Home, experiment: str | None = None) -> dict[int, list[str]]:
    """What each running trial of the experiment holds."""
    with node.service() as service:
        running = service.experiment(experiment or node.id)["running"]
    return {a["number"]: [d["uuid"] for d in a["devices"]] for a in running if a["step"] is not None}


def holding(node: Home, count: int, experiment: str | None = None) -> dict[int, list[str]]:
    def found() -> dict[int, list[str]] | None:
        now = held(node, experiment)
        return now if len(now) == count else None

    return wait_until(found)


def seen(node: Home, number: int) -> str:
    """What the script of the trial has found in its variables."""
    return (node.folder_of(number) / "work" / "seen").read_text()


def states(node: Home) -> dict[str, str]:
    with node.service() as service:
        return {device["uuid"]: device["state"] for device in service.devices()}


def test_each_trial_sees_its_own_device_and_one_that_asked_for_none_sees_none(node: Home) -> None:
    begin(node, {"gpus": 1})
    found = holding(node, 4)

    assert sorted(uuid for uuids in found.values() for uuid in uuids) == [f"GPU-{n}" for n in range(4)]
    for number, uuids in found.items():
        assert seen(node, number) == ",".join(uuids)
    assert Counter(states(node).values()) == {"held": 4}

    first = node.id
    begin(node, {}, budget={"trials": 1, "parallel": 1})
    (other,) = holding(node, 1)
    assert seen(node, other) == ""
    assert holding(node, 4, first) == found


def test_what_is_held_is_held_after_the_service_was_killed(node: Home, gpus: Gpus) -> None:
    begin(node, {"gpus": 2}, budget={"trials": 3, "parallel": 3})
    found = holding(node, 2)
    node.kill_all("service", "agent")
    node.serve()

    assert holding(node, 2) == found
    assert Counter(states(node).values()) == {"held": 4}
    node.open_gate()
    node.completed()
    assert node.attempts() == [(1, 1), (2, 1), (3, 1)]
    wait_until(lambda: set(states(node).values()) == {"free"})


def test_a_device_that_is_lost_is_given_to_nobody_and_its_trial_goes_on_elsewhere(node: Home, gpus: Gpus) -> None:
    begin(node, {"gpus": 1}, budget={"trials": 3, "parallel": 3})
    found = holding(node, 3)
    (lost,) = found[2]
    gpus.change(int(lost[-1]), fault="fell off the bus")

    wait_until(lambda: node.trial(2)["attempts"] == 2)
    moved = holding(node, 3)
    assert moved[2] not in found.values()
    assert states(node)[lost] == "lost"
    node.open_gate()
    node.completed()
    assert node.trial(2)["status"] == "succeeded"


def test_a_strangers_device_is_left_alone_and_used_once_the_stranger_has_gone(node: Home, gpus: Gpus) -> None:
    gpus.change(1, pids=[os.getpid()], used_mb=9_000)
    begin(node, {"gpus": 1})
    assert "GPU-1" not in {uuid for uuids in holding(node, 3).values() for uuid in uuids}
    assert states(node)["GPU-1"] == "occupied"

    gpus.change(1, pids=[], used_mb=5)
    assert ["GPU-1"] in holding(node, 4).values()


def test_a_device_whose_memory_did_not_come_back_is_given_to_nobody_until_it_has(node: Home, gpus: Gpus) -> None:
    begin(node, {"gpus": 1}, budget={"trials": 5, "parallel": 4})
    holding(node, 4)
    gpus.change(2, used_mb=20_000)
    node.open_gate()
    node.completed()

    assert wait_until(lambda: Counter(states(node).values()) == {"free": 3, "occupied": 1})
    assert states(node)["GPU-2"] == "occupied"
    gpus.change(2, used_mb=30)
    wait_until(lambda: states(node)["GPU-2"] == "free")


def test_a_request_for_all_devices_waits_for_all_and_one_for_more_is_refused_with_what_there_is(node: Home) -> None:
    begin(node, {"gpus": 0.5}, budget={"trials": 1, "parallel": 1})
    holding(node, 1)
    small = node.id
    begin(node, {"gpus": "all"}, budget={"trials": 1, "parallel": 1})
    node.open_gate()
    node.completed()

    assert seen(node, 1) == "GPU-0,GPU-1,GPU-2,GPU-3"
    node.id = small
    node.completed()
    file = node.folder / "search.json"
    body = json.loads(file.read_text())
    body["trial"]["resources"] = {"gpus": 5}
    file.write_text(json.dumps(body))
    refused = node.ended("start", str(file))
    assert refused.returncode == 2
    assert "a trial asks for 5 GPUs; no node has that; there is local (" in refused.stderr
    assert "4 × A100)" in refused.stderr


def test_trials_that_share_a_device_know_their_part_of_its_memory(node: Home) -> None:
    script = SEES.replace('"unset"))', '"unset") + " " + os.environ["TUNER_GPU_MEMORY_FRACTION"])')
    begin(node, {"gpus": 0.25}, script=script, budget={"trials": 4, "parallel": 4})

    assert set(map(tuple, holding(node, 4).values())) == {("GPU-0",)}
    assert seen(node, 1) == "GPU-0 0.25"


SHORT = """
import os, pathlib, time, trials

with trials.init() as trial:
    trial.report(step=0, loss=1.0)
    time.sleep(0.05 + 0.1 * trial.parameters["x"])
    trial.report_final(loss=trial.parameters["x"])
"""


def test_two_quota_groups_share_as_they_should_and_lend_what_is_idle(node: Home) -> None:
    """Groups of 3 and 1 devices: alone, the small one borrows all four; it gives them back within one trial."""
    begin(node, {}, budget={"trials": 1, "parallel": 1})
    node.tuner("quota", "set", "three", "--gpus", "3")
    node.tuner("quota", "set", "one", "--gpus", "1")
    first = begin(node, {"gpus": 1}, script=SHORT, quota_group="one", budget={"trials": 500, "parallel": 4})

    def used() -> dict[str, float]:
        with node.service() as service:
            return {group["name"]: group["used"] for group in service.quota_groups()}

    wait_until(lambda: used()["one"] == 4)
    second = begin(node, {"gpus": 1}, script=SHORT, quota_group="three", budget={"trials": 500, "parallel": 4})
    wait_until(lambda: used() == {"default": 0, "one": 1, "three": 3})
    assert node.tuner("quota", "rm", "one", check=False) == ""

    done = {experiment: ended(node, experiment) for experiment in (first, second)}
    wait_until(lambda: ended(node, second) - done[second] >= 45)
    large, small = ended(node, second) - done[second], ended(node, first) - done[first]
    assert large / (large + small) == pytest.approx(0.75, abs=0.1), "by their number; by time it is shown by simulation"
    node.tuner("stop", second)
    wait_until(lambda: used()["one"] == 4)
    node.tuner("stop", first, "--wait")
    node.tuner("quota", "rm", "one")


def ended(node: Home, experiment: str) -> int:
    with node.service() as service:
        return int(service.experiment(experiment)["counts"].get("succeeded", 0))


TAKES = """
import json, os, pathlib, time, trials

gate = pathlib.Path(os.environ["GATE"])
with trials.init() as trial:
    uses = pathlib.Path(os.environ["DEVICES"] + ".uses")
    uses.mkdir(exist_ok=True)
    use = {"uuid": os.environ["CUDA_VISIBLE_DEVICES"], "used_mb": 18_000}
    draft = uses / f"{os.getpid()}.draft"
    draft.write_text(json.dumps(use))
    draft.replace(uses / f"{os.getpid()}.json")
    trial.report(step=0, loss=1.0)
    while trial.number == 1 and not (gate.parent / "measured").exists() or trial.number > 1 and not gate.exists():
        time.sleep(0.01)
    trial.report_final(loss=trial.parameters["x"])
"""


def test_auto_measures_the_first_trial_and_packs_as_many_as_fit(node: Home, gpus: Gpus) -> None:
    """18,000 of 80,000 MiB, with a tenth more: four on each device, and an exact solver has no more."""
    begin(
        node,
        {"gpus": "auto"},
        script=TAKES,
        budget={"trials": 40, "parallel": 20},
        trial={"environment": {"GATE": str(node.gate), "DEVICES": str(gpus.file)}},
    )
    assert len({uuid for uuids in holding(node, 4).values() for uuid in uuids}) == 4

    wait_until(lambda: node.trial(1)["attempt_details"][0]["peak_gpu_bytes"])
    (node.folder / "measured").touch()
    # The three that were first alone on a device keep all of it until they end.
    packed = holding(node, 3 + 4)
    assert Counter(uuid for uuids in packed.values() for uuid in uuids) == {
        "GPU-0": 4,
        "GPU-1": 1,
        "GPU-2": 1,
        "GPU-3": 1,
    }
