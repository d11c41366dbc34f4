"""What trials are given and what they leave, by the commands: from an asset to a trial, from a trial to another one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.asset_trees import Tree, a_tree
from tests.command_line import CommandLine
from tests.waiting import wait_until

SCRIPT = """\
import json, os, sys, time, pathlib, trials
with trials.init() as trial:
    data = pathlib.Path(trial.parameters["data"])
    seen = {"parameter": str(data), "arguments": sys.argv[1:], "variable": os.environ["TRIAL_PARAM_DATA"],
            "content": (data / "a.txt").read_text(), "files": sorted(os.listdir(data)),
            "more": [sorted(os.listdir(p)) for p in trial.parameters.get("more", [])]}
    out = pathlib.Path("outputs/sub")
    out.mkdir(parents=True)
    (out / "seen.json").write_text(json.dumps(seen))
    (out.parent / "run.sh").write_text("#!/bin/sh\\n")
    (out.parent / "run.sh").chmod(0o755)
    trial.save_checkpoint({"weights": [1.0, 2.0]}, step=1)
    trial.report_final(accuracy=trial.parameters.get("lr", 0.5))
"""


@pytest.fixture
def tuner(shared: CommandLine) -> CommandLine:
    return shared


def call(tuner: CommandLine, method: str, path: str, data: bytes | None = None, kind: str = "application/json") -> Any:
    service = json.loads((tuner.home / "service.json").read_text())
    headers = {"Authorization": f"Bearer {(tuner.home / 'token').read_text().strip()}", "Content-Type": kind}
    url = f"{service['url']}/api/v1{path}"
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=180) as answer:
        body = answer.read()
    return json.loads(body) if body else None


def add(tuner: CommandLine, tree: Tree, name: str) -> str:
    tuner.run("ps", code=0) if (tuner.home / "service.json").exists() else None
    for digest, piece in tree.pieces.items():
        call(tuner, "PUT", f"/assets/pieces/{digest}", piece, "application/octet-stream")
    body = {"manifest": tree.described, "kind": "dataset", "name": name}
    return str(call(tuner, "POST", "/assets", json.dumps(body).encode())["id"])


def file_of(tuner: CommandLine, *, script: str = SCRIPT, **trial: Any) -> str:
    file = tuner.experiment_file(trial={"code": "code", "command": "python train.py", "output": "outputs", **trial})
    (tuner.folder / "code" / "train.py").write_text(script)
    return file


def started(tuner: CommandLine) -> None:
    """A service, by an experiment of one quick trial."""
    tuner.run("run", tuner.experiment_file(budget={"trials": 1}))


def test_an_asset_reaches_the_script_by_every_way_and_what_it_leaves_is_got_out(
    tuner: CommandLine,
) -> None:
    (tuner.folder / "digits").mkdir()
    for name, content in (("a.txt", "1"), ("b.txt", "2")):
        (tuner.folder / "digits" / name).write_text(content)
    (tuner.folder / "more").mkdir()
    (tuner.folder / "more" / "c.txt").write_text("3")
    shutil.make_archive(str(tuner.folder / "more"), "zip", tuner.folder / "more")
    without = tuner.run("run", tuner.experiment_file(budget={"trials": 1})).strip()
    digits = tuner.read("asset", "add", "digits", "--name", "numerals")["id"]

    file = file_of(
        tuner,
        datasets={"data": "numerals", "more": ["./more.zip", "./digits", "numerals@latest"]},
        arguments={"prefix": "++", "delimiter": "="},
    )
    experiment_id = tuner.run("run", file, "--name", "with data").strip()
    tuner.run("get", f"{experiment_id}/2", "got")

    seen = json.loads((tuner.folder / "got" / "sub" / "seen.json").read_text())
    assert (seen["content"], seen["files"]) == ("1", ["a.txt", "b.txt"])
    assert seen["more"] == [["c.txt"], ["a.txt", "b.txt"], ["a.txt", "b.txt"]]
    assert seen["variable"] == seen["parameter"]
    assert f"++data={seen['parameter']}" in seen["arguments"]
    assert os.access(tuner.folder / "got" / "run.sh", os.X_OK)
    shown = tuner.read("show", f"{experiment_id}/2")
    assert shown["inputs"]["data"] == f"numerals@1 (sha256:{digits[:12]})"
    assert set(shown["parameters"]) == {"lr"}
    assert (shown["output"]["files"], shown["output"]["complete"]) == (2, True)
    tuner.run("get", f"{experiment_id}/best", "checkpoint", "--checkpoint", "best")
    assert [path.suffix for path in (tuner.folder / "checkpoint").iterdir()] == [".ckpt"]
    assert "new or empty" in tuner.run("get", f"{experiment_id}/2", "got", code=1)
    assert "names no output folder" in tuner.run("get", f"{without}/1", "nothing", code=3)


def test_what_a_trial_left_is_given_to_trials_of_another_experiment(own: CommandLine) -> None:
    tuner = own
    started(tuner)
    add(tuner, a_tree({"a.txt": b"1"}), "digits")
    first = tuner.run("run", file_of(tuner, datasets={"data": "digits"}), "--name", "first").strip()
    script = """\
