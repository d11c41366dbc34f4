"""The whole by its commands: a service started by them, trials as processes, crashes, copies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tuner_service.executors.local import agent_is_alive

ROOT = Path(__file__).resolve().parents[3]
COMMAND_TIMEOUT_S = 60.0
SCRIPT = """\
import sys, time, trials
steps, pause = int(sys.argv[1]), float(sys.argv[2])
with trials.init() as trial:
    for step in range(steps):
        trial.report(step=step, accuracy=trial.parameters["lr"])
        time.sleep(pause)
    trial.report_final(accuracy=trial.parameters["lr"])
    print("the learning rate was", trial.parameters["lr"])
"""
QUICK, SLOW = "python train.py 2 0", "python train.py 600 0.05"


@dataclass(kw_only=True)
class CommandLine:
    """Runs ``tuner`` as its own process, on a home folder of its own."""

    folder: Path
    homes: list[Path] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
        own = {"TUNER_HOME": str(self.home), "PYTHONPATH": str(ROOT), "TUNER_AGENT_IDLE_EXIT_S": "2"}
        return kept | own | {"XDG_CONFIG_HOME": str(self.folder / "config")}

    @property
    def home(self) -> Path:
        return self.homes[0]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tuner_service.cli.main", *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        """Standard output of a command that must end with ``code``."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
        assert process.returncode == code, f"{arguments} ended with {process.returncode}: {out}\n{err}"
        return out if code == 0 else out + err

    def read(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def experiment_file(self, **overrides: Any) -> str:
        (self.folder / "code").mkdir(exist_ok=True)
        (self.folder / "code" / "train.py").write_text(SCRIPT)
        body: dict[str, Any] = {
            "name": "digits",
            "seed": 7,
            "objective": {"metric": "accuracy", "goal": "maximize"},
            "search_space": {"lr": {"_type": "uniform", "_value": [0, 1]}},
            "tuner": {"name": "random"},
            "budget": {"trials": 3, "parallel": 2},
            "trial": {"code": "code", "command": QUICK, "stop_grace": "2s"},
        } | overrides
        path = self.folder / "search.json"
        path.write_text(json.dumps(body))
        return str(path)

    def slow_file(self) -> str:
        return self.experiment_file(trial={"code": "code", "command": SLOW, "stop_grace": "2s"})

    def running(self, *options: str) -> list[dict[str, Any]]:
        """What runs with a process and a first report."""
        running = self.read("show", "@last", *options)["running"]
        return [a for a in running if a["pid"] and a["step"] is not None]

    def service_pid(self) -> int:
        return int(json.loads((self.home / "service.json").read_text())["pid"])


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(folder=tmp_path, homes=[tmp_path / "home"])
    yield line
    for home in line.homes:
        with line.start("serve", "--stop", "--home", str(home)) as process:
            process.communicate(timeout=COMMAND_TIMEOUT_S)
        with line.start("stop", "--local", "--home", str(home)) as process:
            process.communicate(timeout=COMMAND_TIMEOUT_S)
        wait_until(lambda home=home: not agent_is_alive(home), timeout_s=30)


def test_run_starts_a_service_and_ends_with_the_experiment(tuner: CommandLine) -> None:
    experiment_id = tuner.run("run", tuner.experiment_file()).strip()

    shown = tuner.read("show", experiment_id)
    found = tuner.read("trials", experiment_id, "--metrics")
    assert (shown["status"], shown["counts"]) == ("completed", {"succeeded": 3})
    assert [trial["final"]["accuracy"] for trial in found] == [trial["parameters"]["lr"] for trial in found]
    assert [[metric["step"] for metric in trial["metrics"]] for trial in found] == [[0, 1, None]] * 3
    assert shown["best"]["value"] == max(trial["value"] for trial in found)
    assert tuner.read("best", "digits")["command"] == QUICK.split()
    assert tuner.run("logs", f"{experiment_id}/1").startswith("the learning rate was")
    assert (tuner.home / "token").stat().st_mode & 0o077 == 0
    assert "FAULT" not in tuner.run("doctor")


def test_a_completed_experiment_goes_on_with_a_raised_budget_with_the_service_up_and_down(
    tuner: CommandLine,
) -> None:
    tuner.run("run", tuner.experiment_file())
    tuner.run("resume", "@last", code=4)

    tuner.run("resume", "@last", "--trials", "4", "--wait")
    tuner.run("serve", "--stop")
    assert "tuner serve" in tuner.run("ps", code=5)
    tuner.run("resume", "@last", "--trials", "5", "--wait")

    assert tuner.read("show", "@last")["counts"] == {"succeeded": 5}


def test_an_experiment_whose_service_was_killed_goes_on_with_its_running_trials(tuner: CommandLine) -> None:
    tuner.run("start", tuner.slow_file())
    before = wait_until(lambda: len(found := tuner.running()) == 2 and found, timeout_s=30)
    os.kill(tuner.service_pid(), signal.SIGKILL)
    local = tuner.read("ps", "--local")
    assert sorted(a["pid"] for a in local if a["alive"]) == sorted(a["pid"] for a in before)

    with tuner.start("resume", "@last") as process:
        _, said = process.communicate(timeout=COMMAND_TIMEOUT_S)

    assert process.returncode == 0
    assert "goes on with it by itself" in said
    assert all(f"runs on in process {attempt['pid']}" in said for attempt in before)
    tuner.run("stop", "@last", "--wait")


def test_a_copied_database_file_is_enough_to_go_on_elsewhere(tuner: CommandLine, tmp_path: Path) -> None:
    tuner.run("run", tuner.experiment_file())
    tuner.run("serve", "--stop")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(tuner.home / "tuner.db", elsewhere / "copy.db")
    tuner.homes.append(elsewhere / "copy-home")

    tuner.run("resume", "digits", "--db", str(elsewhere / "copy.db"), "--trials", "4", "--wait")

    shown = tuner.read("show", "digits", "--home", str(elsewhere / "copy-home"))
    assert shown["counts"] == {"succeeded": 4}
    assert not (tuner.home / "service.json").exists()


def test_ctrl_c_on_run_detaches_and_the_experiment_goes_on(tuner: CommandLine) -> None:
    file = tuner.slow_file()
    with tuner.start("run", file) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=COMMAND_TIMEOUT_S)

    assert process.returncode == 130
    assert "the experiment goes on" in said
    assert tuner.read("show", "@last")["status"] == "running"
    tuner.run("stop", "@last", "--wait")


