"""What people change while a search goes on, through the real service."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import SLOW, CommandLine
from tests.waiting import wait_until
from tuner_service.executors.local import agent_is_alive

OBSERVING = """\
import json, os
from tuner_service.tuners.base import Tuner

class Observing(Tuner):
    def suggest(self, number, rng):
        return self.space.sample(rng)

    def observe(self, outcome):
        with open({notes!r}, "a") as notes:
            told = [outcome.number, outcome.source, outcome.status.value, outcome.parameters, outcome.value]
            notes.write(json.dumps(told) + "\\n")
"""
FORGETFUL = """\
import os
from tuner_service.tuners.base import Tuner

class Forgetful(Tuner):
    def suggest(self, number, rng):
        return {"lr": int(os.getpid()) % 1000 / 1000}

    def observe(self, outcome):
        pass
"""
FAILING = """\
import sys, trials
with trials.init() as trial:
    if trial.parameters["lr"] > 0.5:
        sys.exit(3)
    trial.report_final(accuracy=trial.parameters["lr"])
"""
STEPS = """\
import trials
with trials.init() as trial:
    for step in range(5):
        trial.report(step=step, accuracy=trial.parameters["lr"] * step)
    trial.report_final(accuracy=trial.parameters["lr"])
"""


@pytest.fixture
def tuner(shared: CommandLine) -> CommandLine:
    return shared


def user_file(tuner: CommandLine, **overrides: Any) -> str:
    """An experiment whose tuner notes in a file what it is told."""
    (tuner.folder / "code").mkdir(exist_ok=True)
    (tuner.folder / "code" / "mine.py").write_text(OBSERVING.format(notes=str(tuner.folder / "notes")))
    return tuner.experiment_file(**({"tuner": {"class": "mine:Observing"}} | overrides))


def observed(tuner: CommandLine) -> list[Any]:
    notes = tuner.folder / "notes"
    return [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


def with_script(line: CommandLine, script: str, **overrides: Any) -> str:
    file = line.experiment_file(
        **({"trial": {"code": "code", "command": "python train.py", "stop_grace": "2s"}} | overrides)
    )
    (line.folder / "code" / "train.py").write_text(script)
    return file


def written(tuner: CommandLine, name: str, value: Any) -> str:
    path = tuner.folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


# ── trials and results ──────────────────────────────────────────────────────────────────────────
def test_the_outcome_of_an_added_trial_reaches_the_tuner_and_a_replay_agrees(tuner: CommandLine) -> None:
    tuner.run("start", user_file(tuner, budget={"trials": 200, "parallel": 2}))
    [added] = tuner.read("trial", "add", "@last", "--set", "lr=0.25")
    told = [added["number"], "custom", "succeeded", {"lr": 0.25}, 0.25]
    wait_until(lambda: told in observed(tuner))
    tuner.run("stop", "@last", "--wait")

    assert tuner.read("show", added["id"])["source"] == "custom"
    (tuner.folder / "notes").unlink()
    [replayed] = tuner.read("doctor", "--replay", "@last")
    assert replayed["state"] == "same"
    assert replayed["compared"] > 0
    assert told in observed(tuner)


def test_imported_results_reach_the_tuner(tuner: CommandLine) -> None:
    tuner.run("start", user_file(tuner, budget={"trials": 200, "parallel": 2}))

    tuner.run("import", "@last", written(tuner, "found.csv", "lr,value\n0.5,0.75\n0.25,NaN\n"))

    imported = wait_until(lambda: [told for told in observed(tuner) if told[0] == 0])
    tuner.run("stop", "@last", "--wait")
    assert imported[0] == [0, "imported", "succeeded", {"lr": 0.5}, 0.75]
    assert imported[1][3] == {"lr": 0.25}
    assert imported[1][4] != imported[1][4]  # NaN


def test_what_one_experiment_exports_another_imports(tuner: CommandLine) -> None:
    space = {
        "lr": {"_type": "uniform", "_value": [0, 1]},
        "layer": {
            "_type": "choice",
            "_value": [{"_name": "none"}, {"_name": "conv", "kernel": {"_type": "choice", "_value": [3, "3"]}}],
        },
    }
    first = tuner.run("run", tuner.experiment_file(search_space=space, budget={"trials": 6, "parallel": 2})).strip()
    for name in ("found.csv", "found.json", "found.jsonl"):
        tuner.run("export", first, name)
    second = tuner.run("run", user_file(tuner, name="second", search_space=space)).strip()

    for name in ("found.csv", "found.json", "found.jsonl"):
        tuner.run("import", second, name)
    tuner.run("import", second, "--experiment", first)
    tuner.run("resume", second, "--trials", "4", "--wait")

    expected = [[0, "imported", "succeeded", t["parameters"], t["value"]] for t in tuner.read("trials", first)]
    assert [told for told in observed(tuner) if told[0] == 0] == expected * 4
    assert tuner.read("doctor", "--replay", second)[0]["state"] == "same"


def test_failed_trials_are_tried_again_as_new_trials(tuner: CommandLine) -> None:
    tuner.run("start", with_script(tuner, FAILING, budget={"trials": 5_000, "parallel": 2, "failures": 5_000}))
    wait_until(lambda: tuner.read("show", "@last")["counts"].get("failed"))
    tuner.run("pause", "@last")  # some hundred have failed by now on a quick machine
    wait_until(lambda: not tuner.read("show", "@last")["running"])
    failed = tuner.read("trials", "@last", "--status", "failed")

    retried = tuner.read("trial", "retry", "@last", "--failed")
    one = tuner.read("trial", "retry", f"@last/{failed[0]['number']}")

    assert [t["retry_of"] for t in retried] == [t["number"] for t in failed]
    assert [t["parameters"] for t in retried] == [t["parameters"] for t in failed]
    assert one[0]["retry_of"] == failed[0]["number"]
    assert {t["source"] for t in retried + one} == {"retry"}
    tuner.run("resume", "@last")
    ends = [tuner.read("show", t["id"])["status"] for t in retried[:5]]
    wait_until(lambda: tuner.read("show", retried[0]["id"])["status"] == "failed")
    assert set(ends) <= {"waiting", "running", "failed"}


# ── the space, limits and labels ────────────────────────────────────────────────────────────────
def test_later_suggestions_lie_in_the_new_space(tuner: CommandLine) -> None:
    tuner.run("start", tuner.slow_file(budget={"trials": 10, "parallel": 2}))
    wait_until(lambda: len(tuner.running()) == 2)
    narrow = {"lr": {"_type": "uniform", "_value": [0.4, 0.41]}}
    wait_until(lambda: len(tuner.read("trials", "@last")) == 4)  # two of them suggested ahead

    tuner.run("space", "@last", "set", written(tuner, "narrow.json", narrow))
    tuner.run("trial", "stop", "@last/1")
    tuner.run("trial", "stop", "@last/2")
    wait_until(lambda: len(tuner.read("trials", "@last")) >= 6)

    found = tuner.read("trials", "@last")
    assert all(0.4 <= trial["parameters"]["lr"] <= 0.41 for trial in found[4:])
    assert [r["revision"] for r in tuner.read("space", "@last", "revisions")] == [1, 2]
    assert tuner.read("space", "@last")["search_space"] == narrow
    tuner.run("stop", "@last", "--wait")
    assert tuner.read("doctor", "--replay", "@last")[0]["state"] == "same"


def test_parallelism_changes_live_and_labels_are_shown(tuner: CommandLine) -> None:
    file = tuner.experiment_file(
        trial={"code": "code", "command": SLOW, "stop_grace": "2s"},
        budget={"trials": 9, "parallel": 1},
    )
    tuner.run("start", file)
    wait_until(lambda: len(tuner.running()) == 1)

    tuner.run("set", "@last", "--parallel", "3", "--note", "faster", "--tag", "a", "--tag", "b", "--priority", "2")

    wait_until(lambda: len(tuner.running()) == 3)
    shown = tuner.read("show", "@last")
    assert (shown["note"], shown["tags"], shown["priority"]) == ("faster", ["a", "b"], 2)
    assert "faster" in tuner.run("show", "@last")
    tuner.run("set", "@last", "--tag", "")
    assert tuner.read("show", "@last")["tags"] == []
    tuner.run("stop", "@last", "--wait")


def test_a_clone_runs_with_another_seed(tuner: CommandLine) -> None:
    first = tuner.run("run", tuner.experiment_file()).strip()

    second = tuner.read("clone", first, "--name", "again", "--trials", "2")
    third = tuner.read("clone", first, "--seed", "7")
    for clone in (second, third):
        tuner.run("watch", clone["id"])

    found = {e["id"]: tuner.read("trials", e["id"]) for e in (second, third)}
    original = tuner.read("trials", first)
    assert len(found[second["id"]]) == 2
    assert found[second["id"]][0]["parameters"] != original[0]["parameters"]
    assert [t["parameters"] for t in found[third["id"]]] == [t["parameters"] for t in original]


# ── replay ──────────────────────────────────────────────────────────────────────────────────────
def test_a_replay_with_the_service_down_judges_the_assessor_too(own: CommandLine) -> None:
    tuner = own
    file = with_script(
        tuner,
        STEPS,
        tuner={"name": "tpe", "args": {"n_startup_trials": 2}},
        assessor={"name": "median_stop", "args": {"min_trials": 2}},
        budget={"trials": 8, "parallel": 2},
        deterministic=True,
    )
    tuner.run("run", file)
    tuner.run("serve", "--stop")

    rows = tuner.read("doctor", "--replay", "digits")

    assert [(row["id"], row["state"]) for row in rows] == [("tuner", "same"), ("assessor", "same")]
    assert rows[0]["compared"] == 8
    assert tuner.run("doctor", "--replay", "nobody", code=3)


def test_a_replay_names_the_first_suggestion_that_differs(tuner: CommandLine) -> None:
    (tuner.folder / "code").mkdir()
    (tuner.folder / "code" / "mine.py").write_text(FORGETFUL)
    tuner.run("run", tuner.experiment_file(tuner={"class": "mine:Forgetful"}))

    said = tuner.run("doctor", "--replay", "@last", code=1)

    assert "trial 1" in said
    assert "was suggested, and it suggests" in said


# ── garbage ─────────────────────────────────────────────────────────────────────────────────────
def copied_attempts(tuner: CommandLine, experiment_id: str, copy_id: str, **changed: str) -> Path:
    """Attempts of an experiment that says of itself that it is another one."""
    folder = tuner.home / "attempts" / copy_id
    shutil.copytree(tuner.home / "attempts" / experiment_id, folder)
    for file in folder.glob("*/*/attempt.json"):
        attempt = json.loads(file.read_text())
        file.write_text(json.dumps({**attempt, "key": {**attempt["key"], "experiment_id": copy_id}, **changed}))
    return folder


def test_gc_removes_what_a_deleted_experiment_left_and_keeps_what_another_needs(own: CommandLine) -> None:
    tuner = own
    file = tuner.experiment_file()
    first = tuner.run("run", file).strip()
    second = tuner.run("run", file).strip()
    assert "serve --stop" in tuner.run("gc", code=4)
    tuner.run("serve", "--stop")
    wait_until(lambda: not agent_is_alive(tuner.home))
    kept = tuner.home / "attempts" / second
    left = copied_attempts(tuner, first, "gone1")  # as a deletion leaves it that the agent never heard of
    foreign = copied_attempts(tuner, first, "gone2", lineage="another database")

    listed = tuner.read("gc", "--dry-run")
    assert left.exists()
    removed = tuner.read("gc")

    assert listed == removed
    assert str(left) in {row["id"] for row in removed}
    assert all(row["size"] > 0 for row in removed if row["what"] == "attempts")
    assert not left.exists()
    assert foreign.exists()
    assert kept.exists()
    assert tuner.read("gc") == []
    tuner.run("resume", first, "--trials", "4", "--wait")  # the code they share is still there
    tuner.run("resume", second, "--trials", "4", "--wait")


def test_metrics_are_exported_to_a_file_that_is_there_when_it_is_complete(tuner: CommandLine) -> None:
    tuner.run("run", with_script(tuner, STEPS))

    tuner.run("export", "@last", "--metrics", "-o", "csv", "all.csv")

    rows = list(csv.DictReader((tuner.folder / "all.csv").read_text().splitlines()))
    assert len(rows) == 3 * 6
    assert {row["metric"] for row in rows} == {"accuracy"}
    assert not list(tuner.folder.glob(".all.csv*"))
    assert tuner.run("export", "@last", "--metrics") == (tuner.folder / "all.csv").read_text()
