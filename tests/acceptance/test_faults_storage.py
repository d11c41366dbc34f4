"""What happens to the database, the disk and the home folder."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import HELD, Home, is_running
from tests.waiting import wait_until
from tuner_service.client import Client, ProblemError
from tuner_service.storage import engine

pytestmark = pytest.mark.slow
MakeHome = Callable[..., Home]
ENDLESS = """
import itertools, time, trials

with trials.init() as trial:
    for step in itertools.count():
        trial.report(step=step, loss=trial.parameters["x"])
        time.sleep(0.01)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB, gone with the test."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"a disk that can be filled needs the right to mount one: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path) -> Path:
    """Take all room of ``disk``; removing the file gives it back."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            while True:
                try:
                    file.write(bytes(size))
                except OSError:
                    break
    return filler


@contextmanager
def refused(status: int) -> Iterator[dict[str, Any]]:
    problem: dict[str, Any] = {}
    with pytest.raises(ProblemError) as refusal:
        yield problem
    assert refusal.value.status == status
    problem |= refusal.value.problem


def refusal_for_want_of_room(service: Client, experiment_id: str) -> dict[str, Any]:
    """What the first change that finds no room is told. The journal file may hold room for some that come before."""
    told: list[dict[str, Any]] = []

    def is_refused() -> bool:
        try:
            service.change(experiment_id, {"note": f"{time.monotonic()} " + "x" * 2_000})
        except ProblemError as error:
            told.append({"status": error.status, **error.problem})
        return bool(told)

    wait_until(is_refused)
    assert told[0]["status"] == 503
    return told[0]


def test_with_a_full_disk_it_reads_on_says_why_and_continues_when_there_is_room(
    small_disk: Path, make_home: MakeHome
) -> None:
    home = make_home(name="disk/home")
    home.begin(ENDLESS, budget={"trials": 2, "parallel": 2, "failures": 1})
    pids = {a["pid"] for a in home.running(2)}
    filler = fill(small_disk)
    with home.service() as service:
        problem = refusal_for_want_of_room(service, home.id)
        ready = service.readiness()
        known = {t["number"]: len(t["metrics"]) for t in home.trials()}

        assert "disk" in problem["detail"]
        assert not ready["ready"]
        assert "disk" in ready["parts"]["database"]
        assert home.show()["status"] == "running"
        diagnosis = home.ended("doctor")
        assert diagnosis.returncode == 1
        assert "disk" in next(line for line in diagnosis.stdout.splitlines() if "FAULT" in line)

        filler.unlink()
        wait_until(lambda: service.readiness()["ready"])
        wait_until(lambda: all(len(t["metrics"]) > known[t["number"]] + 20 for t in home.trials()))
    assert {a["pid"] for a in home.running(2)} == pids
    for trial in home.trials():
        steps = [m["step"] for m in trial["metrics"]]
        assert steps == list(range(len(steps))), "nothing acknowledged is lost, nothing is doubled"
    home.tuner("stop", home.id, "--wait")


def test_a_full_disk_fails_no_trial_that_is_to_start_or_end(small_disk: Path, make_home: MakeHome) -> None:
    home = make_home(name="disk/home")
    home.begin(budget={"trials": 6, "parallel": 2, "failures": 1}, trial={"max_attempts": 1})
    home.running(2, step=4)
    filler = fill(small_disk)
    home.open_gate()
    with home.service() as service:
        refusal_for_want_of_room(service, home.id)
    filler.unlink()

    home.completed()

    assert {t["status"] for t in home.trials()} == {"succeeded"}
    assert all(sorted(set(home.steps(n))) == list(range(10)) for n in range(1, 7))


def test_on_a_full_disk_trials_are_stopped_on_the_machine_within_their_grace(
    small_disk: Path, make_home: MakeHome
) -> None:
    home = make_home(name="disk/home")
    home.begin(ENDLESS)
    pids = [a["pid"] for a in home.running(2)]
    home.kill_all("service", "agent")
    filler = fill(small_disk)

    stopped = home.ended("stop", "--local")
    filler.unlink()

    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stderr.count("free some") == 2
    assert not any(is_running(pid) for pid in pids)


def test_a_database_held_by_a_stranger_is_waited_for(home: Home) -> None:
    home.begin(ENDLESS)
    home.running(2)
    with closing(sqlite3.connect(home.home / "tuner.db", isolation_level=None)) as stranger, home.service() as service:
        stranger.execute("BEGIN IMMEDIATE")
        before = sum(len(t["metrics"]) for t in home.trials())
        assert service.readiness()["ready"]
        with subprocess.Popen(home.command("pause", home.id), env=home.variables(), stdout=subprocess.DEVNULL) as pause:
            wait_until(lambda: all(a["pid"] for a in home.show()["running"]))
            with pytest.raises(subprocess.TimeoutExpired):
                pause.wait(timeout=1)
            stranger.execute("COMMIT")
            assert pause.wait(timeout=engine.BUSY_TIMEOUT_S + 20) == 0
    assert home.show()["status"] == "paused"
    wait_until(lambda: sum(len(t["metrics"]) for t in home.trials()) > before)
    home.tuner("stop", home.id, "--wait")


def test_a_second_service_on_the_database_is_refused_and_disturbs_nothing(make_home: MakeHome) -> None:
    home, other = make_home(), make_home(name="other")
    home.begin()
    pids = {a["pid"] for a in home.running(2, step=4)}
    (holder,) = home.pids("service")

    same_home = home.ended("serve")
    other_home = other.ended("serve", "--db", str(home.home / "tuner.db"))
    other_database = home.ended("serve", "--home", str(home.home), "--db", str(other.home / "tuner.db"))

    meant_for_other = home.ended("resume", home.id, "--home", str(home.home), "--db", str(other.home / "tuner.db"))

    for refusal in (same_home, other_home):
        assert refusal.returncode != 0
        assert f"in use by process {holder}" in refusal.stderr
    assert other_database.returncode != 0
    assert "a service with another database works in the home folder" in other_database.stderr
    assert meant_for_other.returncode != 0
    assert f"works on the database {home.home / 'tuner.db'}, and not on" in meant_for_other.stderr
    assert {a["pid"] for a in home.running(2)} == pids
    home.open_gate()
    home.completed()


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(home: Home) -> None:
    home.open_gate()
    home.begin()
    home.completed()
    home.tuner("serve", "--stop")
    with closing(sqlite3.connect(home.home / "tuner.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    before = (home.home / "tuner.db").read_bytes()

    refusal = home.ended("resume", home.id)

    assert refusal.returncode == 5
    assert "newer version (revision 9999" in refusal.stderr
    assert (home.home / "tuner.db").read_bytes() == before


def test_a_request_repeated_after_the_service_was_killed_is_answered_as_before(home: Home) -> None:
    home.begin()
    home.running(2, step=4)
    code = {"files": [{"path": "train.py", "content": HELD}]}
    body = {
        "name": "again",
        "seed": 1,
        "objective": {"metric": "loss"},
        "search_space": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "budget": {"trials": 1},
        "trial": {"code": code, "command": "python train.py", "environment": {"GATE": str(home.gate)}},
    }
    with home.service() as service:
        first = service.create(body, key="the-key")
    home.kill_all("service")
    home.serve()
    with home.service() as service:
        again = service.create(body, key="the-key")
        with refused(422) as problem:
            service.create(body | {"seed": 2}, key="the-key")
        assert problem["type"].endswith("idempotency-conflict")
        assert again["id"] == first["id"]
        assert len(service.experiments()) == 2
    home.open_gate()
    home.completed()


# ── copies and moves ────────────────────────────────────────────────────────────────────────────
def test_a_copied_database_beside_living_trials_of_the_original_leaves_them_alone(make_home: MakeHome) -> None:
    home, copy = make_home(), make_home(name="copy")
    home.begin(trial={"max_attempts": 1})
    originals = {a["pid"] for a in home.running(2, step=4)}
    copy.home.mkdir()
    with closing(sqlite3.connect(home.home / "tuner.db")) as source:
        source.execute("VACUUM INTO ?", [str(copy.home / "tuner.db")])
    copy.id = home.id

    copy.serve()

    copies = {a["pid"] for a in copy.running(2, step=4)}
    assert not copies & originals
    assert all(is_running(pid) for pid in originals | copies)
    home.open_gate()
    home.completed()
    copy.completed()
    assert home.attempts() == [(1, 1), (2, 1)]
    assert copy.attempts() == [(1, 2), (2, 2)]
    assert {t["status"] for t in copy.trials()} == {"succeeded"}


def test_a_copied_home_goes_on_by_itself_and_the_original_too(make_home: MakeHome) -> None:
    home, copy = make_home(), make_home(name="copy")
    home.begin(trial={"max_attempts": 1})
    originals = {a["pid"] for a in home.running(2, step=4)}
    home.kill_all("service")
    shutil.copytree(home.home, copy.home, symlinks=True, ignore=shutil.ignore_patterns("service.json", "*.sock"))
    copy.id = home.id

    home.serve()
    copy.serve()

    assert {a["pid"] for a in home.running(2)} == originals
    copies = {a["pid"] for a in copy.running(2, step=4)}
    assert not copies & originals
    home.open_gate()
    home.completed()
    copy.completed()
    assert [t["attempts"] for t in home.trials()] == [1, 1]
    assert [t["attempts"] for t in copy.trials()] == [2, 2]


def test_a_moved_home_goes_on_at_its_new_place(make_home: MakeHome) -> None:
    home, moved = make_home(), make_home(name="moved")
    home.begin(trial={"max_attempts": 1})
    home.running(2, step=4)
    home.tuner("serve", "--stop")
    home.home.rename(moved.home)
    moved.id = home.id

    moved.serve()
    moved.open_gate()

    moved.completed()
    assert {t["status"] for t in moved.trials()} == {"succeeded"}
    assert all(sorted(set(moved.steps(n))) == list(range(10)) for n in (1, 2))
    assert not home.home.exists() or not any(home.home.iterdir())
    assert json.loads((moved.home / "service.json").read_text())["pid"] != os.getpid()