def test_ctrl_c_on_serve_leaves_trials_running_and_says_so(tuner: CommandLine) -> None:
    with tuner.start("serve") as service:
        assert service.stdout is not None
        assert "http://127.0.0.1:" in service.stdout.readline()
        tuner.run("start", tuner.slow_file())
        wait_until(lambda: len(tuner.running()) == 2, timeout_s=30)
        service.send_signal(signal.SIGINT)
        _, said = service.communicate(timeout=COMMAND_TIMEOUT_S)

    assert "2 trials run on without the service" in said
    assert "Traceback" not in said
    assert sum(a["alive"] for a in tuner.read("ps", "--local")) == 2
    tuner.run("stop", "--local")
    assert sum(a["alive"] for a in tuner.read("ps", "--local")) == 0


def test_one_trial_is_stopped_and_the_others_go_on(tuner: CommandLine) -> None:
    tuner.run("start", tuner.slow_file())
    wait_until(lambda: len(tuner.running()) == 2, timeout_s=30)

    tuner.run("stop", "@last/1", "--wait")

    statuses = {trial["number"]: trial["status"] for trial in tuner.read("trials", "@last")}
    assert (statuses[1], statuses[2]) == ("canceled", "running")
    tuner.run("stop", "@last", "--wait")
    assert tuner.read("show", "@last")["status"] == "stopped"


def test_a_tuner_that_raises_is_seen_at_once_with_its_traceback(tuner: CommandLine) -> None:
    (tuner.folder / "code").mkdir()
    (tuner.folder / "code" / "mine.py").write_text("raise RuntimeError('no such idea')\n")

    said = tuner.run("run", tuner.experiment_file(tuner={"class": "mine:Tuner"}), code=6)

    shown = tuner.read("show", "@last")
    assert (shown["status"], shown["reason"]) == ("paused", "algorithm_failed")
    assert "no such idea" in shown["detail"]
    assert "no such idea" in said


def test_two_commands_that_start_a_service_at_once_share_it(tuner: CommandLine) -> None:
    file = tuner.experiment_file()
    with tuner.start("start", file, "--name", "a") as first, tuner.start("start", file, "--name", "b") as second:
        results = [process.communicate(timeout=COMMAND_TIMEOUT_S) for process in (first, second)]

    assert (first.returncode, second.returncode) == (0, 0), results
    assert {e["name"] for e in tuner.read("ps")} == {"a", "b"}


def test_a_service_that_cannot_start_says_why(tuner: CommandLine) -> None:
    tuner.home.mkdir()
    (tuner.home / "tuner.db").write_text("this is not a database, but it is long enough to look like one" * 10)

    said = tuner.run("start", tuner.experiment_file(), code=5)

    assert "is not a database" in said
    assert (tuner.home / "tuner.db").read_text().startswith("this is not")
