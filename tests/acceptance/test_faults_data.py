"""Odd, large and many values, broken checkpoints, and algorithms that raise or hang."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Home, values
from tests.waiting import wait_until
from tuner_service.client import ProblemError

pytestmark = pytest.mark.slow
ONE = {"trials": 1, "parallel": 1}
ODD = """
import trials
with trials.init() as trial:
    for value in ("nan", "inf", "-inf", 0.5):
        trial.report(loss=float(value), other=1)
    trial.report_final(loss=float("inf"), other=float("nan"))
"""
FLOOD = """
import time, trials
with trials.init() as trial:
    end, step = time.monotonic() + 1, 0
    while time.monotonic() < end:
        for _ in range(1000):
            trial.report(step=step, loss=float(step), other=1.5)
            step += 1
    trial.report_final(loss=float(step))
"""
HUGE = """
import trials
with trials.init() as trial:
    trial.report(step=0, loss=1.0)
    trial.report({f"metric {n:05}": float(n) for n in range(10_000)}, step=1)
"""
MEMORY_LIMIT_KIB = 400 << 10
TUNER = """
import pathlib, time
from tuner_service.tuners.random_search import RandomTuner

class Tuner(RandomTuner):
    def suggest(self, number, rng):
        trouble()
        return super().suggest(number, rng)
