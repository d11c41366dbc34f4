"""The driver itself, and trials on a real device."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Home
from trials.agent.devices.reading import MIB, Devices, NvmlDevices, open_source

TRAIN = """
import os, time, torch, trials

with trials.init() as trial:
    assert torch.cuda.device_count() == 1, os.environ["CUDA_VISIBLE_DEVICES"]
    weights = torch.randn(1024, 1024, device="cuda")
    for step in range(20):
        for _ in range(20):
            weights = torch.tanh(weights @ weights.t() / 1024)
        torch.cuda.synchronize()
        trial.report(step=step, loss=float(weights.mean()))
        time.sleep(0.1)  # as a script that waits for its data
    trial.report_final(loss=float(weights.std()))
"""
SEES_NONE = """
import torch, trials

with trials.init() as trial:
    trial.report_final(loss=float(torch.cuda.device_count()))
"""
TAKES_TOO_MUCH = """
import torch, trials

with trials.init() as trial:
    if trial.number == 1:
        held = torch.empty(1 << 42, dtype=torch.uint8, device="cuda")  # 4 TiB
    trial.report_final(loss=float(torch.ones(8, device="cuda").sum()))
"""
TAKES = """
import sys, torch
held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(folder=tmp_path)
    yield made
    made.end()


def run(home: Home, script: str, **resources: Any) -> float:
    """Seconds that four trials took."""
    began = time.monotonic()
    parallel = resources.pop("parallel", 4)
    home.begin(script, budget={"trials": 4, "parallel": parallel}, trial={"resources": resources, "preload": ["torch"]})
    home.completed()
    return time.monotonic() - began


def test_the_driver_lists_its_devices_by_uuid() -> None:
    source = open_source({})
    try:
        readings = source.read()
    finally:
        source.close()

    assert isinstance(source, NvmlDevices)
    assert readings
    assert all(reading.uuid.startswith(("GPU-", "MIG-")) and reading.memory_bytes for reading in readings)


def test_a_process_on_a_device_is_a_stranger_until_it_is_ours_and_its_memory_comes_back_with_its_end() -> None:
    source = open_source({})
    own = {pid for reading in source.read() for pid in reading.pids}  # whoever was there before
    devices = Devices(source)
    assert not any(state.occupied for state in devices.states(own_pids=own, given=()))
    with subprocess.Popen([sys.executable, "-c", TAKES], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdin is not None
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"holds\n"
        taken = [state.uuid for state in devices.states(own_pids=own, given=()) if state.occupied]
        assert len(taken) == 1
        assert devices.used_bytes(taken, own | {stranger.pid}) >= 1_024 * MIB or not _tells_pids(stranger.pid)
        stranger.stdin.close()
    deadline = time.monotonic() + 20
    while any(s.occupied for s in devices.states(own_pids=own, given=()) if s.uuid in taken):
        assert time.monotonic() < deadline, "its memory did not come back"
    devices.close()


def _tells_pids(pid: int) -> bool:
    """Whether the driver tells numbers of this namespace: in a container it may not."""
    source = open_source({})
    found = any(pid in reading.pids for reading in source.read())
    source.close()
    return found


def test_a_trial_that_asks_for_no_device_sees_none(home: Home) -> None:
    run(home, SEES_NONE)

    assert {trial["value"] for trial in home.trials()} == {0.0}


def test_four_small_trials_share_a_device_and_finish_sooner_than_one_after_another(home: Home) -> None:
    run(home, TRAIN, gpus=0.25)  # whatever is slow for the first time alone
    together = run(home, TRAIN, gpus=0.25)
    uuids = {d["uuid"] for n in range(1, 5) for d in home.trial(n)["attempt_details"][0]["devices"]}
    assert len(uuids) == 1
    assert {home.trial(n)["attempt_details"][0]["exit"]["isolation"] for n in range(1, 5)} == {"fork"}

    alone = run(home, TRAIN, gpus=1, parallel=1)

    print(json.dumps({"together_s": together, "one_after_another_s": alone}))
    assert together < 0.75 * alone


def test_auto_finds_out_what_a_trial_needs_and_packs_the_next_ones(home: Home) -> None:
    home.begin(
        TRAIN,
        budget={"trials": 12, "parallel": 8},
        trial={"resources": {"gpus": "auto"}, "preload": ["torch"]},
    )
    home.completed()

    details = [home.trial(n)["attempt_details"][0] for n in range(1, 13)]
    assert details[0]["devices"][0]["share"] == 1
    assert details[0]["peak_gpu_bytes"] > 50 * MIB
    assert details[-1]["devices"][0]["share"] < 0.5


def test_a_trial_for_which_the_memory_of_its_device_is_not_enough_fails_and_costs_the_others_nothing(
    home: Home,
) -> None:
    home.begin(
        TAKES_TOO_MUCH,
        budget={"trials": 4, "parallel": 4, "failures": 2},
        trial={"resources": {"gpus": 0.25}, "preload": ["torch"]},
    )
    home.completed()

    first, *others = (home.trial(number) for number in range(1, 5))
    assert first["status"] == "failed"
    assert "OutOfMemoryError" in first["attempt_details"][-1]["exit"]["tail"]
    assert [other["value"] for other in others] == [8.0] * 3
