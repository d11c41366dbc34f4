"""The whole by its commands: a service started by them, trials as processes, crashes, copies."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import COMMAND_TIMEOUT_S, QUICK, CommandLine
from tests.waiting import wait_until


@pytest.fixture
def tuner(shared: CommandLine) -> CommandLine:
    return shared


def test_run_starts_a_service_and_ends_with_the_experiment(own: CommandLine) -> None:
    tuner = own
    experiment_id = tuner.run("run", tuner.experiment_file()).strip()

    shown = tuner.read("show", experiment_id)
    found = tuner.read("trials", experiment_id, "--metrics")
    assert (shown["status"], shown["counts"]) == ("completed", {"succeeded": 3})
    assert [trial["final"]["accuracy"] for trial in found] == [trial["parameters"]["lr"] for trial in found]
    assert [[metric["step"] for metric in trial["metrics"]] for trial in found] == [[0, 1, None]] * 3
    assert shown["best"]["value"] == max(trial["value"] for trial in found)
    assert tuner.read("best", experiment_id)["command"] == QUICK.split()
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


def test_an_experiment_whose_service_was_killed_goes_on_with_its_running_trials(own: CommandLine) -> None:
    tuner = own
    tuner.run("start", tuner.slow_file())
    before = wait_until(lambda: len(found := tuner.running()) == 2 and found)
    os.kill(tuner.service_pid(), signal.SIGKILL)
    local = tuner.read("ps", "--local")
    assert sorted(a["pid"] for a in local if a["alive"]) == sorted(a["pid"] for a in before)

    with tuner.start("resume", "@last") as process:
        _, said = process.communicate(timeout=COMMAND_TIMEOUT_S)

    assert process.returncode == 0
    assert "goes on with it by itself" in said
    assert all(f"runs on in process {attempt['pid']}" in said for attempt in before)
    tuner.run("stop", "@last", "--wait")


def test_a_copied_database_file_is_enough_to_go_on_elsewhere(own: CommandLine, tmp_path: Path) -> None:
    tuner = own
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


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Commands listen to SIGINT, although these tests may have been started in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
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


def test_ctrl_c_on_serve_leaves_trials_running_and_says_so(own: CommandLine) -> None:
    tuner = own
    with tuner.start("serve", "--log-format", "text") as service:
        assert service.stdout is not None
        assert "http://127.0.0.1:" in service.stdout.readline()
        tuner.run("start", tuner.slow_file())
        wait_until(lambda: len(tuner.running()) == 2)
        service.send_signal(signal.SIGINT)
        _, said = service.communicate(timeout=COMMAND_TIMEOUT_S)

    assert "2 trials run on without the service" in said
    assert "Traceback" not in said
    assert sum(a["alive"] for a in tuner.read("ps", "--local")) == 2
    tuner.run("stop", "--local")
    assert sum(a["alive"] for a in tuner.read("ps", "--local")) == 0


def test_one_trial_is_stopped_and_the_others_go_on(tuner: CommandLine) -> None:
    tuner.run("start", tuner.slow_file())
    wait_until(lambda: len(tuner.running()) == 2)

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


def test_two_commands_that_start_a_service_at_once_share_it(own: CommandLine) -> None:
    tuner = own
    file = tuner.experiment_file()
    with tuner.start("start", file, "--name", "a") as first, tuner.start("start", file, "--name", "b") as second:
        results = [process.communicate(timeout=COMMAND_TIMEOUT_S) for process in (first, second)]

    assert (first.returncode, second.returncode) == (0, 0), results
    assert {e["name"] for e in tuner.read("ps")} == {"a", "b"}


def test_a_service_that_cannot_start_says_why(own: CommandLine) -> None:
    tuner = own
    tuner.home.mkdir()
    (tuner.home / "tuner.db").write_text("this is not a database, but it is long enough to look like one" * 10)

    said = tuner.run("start", tuner.experiment_file(), code=5)

    assert "is not a database" in said
    assert (tuner.home / "tuner.db").read_text().startswith("this is not")


def test_what_lies_in_the_folder_of_a_command_is_no_part_of_the_service(own: CommandLine) -> None:
    tuner = own
    for name in ("json", "yaml", "uvicorn", "sqlalchemy", "websockets", "tuner_service", "trials"):
        (tuner.folder / f"{name}.py").write_text("import pathlib; pathlib.Path('was_run').touch()")

    tuner.run("run", tuner.experiment_file())

    assert tuner.read("show", "@last")["counts"] == {"succeeded": 3}
    assert not list(tuner.folder.rglob("was_run"))


UMASK_SCRIPT = """\
import os, pathlib, trials
os.umask(own := os.umask(0))
pathlib.Path("mine").touch()
with trials.init() as trial:
    trial.save_checkpoint({"x": 1}, step=1)
    trial.report_final(accuracy=float(own))
"""


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_nothing_of_a_home_is_open_to_others_and_a_script_has_the_umask_of_its_owner(
    own: CommandLine, isolation: str
) -> None:
    tuner = own
    tuner.homes[0].mkdir(mode=0o755)
    trial = {"code": "code", "command": "python umask.py", "isolation": isolation, "environment": {"KEY": "secret"}}
    file = tuner.experiment_file(trial=trial, budget={"trials": 1})
    (tuner.folder / "code" / "umask.py").write_text(UMASK_SCRIPT)
    before = os.umask(0o027)
    try:
        tuner.run("run", file)
    finally:
        os.umask(before)

    assert tuner.read("best", "@last")["value"] == 0o027
    assert tuner.home.stat().st_mode & 0o777 == 0o700
    for place, folders, files in os.walk(tuner.home):
        if Path(place).name == "work":
            assert (Path(place) / "mine").stat().st_mode & 0o777 == 0o640
            continue
        for name in (*folders, *(f for f in files if not f.endswith(".ckpt"))):
            path = Path(place, name)
            assert path.is_symlink() or path.stat().st_mode & 0o077 == 0 or name == "work", path
