"""The benchmark of checkpoints in miniature, so that it goes on working."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.checkpoints.__main__ import _rows, _train


@pytest.mark.slow
def test_the_checkpoints_benchmark_measures_every_kind() -> None:
    found = _train(argparse.Namespace(rounds=1, steps=2, width=32, batch=4))

    assert [row["what"] for row in _rows(found, 2)] == [
        "no checkpoint",
        "`trial.save_checkpoint`",
        "`torch.save` in the loop",
        "`torch.save` and `os.fsync` in the loop",
    ]
    assert found["bytes"] == 3 * 4 * 4 * (32 * 32 + 32) + 8 * 4
