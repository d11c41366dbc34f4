"""The script for Slurm with stand-ins for its commands, which start on this machine what they are given."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.harness import ROOT, Home, is_running
from tests.joined_agents import served
from tests.process_table import processes
from tests.ray_cluster import needs_ray
from tests.waiting import wait_until

pytestmark = [needs_ray, pytest.mark.campaign]
PATIENCE_S = 300.0
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
if [[ "$1" == hostname ]]; then echo 127.0.0.1; else exec "$@"; fi
"""
TRAIN = """
import time, trials

with trials.init() as trial:
    state = trial.restore()
    for step in range(state["step"] + 1 if state else 0, 100):
        time.sleep(0.1)
        trial.report(step=step, loss=trial.parameters["x"])
        trial.save_checkpoint({"step": step}, step=step)
        if trial.should_stop():
            raise SystemExit(0)
    trial.report_final(loss=trial.parameters["x"])
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\necho here\necho there\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    made = Home(folder=tmp_path)
    yield made
    made.end()
    shutil.rmtree("/tmp/ray-4711", ignore_errors=True)  # as the script names it


def job(home: Home) -> subprocess.Popen[bytes]:
    (home.folder / "code").mkdir(exist_ok=True)
    (home.folder / "code" / "train.py").write_text(TRAIN)
    body = {"objective": {"metric": "loss"}, "search_space": {"x": {"type": "float", "low": 0, "high": 1}}}
    body |= {"budget": {"trials": 2, "parallel": 2}, "seed": 1, "tuner": "random"}  # type: ignore[dict-item]
    trial = {"code": "code", "command": "python train.py", "resources": {"cpus": 1}}
    (home.folder / "experiment.json").write_text(json.dumps(body | {"trial": trial}))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    given = {"SLURM_JOB_NODELIST": "here,there", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "2"}
    given |= {"SLURM_JOB_ID": "4711", "RAY_PORT": str(port), "TUNER_HOME": str(home.home)}
    path = os.pathsep.join([str(home.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    with (home.folder / "job.out").open("ab") as output:
        return subprocess.Popen(
            ["bash", str(ROOT / "deploy" / "ray" / "slurm.sbatch"), str(home.folder / "experiment.json")],
            env=home.variables() | given | {"PATH": path},
            stdout=output,
            stderr=output,
        )


def of_ray() -> list[int]:
    return [pid for pid, words in processes() if any("/ray-4711" in word for word in words) and is_running(pid)]


def test_a_job_that_is_ended_before_its_time_is_gone_on_with_by_the_next_one(home: Home) -> None:
    first = job(home)
    wait_until((home.home / "service.json").exists, timeout_s=PATIENCE_S)
    home.id = "@last"
    wait_until(lambda: "running" in home.tuner("ps"), timeout_s=PATIENCE_S)
    wait_until(lambda: json.loads(home.tuner("show", "@last", "-o", "json"))["running"], timeout_s=PATIENCE_S)
    wait_until(
        lambda: all(one["step"] for one in json.loads(home.tuner("show", "@last", "-o", "json"))["running"]),
        timeout_s=PATIENCE_S,
    )
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 0, (home.folder / "job.out").read_text()
    wait_until(lambda: not of_ray(), timeout_s=PATIENCE_S)

    second = job(home)
    assert second.wait(PATIENCE_S) == 0, (home.folder / "job.out").read_text()
    with served(home):
        shown = json.loads(home.tuner("show", "@last", "-o", "json"))
        trials = json.loads(home.tuner("trials", "@last", "--metrics", "-o", "json"))
    assert (shown["status"], shown["counts"]) == ("completed", {"succeeded": 2})
    for trial in trials:
        assert sorted({report["step"] for report in trial["metrics"] if report["step"] is not None}) == [*range(100)]
