"""The benchmark of checkpoints in miniature, so that it goes on working."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.checkpoints.__main__ import TITLES, _rows, _train


@pytest.mark.slow
def test_the_checkpoints_benchmark_measures_every_kind() -> None:
    found = _train(argparse.Namespace(rounds=1, steps=2, width=32, batch=4), [])

    alone = {kind: [{"first_s": 0.2, "next_s": 0.1, "peak_mib": 300.0 + place}] for place, kind in enumerate(TITLES)}
    rows = _rows(found, alone, 2)

    assert [row["what"] for row in rows] == [
        "no checkpoint",
        "`trial.save_checkpoint`",
        "`torch.save` in the loop",
        "`torch.save` and `os.fsync` in the loop",
        "`torch.distributed.checkpoint.async_save`",
    ]
    assert [row.get("memory MiB") for row in rows] == [None, 1, 2, 3, 4]
    assert found["bytes"] == 3 * 4 * 4 * (32 * 32 + 32) + 8 * 4
