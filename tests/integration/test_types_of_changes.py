"""A change of a row with a wrong name or a wrong type is an error of the type checker, before any test runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
HEAD = """
from dataclasses import replace
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import AttemptStatus, TrialReason, TrialStatus

def changed(step: Step, xs: ExperimentState, ts: TrialStep) -> None:
    trial, live, experiment = ts.trial, ts.live, xs.experiment
"""
RIGHT = (
    "ts.put(replace(trial, charged=1))",
    "ts.move(TrialStatus.WAITING, Why(reason=TrialReason.PREEMPTED), replace(trial, pending_end=None))",
    "ts.put_attempt(replace(live, acknowledged=3))",
    "step.put_experiment(xs, replace(experiment, exhausted=True))",
)
WRONG = (
    ("ts.put(replace(trial, chraged=1))", "chraged"),
    ('ts.put(replace(trial, charged="1"))', "charged"),
    ("ts.put(replace(trial, pending_end=TrialStatus.FAILED))", "pending_end"),
    ("ts.put(live)", "put"),
    ("ts.put(charged=1)", "put"),
    ("ts.move_rungs(trial.rungs.reached(None))", "reached"),
    ("ts.move(TrialStatus.WAITING, Why(reason=ExperimentReason.REQUESTED))", "ExperimentReason"),
    ("ts.move(ExperimentStatus.RUNNING, Why(reason=TrialReason.NONE))", "move"),
    ("ts.put_attempt(replace(live, acknowledged=None))", "acknowledged"),
    ("ts.move_attempt(AttemptStatus.EXITED, replace(live, ended=1.0))", "ended"),
    ('step.put_experiment(xs, replace(experiment, tuner_cursor="7"))', "tuner_cursor"),
    ("step.put_experiment(xs, replace(experiment, spare=1))", "spare"),
)


def test_wrong_changes_are_refused_and_right_ones_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # with what `make types` has kept of the packages
    snippet = tmp_path / "snippet.py"
    snippet.write_text(HEAD + "".join(f"    {line}\n" for line in [*RIGHT, *(line for line, _ in WRONG)]))
    output, _, _ = api.run(["--strict", str(snippet)])
    said: dict[int, str] = {}
    for number, text in re.findall(r"snippet\.py:(\d+): error: (.*)", output):
        said[int(number)] = said.get(int(number), "") + text
    first = HEAD.count("\n") + 1

    assert [number for number in said if number < first + len(RIGHT)] == [], output
    for number, (line, name) in enumerate(WRONG, start=first + len(RIGHT)):
        assert name in said.get(number, ""), f"{line}: {said.get(number)}\n{output}"