import json, os, trials
with trials.init() as trial:
    found = {name: sorted(os.listdir(p)) if os.path.isdir(p) else p for name, p in trial.parameters.items()
             if isinstance(p, str)}
    os.mkdir("outputs")
    open("outputs/found.json", "w").write(json.dumps(found))
    trial.report_final(accuracy=1.0)
"""
    pretrained = {"warm": f"{first}/best", "state": {"trial": f"{first}/1", "what": "checkpoint"}}
    second = tuner.run("run", file_of(tuner, script=script, pretrained_from=pretrained), "--name", "second").strip()

    tuner.run("get", f"{second}/1", "got")
    found = json.loads((tuner.folder / "got" / "found.json").read_text())
    assert found["warm"] == ["run.sh", "sub"]
    assert found["state"].endswith(".ckpt")
    tuner.run("rm", first, "--yes")
    tuner.run("serve", "--stop")
    tuner.run("gc")
    tuner.run("resume", second, "--trials", "4", "--wait")
    assert tuner.read("show", second)["counts"] == {"succeeded": 4}


def test_a_clone_has_the_same_bytes_whatever_was_added_under_the_name_since(
    tuner: CommandLine,
) -> None:
    started(tuner)
    first_digest = add(tuner, a_tree({"a.txt": b"first"}), "figures")
    first = tuner.run("run", file_of(tuner, datasets={"data": "figures"}), "--name", "first").strip()
    add(tuner, a_tree({"a.txt": b"second"}), "figures")

    clone = tuner.run("clone", first, "--name", "again").strip()
    tuner.run("watch", clone)

    tuner.run("get", f"{clone}/1", "got")
    assert json.loads((tuner.folder / "got" / "sub" / "seen.json").read_text())["content"] == "first"
    shown = {"data": f"figures@1 (sha256:{first_digest[:12]})"}
    assert tuner.read("show", f"{clone}/1")["inputs"] == shown
    lines = [json.loads(line) for line in tuner.run("export", clone, "-o", "jsonl").splitlines()]
    assert lines
    assert [line["inputs"] for line in lines] == [shown] * len(lines)
    assert not any("data" in line["parameters"] for line in lines)
    assert "figures@2" not in json.dumps(tuner.read("show", clone))


def test_code_too_large_for_a_request_becomes_an_asset_and_a_name_of_one_is_code(tuner: CommandLine) -> None:
    file = file_of(tuner, script="import trials\nwith trials.init() as t:\n    t.report_final(accuracy=1.0)\n")
    with (tuner.folder / "code" / "weights.bin").open("wb") as weights:
        weights.truncate(17 << 20)
    experiment_id = tuner.run("run", file).strip()

    code = tuner.read("show", experiment_id)["trial"]["code"]
    assert code["name"] == "code"
    body = json.loads(Path(file).read_text())
    body["trial"]["code"] = {"asset": code["asset"]}
    del body["search_space"], body["tuner"], body["budget"]
    Path(file).write_text(json.dumps(body))
    again = tuner.run("run", file, "--name", "again", "--project", "vision", "--priority", "3").strip()
    assert tuner.read("show", again)["counts"] == {"succeeded": 1}
    assert [row["id"] for row in tuner.read("ps", "--project", "vision")] == [again]
    assert tuner.read("show", again)["priority"] == 3


def test_data_by_reference_is_used_where_it_is_and_a_change_of_it_is_noticed(tuner: CommandLine) -> None:
    data = tuner.folder / "large"
    data.mkdir()
    (data / "a.txt").write_text("1")
    file = file_of(tuner, datasets={"data": {"path": "large", "mode": "reference"}})
    experiment_id = tuner.run("run", file).strip()
    tuner.run("get", f"{experiment_id}/1", "got")
    assert json.loads((tuner.folder / "got" / "sub" / "seen.json").read_text())["parameter"] == str(data)

    (data / "a.txt").write_text("22")
    tuner.run("resume", experiment_id, "--trials", "4", "--wait", code=6)

    failed = [trial for trial in tuner.read("trials", experiment_id) if trial["status"] == "failed"]
    assert failed
    assert "a.txt' was changed" in failed[0]["message"]


@pytest.mark.parametrize("victim", ["service", "agent", "both"])
def test_outputs_are_kept_whoever_is_killed_while_they_are_collected(tuner: CommandLine, victim: str) -> None:
    script = """\
