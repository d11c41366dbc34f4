"""A short campaign of kills; ``make shared-data-campaign`` runs the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3]


def test_kills_of_a_worker_a_trial_and_the_server_lose_no_sample_and_leave_nothing() -> None:
    """In a process of its own, because it forks."""
    command = [sys.executable, "-m", "tests.shared_data_campaign", "--rounds", "6"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=300)

    assert "6 rounds, 0 wrong" in done.stdout, done.stdout + done.stderr