"""


@pytest.fixture
def home(shared_home: Home) -> Home:
    return shared_home


@pytest.fixture
def own_home(make_home: Callable[..., Home]) -> Home:
    """For what others must not see, or would disturb."""
    return make_home()


def peak_memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def test_nan_and_infinity_are_shown_as_such_everywhere(home: Home) -> None:
    home.begin(ODD, budget=ONE)
    home.completed()

    (trial,) = home.trials()
    assert values(trial)[:4] == ["NaN", "Infinity", "-Infinity", 0.5]
    assert trial["final"] == {"loss": "Infinity", "other": "NaN"}
    assert home.show()["best"]["value"] == "Infinity"
    with closing(sqlite3.connect(f"file:{home.home}/tuner.db?mode=ro", uri=True)) as connection:
        query = 'SELECT "values" FROM metrics WHERE experiment_id = ? ORDER BY sequence'
        stored = [text for (text,) in connection.execute(query, [home.id])]
    assert [text.partition(",")[0] for text in stored[:3]] == ['{"loss":NaN', '{"loss":Infinity', '{"loss":-Infinity']
    assert "null" not in "".join(stored)
    (as_json,) = home.read("trials", home.id)
    (as_csv,) = csv.DictReader(io.StringIO(home.tuner("trials", home.id, "-o", "csv")))
    assert as_json["value"] == as_csv["value"] == as_csv["final.loss"] == "Infinity"
    assert as_csv["final.other"] == "NaN"
    assert "Infinity" in home.tuner("trials", home.id)
    assert "other=NaN" in home.tuner("show", f"{home.id}/1").replace(" ", "").replace(":", "=")


def test_a_flood_of_reports_is_taken_whole_in_bounded_memory(home: Home) -> None:
    home.begin(FLOOD, budget=ONE)
    home.running(1)
    service, agent = home.one("service"), home.one("agent")

    home.completed()

    found = home.trial(1)
    with home.service() as client:
        reports = client.metrics(home.id, 1)
    assert [r["step"] for r in reports] == [*range(len(reports) - 1), None]
    assert found["final"]["loss"] == len(reports) - 1
    assert len(reports) > 5_000
    for pid in (service, agent):
        assert peak_memory_kib(pid) < MEMORY_LIMIT_KIB
    with home.service() as client:
        assert client.readiness()["ready"]


def test_a_report_that_is_too_large_ends_in_a_clear_error_in_the_trial(home: Home) -> None:
    home.begin(HUGE, budget=ONE | {"failures": 1})

    home.reached("failed")

    found = home.trial(1)
    assert "TooManyMetricsError: this report has 10000 metrics, and at most 1000 can be sent" in found["message"]
    assert home.steps(1) == [0]


def test_requests_that_are_too_large_or_too_deep_are_refused_by_name(home: Home) -> None:
    home.begin(budget=ONE)
    deep: Any = 1
    for _ in range(400):
        deep = {"a": deep}
    with home.service() as service:
        with pytest.raises(ProblemError) as too_deep:
            service.create({"search_space": {"x": deep}, "tuner": {"name": "random", "args": deep}})
        with pytest.raises(ProblemError) as too_large:
            service.create({"name": "x" * (33 << 20)})
        assert service.readiness()["ready"]
    assert too_deep.value.status == 422
    assert too_large.value.status == 413
    assert "at most 25165824" in str(too_large.value)
    home.open_gate()
    home.completed()


# ── checkpoints ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("damage", ["truncated", "bit flipped"])
def test_of_a_damaged_checkpoint_file_the_copy_in_the_database_is_used(home: Home, damage: str) -> None:
    home.begin(budget=ONE, trial={"max_attempts": 1})
    home.running(1, step=4)
    wait_until(lambda: newest_checkpoint(home)["step"] == 4)
    newest = sorted((home.folder_of(1) / "checkpoints").glob("*.ckpt"))[-1]
    newest.write_bytes(damaged(newest.read_bytes(), damage))
    home.kill_all("supervisor")
    home.open_gate()

    home.completed()

    assert home.steps(1) == list(range(10)), "it went on from the newest, which the database has"


def test_of_a_checkpoint_damaged_in_file_and_database_the_one_before_is_used(own_home: Home) -> None:
    home = own_home
    home.begin(budget=ONE, trial={"max_attempts": 1})
    home.running(1, step=4)
    wait_until(lambda: newest_checkpoint(home)["step"] == 4)
    home.kill_all("service", "agent", "supervisor")
    newest = sorted((home.folder_of(1) / "checkpoints").glob("*.ckpt"))[-1]
    newest.write_bytes(damaged(newest.read_bytes(), "truncated"))
    with closing(sqlite3.connect(home.home / "tuner.db")) as connection:
        (digest,) = connection.execute("SELECT digest FROM checkpoints ORDER BY step DESC LIMIT 1").fetchone()
        query = "SELECT c.digest, data FROM chunks c JOIN blob_chunks b ON b.chunk = c.digest WHERE b.digest = ?"
        ((chunk, data),) = connection.execute(query, [digest]).fetchall()
        connection.execute("UPDATE chunks SET data = ? WHERE digest = ?", [damaged(data, "bit flipped"), chunk])
        connection.commit()
    home.open_gate()

    home.serve()

    home.completed()
    assert home.steps(1) == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9]
    with closing(sqlite3.connect(home.home / "tuner.db")) as connection:
        marked = connection.execute("SELECT digest FROM checkpoints WHERE damaged").fetchall()
    assert marked == [(digest,)]


def newest_checkpoint(home: Home) -> dict[str, Any]:
    with home.service() as service:
        found = service.checkpoints(home.id, 1)
    return found[0] if found else {"step": None}


def damaged(data: bytes, damage: str) -> bytes:
    middle = len(data) // 2
    return data[:middle] if damage == "truncated" else data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


# ── algorithms ──────────────────────────────────────────────────────────────────────────────────
def with_tuner(home: Home, trouble: str, **overrides: Any) -> None:
    (home.folder / "code").mkdir()
    (home.folder / "code" / "mine.py").write_text(TUNER + f"\ndef trouble():\n{trouble}\n")
    home.begin(tuner={"class": "mine:Tuner"}, **overrides)


def test_a_tuner_that_raises_pauses_the_search_and_goes_on_after_the_fix(home: Home) -> None:
    with_tuner(home, "    raise RuntimeError('out of ideas')", budget={"trials": 3, "parallel": 1})
    paused = home.reached("paused")
    assert paused["reason"] == "algorithm_failed"
    assert "RuntimeError: out of ideas" in paused["detail"]
    (home.folder / "code" / "mine.py").write_text(TUNER + "\ndef trouble(): pass\n")
    home.open_gate()

    home.tuner("resume", home.id, "--code", str(home.folder / "code"))

    home.completed()
    assert [t["number"] for t in home.trials()] == [1, 2, 3]


def test_a_tuner_that_hangs_once_is_replaced_and_asked_again(home: Home) -> None:
    mark = home.folder / "hung"
    trouble = f"""
    mark = pathlib.Path({str(mark)!r})
    if not mark.exists():
        mark.touch()
        time.sleep(600)
"""
    home.open_gate()
    with_tuner(home, trouble, algorithm_timeout="1s")

    home.completed()

    assert mark.exists()
    assert [t["number"] for t in home.trials()] == [1, 2]


def test_a_tuner_that_hangs_again_and_again_pauses_the_search_and_leaves_no_worker(home: Home) -> None:
    with_tuner(home, "    time.sleep(600)", algorithm_timeout="0.3s")

    paused = home.reached("paused")

    assert paused["reason"] == "algorithm_hangs"
    assert "did not answer journal line" in paused["message"]
    assert json.dumps(paused["counts"]) == "{}"
