"""The page's code runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tuner_service.dispatcher.items import MetricsReported, StopAdvised
from tuner_service.domain.experiment import AlgorithmSpec, Objective
from tuner_service.domain.trial import Report
from tuner_service.workers.building import build_assessor_fold
from tuner_service.workers.messages import Initialize

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "writing-a-tuner.md"


def written_to(folder: Path) -> Path:
    for name, code in re.findall(r"```python\n# (\w+\.py)(.*?)```", PAGE.read_text(), re.DOTALL):
        (folder / name).write_text(f"# {name}{code}")
    return folder


def test_the_tuner_of_the_page_is_tried_out_as_the_page_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "try_halving.py"],
        cwd=written_to(tmp_path),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("next: {'x': ")


def test_the_assessor_of_the_page_stops_a_trial_without_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(written_to(tmp_path))
    spec = AlgorithmSpec(class_name="patience:Patience", args={"reports": 3})
    command = Initialize(
        experiment_id="e1",
        search_space={"x": {"type": "bool"}},
        objective=Objective(metric="loss"),
        seed=1,
        tuner=AlgorithmSpec(name="random"),
        assessor=spec,
    )
    fold = build_assessor_fold(command, spec)
    reports = tuple(Report(step=step, value=1.0) for step in range(1, 10))
    answer = fold.take(MetricsReported(line=1, number=1, reports=reports, sequences=tuple(range(1, 10))))
    assert answer == StopAdvised(line=1, sequence=4, message="no better value for 3 reports")
