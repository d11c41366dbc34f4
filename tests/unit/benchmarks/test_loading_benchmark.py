"""What the loading benchmark makes of its rounds; and that its sets are the same however they are asked."""

from __future__ import annotations

import argparse
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.loading import workloads
from benchmarks.loading.__main__ import (
    EVERY,
    TARGETS,
    TOLD,
    TORCH,
    Round,
    _command,
    _loaders,
    ratios,
    solo_rows,
    verdicts,
)
from benchmarks.loading.solo import LOADERS, taken
from benchmarks.loading.workloads import WORKLOADS

OURS, THEIRS = ("ours", "2"), (TORCH, "2")


def a_round(mine: float, theirs: float) -> Round:
    others = {"cpu_us": 1.0, "faults": 0.0, "peak_mib": 5.0}
    return {OURS: {"samples_s": mine, **others}, THEIRS: {"samples_s": theirs, **others}}


# The ratio of the medians would be 2.0.
ROUNDS = [a_round(100, 90), a_round(200, 100), a_round(300, 250)]


def test_a_ratio_is_the_median_of_those_of_each_round_and_says_from_where_to_where_they_were() -> None:
    ours, theirs = solo_rows("jpeg", ROUNDS)

    assert ours["samples/s"] == "200 (100–300)"
    assert ours["× torch with 2 that stay"] == "1.20 (1.11–2.00)"
    assert theirs["× torch with 2 that stay"] == "1.00 (1.00–1.00)"


def test_an_aim_is_reached_or_not_by_that_ratio() -> None:
    (said,) = verdicts({"jpeg": ROUNDS})

    assert "is 1.20 (1.11–2.00) of" in said
    assert said.endswith("at least 1.8 was the aim: NOT reached.")


def test_a_loader_that_failed_in_one_round_is_left_out_with_its_error() -> None:
    failed: Round = {**ROUNDS[1], OURS: {"error": "no room"}}

    ours, _ = solo_rows("jpeg", [ROUNDS[0], failed])

    assert ours == {"workload": "jpeg", "loader": "ours", "workers": "2", "left out": "no room"}
    assert ratios([failed], OURS, THEIRS) == []


def test_every_aim_is_measured_in_a_whole_run_by_loaders_that_there_are() -> None:
    assert TOLD.keys() == WORKLOADS.keys()
    for loaders in TOLD.values():
        assert loaders <= {*EVERY}
    assert {name for name, _ in EVERY} <= LOADERS.keys()
    for workload, ours, peer, _ in TARGETS:
        assert {ours, peer} <= TOLD[workload]


def test_the_command_of_a_result_names_no_folder() -> None:
    options = argparse.Namespace(
        rounds=3, workload=None, loader=["ours"], peers_path="/somewhere/peers", peer=["ray=/somewhere/python"]
    )

    assert (
        _command(options)
        == 'python -m benchmarks.loading --rounds 3 --loader "ours" --peers-path DIR --peer ray=PYTHON'
    )
    assert _loaders(options, "tiny") == [("ours", "auto"), ("ours", "2")]


def test_as_many_batches_are_taken_as_the_time_and_the_least_want() -> None:
    assert taken(repeat(None), seconds=0, least=7)[0] == 7
    count, passed = taken(repeat(None), seconds=0.001, least=1)
    assert count > 1
    assert passed >= 0.001


def test_rows_that_are_read_together_are_those_that_are_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "ROWS_FILE", tmp_path / "rows.npy")
    monkeypatch.setattr(workloads, "ROWS", 50)
    dataset: Any = workloads.rows()

    indices = np.random.default_rng(1).integers(0, len(dataset), 20).tolist()
    for index, (row, number) in zip(indices, dataset.__getitems__(indices), strict=True):
        assert number == index
        assert torch.equal(row, dataset[index][0])
