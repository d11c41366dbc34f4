"""The JPEG example: killed in the middle of an epoch, it ends with the same loss curve, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FILES = 200
OPTIONS = ("--files", str(FILES), "--epochs", "2", "--every", "5", "--batch_size", "16")


def start(folder: Path, photos: Path, workers: int) -> subprocess.Popen[str]:
    script = EXAMPLES / "jpeg" / "train.py"
    return subprocess.Popen(
        [sys.executable, str(script), *OPTIONS],
        cwd=folder,
        env={**os.environ, "PHOTOS": str(photos), "WORKERS": str(workers), "PYTHONPATH": str(EXAMPLES.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )


def curve_of(lines: list[str]) -> dict[str, str]:
    return {line.split(":")[0]: line.strip() for line in lines if line.startswith("step ") and "0x" in line}


def number_in(lines: list[str], said: str) -> int:
    """The step in the first of ``lines`` that says it this way."""
    return next(int(line.split()[3].rstrip(":")) for line in lines if line.startswith(f"{said} step "))


def steps_in(lines: list[str]) -> int:
    return max(int(line.split()[1].rstrip(":")) for line in lines if line.startswith("step "))


@pytest.mark.slow
def test_a_killed_example_resumes_to_the_same_loss_curve_with_other_workers(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    photos, whole, killed = tmp_path / "photos", tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    with start(whole, photos, workers=0) as unkilled:
        out, _ = unkilled.communicate(timeout=240)
    expected = curve_of(out.splitlines())
    assert len(expected) == 2 * -(-FILES // 16)

    first: list[str] = []
    with start(killed, photos, workers=2) as attempt:
        assert attempt.stdout is not None
        for line in attempt.stdout:
            first.append(line)
            if line.startswith("checkpoint of step "):  # told with a later line, once it is on the disk
                attempt.kill()  # no checkpoint is at an epoch's end
    with start(killed, photos, workers=1) as attempt:
        out, _ = attempt.communicate(timeout=240)

    again = out.splitlines()
    saved, went_on = (number_in(lines, said) for lines, said in ((first, "checkpoint of"), (again, "continuing after")))
    assert saved <= went_on < steps_in(first)
    assert {**curve_of(first), **curve_of(again)} == expected
    assert all(expected[step] == line for step, line in curve_of(first).items())
