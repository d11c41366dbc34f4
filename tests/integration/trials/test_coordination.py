"""``examples/coordination`` killed at every message; the messages are those of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from trials.learner.coordination.messages import ERROR_KINDS, TASKS, Demand, Ended, LearnInfo

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_weights_are_the_same_whoever_is_killed_at_every_message() -> None:
    command = [sys.executable, "-m", "tests.coordination_campaign", "--iterations", "3", "--rounds", "1"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (counted,) = re.findall(r"killed (.*): the same weights", done.stdout)
    kills = [int(number) for number in re.findall(r"\d+", counted)]
    assert len(kills) == 3
    assert min(kills) >= 5


def test_the_page_names_every_request_with_its_fields_and_every_error() -> None:
    page = (ROOT / "docs/driving-learners.md").read_text(encoding="utf-8")
    requests = dict(re.findall(r"^\| `(\w+)` \|(.*?)\|", page.partition("| request")[2], re.MULTILINE))
    errors = re.findall(r"^\| `(\w+)` \|", page.rpartition("| error")[2], re.MULTILINE)

    assert list(requests)[: len(TASKS)] == list(TASKS)
    for name, kind in TASKS.items():
        assert re.findall(r"`(\w+)`", requests[name]) == [field.name for field in fields(kind)]
    assert errors == list(ERROR_KINDS)
    for answered in (Demand, Ended, LearnInfo):
        assert all(f"`{field.name}`" in page for field in fields(answered))
