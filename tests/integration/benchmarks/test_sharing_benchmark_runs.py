"""The sharing benchmark measures what it says, on a few files."""

from __future__ import annotations

from pathlib import Path

from benchmarks.loading.sharing import run
from benchmarks.loading.sharing_set import make_files


def test_two_trials_that_share_are_measured(tmp_path: Path) -> None:
    make_files(tmp_path, 64)

    found = run("ours", tmp_path, files=64, trials=2)

    assert found.delivered == 1
    assert found.samples_s > 0
    assert found.cpu_ms > 0
    assert found.peak_mib > 10
