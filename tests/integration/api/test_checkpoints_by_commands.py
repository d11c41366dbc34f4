"""Checkpoints through a real service, agent and script: kept, put into the store, given to another trial, deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import CommandLine, command_line
from tests.waiting import wait_until

SAVING = """\
import trials
with trials.init() as trial:
    if trial.number == 2:
        newest, best = trial.restore(from_trial=1), trial.restore(from_trial=1, step=1)
        assert (newest[:1], best[:1], len(best)) == (b"\\3", b"\\1", 17 << 20)
        named = f"{trial.experiment_id}/1"
        assert trial.restore(from_trial="best")[:1] == trial.restore(from_trial=named)[:1] == b"\\3"
        try:
            trial.restore(from_trial=1, step=0)
        except trials.CheckpointMissingError as error:
            print(error)
        trial.report_final(accuracy=0.5)
    else:
        for step, value in enumerate((0.1, 0.9, 0.2, 0.3)):
            trial.report(step=step, accuracy=value)
            trial.save_checkpoint(bytes([step]) * (17 << 20), step=step)
        trial.report_final(accuracy=0.3)
"""


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[CommandLine]:
    (tmp_path / "config" / "tuner").mkdir(parents=True)
    (tmp_path / "config" / "tuner" / "config.toml").write_text('checkpoint_store = "weights"\n')
    with command_line(tmp_path) as line:
        line.begin_service()
        yield line


def stored(tuner: CommandLine) -> list[str]:
    # os.walk passes over folders that are removed meanwhile.
    files = [name for _, _, names in os.walk(tuner.folder / "weights") for name in names]
    return sorted(name[:9] for name in files if name.endswith(".ckpt"))


@pytest.mark.slow
def test_the_newest_and_the_best_are_in_the_store_and_another_trial_goes_on_from_them(tuner: CommandLine) -> None:
    trial = {"code": "code", "command": "python saving.py", "keep": {"last": 1, "best": 1}}
    path = tuner.experiment_file(trial=trial, budget={"trials": 2, "parallel": 1})
    (tuner.folder / "code" / "saving.py").write_text(SAVING)

    tuner.run("run", path)

    assert tuner.read("show", "@last")["counts"] == {"succeeded": 2}
    rows = tuner.read("show", "@last/1")["checkpoints"]
    assert [(row["step"], row["value"], row["inline"], row["damaged"]) for row in rows] == [
        (3, 0.3, False, False),
        (1, 0.9, False, False),
    ]
    for row in rows:
        assert row["location"].startswith(str(tuner.folder.resolve() / "weights"))
        assert min(row["stall_s"], row["write_s"]) > 0
    assert "step 3, 17.8 MB" in tuner.run("show", "@last/1")
    assert "keeps no checkpoint of step 0; it has those of step 3, 1" in tuner.run("logs", "@last/2")
    wait_until(lambda: stored(tuner) == ["000000001", "000000003"])

    tuner.run("rm", "@last")
    wait_until(lambda: stored(tuner) == [])
