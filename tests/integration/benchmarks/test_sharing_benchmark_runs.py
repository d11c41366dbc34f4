"""The loading benchmarks measure what they say: of several trials that share, on a few files, and of one alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from benchmarks.loading.decoded import BATCH, decode_once, decoded_batches
from benchmarks.loading.sharing import run
from benchmarks.loading.sharing_set import Photos, make_files


@pytest.mark.parametrize("kind", ["ours", "memmap"])
def test_two_trials_that_share_are_measured(kind: str, tmp_path: Path) -> None:
    make_files(tmp_path, 64)

    found = run(kind, tmp_path, files=64, trials=2)

    assert found.delivered == 1
    assert found.samples_s > 0
    assert found.cpu_ms > 0
    assert found.peak_mib > 10
    assert (found.decode_s is not None) is (kind == "memmap")


def test_a_set_that_is_decoded_once_gives_the_batches_of_the_photographs(tmp_path: Path) -> None:
    make_files(tmp_path, 40)
    photos = Photos(str(tmp_path), 40)
    order = np.random.default_rng(3).permutation(40)
    decode_once(tmp_path, 40, tmp_path / "decoded.npy")

    batches = list(decoded_batches(np.load(tmp_path / "decoded.npy"), np.random.default_rng(3)))

    assert [len(images) for images, _ in batches] == [BATCH, 40 - BATCH]
    for (images, labels), begin in zip(batches, range(0, 40, BATCH), strict=True):
        theirs = default_collate([photos[int(index)] for index in order[begin : begin + BATCH]])
        assert torch.equal(images, theirs[0])
        assert torch.equal(labels, theirs[1])


@pytest.mark.slow
def test_a_round_of_a_loader_is_measured_for_three_seconds() -> None:
    command = [sys.executable, "-m", "benchmarks.loading.solo", "ours", "2", "tiny"]

    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )

    found = json.loads(done.stdout.splitlines()[-1])
    assert found["measured_s"] >= 3
    assert found["samples_s"] * found["measured_s"] == pytest.approx(64 * found["batches"])
    assert found["peak_mib"] > 10
