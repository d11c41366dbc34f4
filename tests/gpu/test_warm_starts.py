"""Trials forked from a process that has imported torch: CUDA works in each, and the first kernel comes sooner."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.acceptance.harness import Home

pytestmark = pytest.mark.gpu

KERNEL = """
import os, time
began = float(os.popen("cut -d' ' -f22 /proc/%d/stat" % os.getpid()).read()) / os.sysconf("SC_CLK_TCK")
import torch, trials

with trials.init() as trial:
    ones = torch.ones(1000, device="cuda")
    assert float(ones.sum()) == 1000.0
    trial.report_final(loss=time.clock_gettime(time.CLOCK_BOOTTIME) - began)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(folder=tmp_path)
    yield made
    made.end()


def seconds_to_the_first_kernel(home: Home, isolation: str) -> float:
    """Of the median trial, from its process's start; the trials take turns."""
    trial = {"resources": {"gpus": 1}, "preload": ["torch"], "isolation": isolation}
    home.begin(KERNEL, budget={"trials": 5, "parallel": 1}, trial=trial)
    home.completed()
    found = [home.trial(number) for number in range(1, 6)]
    assert {one["attempt_details"][0]["exit"]["isolation"] for one in found} == {isolation}
    return median(one["value"] for one in found)


def test_a_forked_trial_has_its_own_cuda_and_comes_sooner_to_its_first_kernel(home: Home) -> None:
    forked, spawned = (seconds_to_the_first_kernel(home, isolation) for isolation in ("fork", "spawn"))

    print(json.dumps({"forked_s": forked, "spawned_s": spawned}))
    assert forked < spawned
