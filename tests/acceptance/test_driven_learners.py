"""``examples/coordination`` as an experiment: its trials are the learners of a coordinator; both sides are killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.harness import ROOT, Home
from tests.waiting import wait_until

ITERATIONS = 12
NAMES = ("left", "right")


def learnt(journal: Path) -> dict[str, list[dict[str, Any]]]:
    """By learner, what the coordinator has heard; the last line may be half written."""
    lines = journal.read_text().rpartition("\n")[0].splitlines() if journal.exists() else []
    heard = [line for line in map(json.loads, lines) if line["kind"] == "learnt"]
    return {name: [line["info"] for line in heard if line["learner"] == name] for name in NAMES}


@pytest.mark.slow
def test_trials_are_learners_of_a_coordinator_and_both_may_be_killed(tmp_path: Path) -> None:
    code, place = tmp_path / "code", tmp_path / "learners"
    shutil.copytree(ROOT / "examples/coordination", code)
    home = Home(folder=tmp_path)
    body = yaml.safe_load((code / "experiment.yaml").read_text())
    body["trial"]["environment"] = {"PLACE": str(place), "OMP_NUM_THREADS": "1"}
    (code / "experiment.json").write_text(json.dumps(body))
    command = [sys.executable, str(code / "coordinate.py"), "--place", str(place), "--iterations", str(ITERATIONS)]

    def far(count: int) -> bool:
        return all(len(infos) >= count for infos in learnt(place / "journal").values())

    try:
        home.id = home.tuner("start", str(code / "experiment.json")).strip().splitlines()[-1]
        with subprocess.Popen(command, env=home.variables(), stdout=subprocess.DEVNULL) as coordinator:
            wait_until(lambda: far(2))
            home.kill_all("trial")
            wait_until(lambda: far(5))
            coordinator.kill()
        done = subprocess.run(command, env=home.variables(), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        home.completed()
        finals = {trial["parameters"]["name"]: trial["final"]["loss"] for trial in home.trials()}
    finally:
        home.end()

    heard = learnt(place / "journal")
    for infos in heard.values():
        assert [info["number"] for info in infos] == list(range(1, ITERATIONS + 1))
    assert finals == {name: infos[-1]["metrics"]["loss"] for name, infos in heard.items()}