import os, trials
with trials.init() as trial:
    os.mkdir("outputs")
    for n in range(300):
        with open(f"outputs/{n}", "wb") as file:
            file.write(os.urandom(100_000))
    trial.report_final(accuracy=1.0)
"""
    started(tuner)
    experiment_id = tuner.run("start", file_of(tuner, script=script)).strip()
    attempts = tuner.home / "attempts" / experiment_id
    wait_until(lambda: list(attempts.glob("*/*/exit.json")))
    agent = next(a["pid"] for a in call(tuner, "GET", "/agents")["items"])
    if victim in {"agent", "both"}:
        os.kill(agent, signal.SIGKILL)
    if victim in {"service", "both"}:
        os.kill(tuner.service_pid(), signal.SIGKILL)
    # A service that was not killed goes on by itself, and may have come to the end by now.
    tuner.run(*(("watch",) if victim == "agent" else ("resume", "--wait")), experiment_id)

    trials = tuner.read("trials", experiment_id)
    assert [trial["status"] for trial in trials] == ["succeeded"] * 3
    assert [(trial["output"]["files"], trial["output"]["complete"]) for trial in trials] == [(300, True)] * 3
    tuner.run("get", f"{experiment_id}/1", "got")
    assert len(list((tuner.folder / "got").iterdir())) == 300


def test_database_and_store_copied_while_a_search_runs_go_on_elsewhere(own: CommandLine) -> None:
    """The operations page's commands, after the machine with the home was lost."""
    tuner = own
    (tuner.folder / "digits").mkdir()
    (tuner.folder / "digits" / "a.txt").write_text("1")
    script = """\
import pathlib, time, trials
with trials.init() as trial:
    data = pathlib.Path(trial.parameters["data"])
    state = trial.restore() or {"step": 0}
    for step in range(state["step"] + 1, 4):
        trial.save_checkpoint({"step": step}, step=step)
        trial.report(step=step, accuracy=float((data / "a.txt").read_text()))
        while trial.number > 1 and not pathlib.Path(trial.parameters["gate"]).exists():
            time.sleep(0.02)
    trial.report_final(accuracy=float((data / "a.txt").read_text()))
"""
    gate = tuner.folder / "gate"
    file = file_of(tuner, script=script, datasets={"data": "./digits"})
    described = json.loads(Path(file).read_text())
    described["search_space"]["gate"] = {"_type": "choice", "_value": [str(gate)]}
    Path(file).write_text(json.dumps(described))
    experiment_id = tuner.run("start", file).strip()
    # A copy that is taken while the first trial runs would give it a further attempt.
    ended_and_running = ["running", "running", "succeeded"]
    wait_until(
        lambda: sorted(t["status"] for t in tuner.read("trials", experiment_id)) == ended_and_running, timeout_s=60
    )

    with (
        closing(sqlite3.connect(tuner.home / "tuner.db")) as read,
        closing(sqlite3.connect(tuner.folder / "copy.db")) as copy,
    ):
        read.backup(copy)
    shutil.copytree(tuner.home / "assets", tuner.folder / "copy-assets", ignore=shutil.ignore_patterns("incoming"))
    tuner.run("stop", "--local")
    tuner.home.rename(tuner.folder / "lost")  # at once: a last process may still write its log there
    shutil.rmtree(tuner.folder / "digits")

    elsewhere = tuner.folder / "elsewhere"
    tuner.homes.append(elsewhere)
    at = ("--home", str(elsewhere), "--db", str(tuner.folder / "copy.db"))
    refused = tuner.run("resume", experiment_id, *at, code=4)
    assert "needs assets that the store has not: sha256:" in refused
    busy = tuner.run("resume", experiment_id, *at, "--assets", "copy-assets", code=4)
    assert "end it with `tuner serve --stop`" in busy
    tuner.run("serve", "--stop", *at)

    gate.touch()
    tuner.run("resume", experiment_id, *at, "--assets", "copy-assets", "--wait")

    trials = tuner.read("trials", experiment_id, "--home", str(elsewhere))
    assert [(trial["status"], trial["value"]) for trial in trials] == [("succeeded", 1.0)] * 3
    assert trials[0]["attempts"] == 1
    assert len({trial["inputs"]["data"] for trial in trials}) == 1
    assert "sha256:" in trials[0]["inputs"]["data"]
