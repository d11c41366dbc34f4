"""Each kind of process is killed, stopped or signalled: what it was doing is continued, once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.acceptance.harness import HELD, Home, is_running
from tests.waiting import wait_until
from trials.processes.identity import read_stat
from trials.wire.messages import PROTOCOL_VERSION

pytestmark = pytest.mark.slow


@pytest.fixture
def home(shared_home: Home) -> Home:
    return shared_home


@pytest.fixture
def own_home(make_home: Callable[..., Home]) -> Home:
    """For what others must not see, or would disturb."""
    return make_home()


def test_a_service_that_is_killed_while_it_recovers_recovers_the_next_time(home: Home) -> None:
    home.begin()
    before = {a["pid"] for a in home.running(2, step=4)}
    home.kill_all("service")
    service_file, lock = home.home / "service.json", home.home / "tuner.db.lock"
    service_file.unlink()

    def holds_lock(pid: int) -> bool:
        return lock.read_text().strip() == str(pid)

    def has_begun(process: subprocess.Popen[bytes]) -> Callable[[], bool]:
        return lambda: holds_lock(process.pid)

    # At the start of the process, when it has the database, and when it listens: the trials notice nothing.
    for condition in (lambda _: lambda: True, has_begun, lambda _: service_file.exists):
        with subprocess.Popen(home.command("serve"), env=home.variables(), stdout=subprocess.DEVNULL) as starting:
            wait_until(condition(starting))
            starting.kill()
        service_file.unlink(missing_ok=True)
    home.serve()

    assert {a["pid"] for a in home.running(2)} == before
    home.open_gate()
    home.completed()
    assert [t["attempts"] for t in home.trials()] == [1, 1]


def test_an_agent_killed_right_after_it_wrote_a_launch_leaves_no_second_start(home: Home) -> None:
    home.open_gate()
    home.begin(budget={"trials": 5, "parallel": 1})
    killed = 0
    while (before := len(home.attempts())) < 5:
        wait_until(lambda before=before: len(home.attempts()) > before)
        killed += len(home.kill_all("agent"))
    home.completed()

    assert killed
    assert home.attempts() == [(number, 1) for number in range(1, 6)]
    assert [home.steps(number) for number in range(1, 6)] == [list(range(10))] * 5


def test_trials_run_on_without_agent_and_service_and_are_adopted(home: Home) -> None:
    home.begin()
    before = {a["pid"] for a in home.running(2, step=4)}
    home.kill_all("service", "agent")
    home.open_gate()
    wait_until(lambda: not any(is_running(pid) for pid in before))

    home.serve()

    home.completed()
    assert home.attempts() == [(1, 1), (2, 1)]
    assert [home.steps(n) for n in (1, 2)] == [list(range(10))] * 2


def test_a_worker_that_is_killed_is_started_again_without_a_suggestion_lost_or_doubled(home: Home) -> None:
    home.begin(budget={"trials": 8, "parallel": 2}, tuner="tpe", trial={"max_attempts": 1})
    home.running(2, step=4)
    home.kill_all("worker")
    home.open_gate()
    home.completed()

    found = home.trials()
    assert [t["number"] for t in found] == list(range(1, 9))
    assert len({json.dumps(t["parameters"]) for t in found}) == 8


def test_a_worker_that_hangs_as_a_whole_is_replaced(own_home: Home) -> None:
    home = own_home
    home.begin(budget={"trials": 4, "parallel": 2}, algorithm_timeout="1s")
    home.running(2, step=4)
    # Its keeper is the older one of the two.
    stopped = min(home.pids("worker"), key=lambda pid: read_stat(pid).start_time)  # type: ignore[union-attr]  # it lives
    os.kill(stopped, signal.SIGSTOP)
    home.open_gate()

    home.completed()

    assert [t["attempts"] for t in home.trials()] == [1] * 4
    assert not is_running(stopped)


def test_a_supervisor_that_is_killed_costs_its_trial_no_attempt(home: Home) -> None:
    home.begin(trial={"max_attempts": 1})
    trials = [a["pid"] for a in home.running(2, step=4)]
    home.kill_all("supervisor")
    wait_until(lambda: not any(is_running(pid) for pid in trials))
    home.open_gate()

    home.completed()

    first = home.trial(1)
    assert [a["exit"]["cause"] for a in first["attempt_details"]] == ["supervisor_lost", "exited"]
    assert sorted(set(home.steps(1))) == list(range(10))
    assert home.steps(1).count(3) == 1, "it went on from its checkpoint"


def test_after_a_reboot_trials_go_on_from_their_checkpoints(home: Home) -> None:
    home.begin(trial={"max_attempts": 1})
    home.running(2, step=4)
    folders = [home.folder_of(1), home.folder_of(2)]
    home.kill_all("service", "agent", "supervisor")
    # What a machine that lost its power leaves behind: claims of processes of another life of the machine.
    for folder in folders:
        claim = json.loads((folder / "claim.json").read_text())
        (folder / "claim.json").write_text(json.dumps(claim | {"boot_id": "of-another-boot", "pid": 1}))
    home.open_gate()

    home.serve()

    home.completed()
    for number in (1, 2):
        details = home.trial(number)["attempt_details"]
        assert [a["exit"]["cause"] for a in details] == ["host_rebooted", "exited"]
        assert home.steps(number).count(3) == 1
    assert home.trial(1)["status"] == "succeeded"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_from_outside_is_not_charged(home: Home, number: signal.Signals) -> None:
    home.begin(budget={"trials": 1, "parallel": 1}, trial={"max_attempts": 1})
    (running,) = home.running(1, step=4)
    os.kill(running["pid"], number)
    home.open_gate()

    home.completed()

    details = home.trial(1)["attempt_details"]
    assert [(a["exit"]["cause"], a["exit"]["signal"]) for a in details] == [("signaled", number), ("exited", None)]
    assert home.steps(1).count(3) == 1


def test_a_supervisor_that_is_told_to_end_lets_its_trial_save_and_go_on_later(home: Home) -> None:
    script = HELD.replace("not gate.exists():", "not gate.exists() and not trial.should_stop():").replace(
        "        while", "        if trial.should_stop(): raise SystemExit(0)\n        while"
    )
    home.begin(script, budget={"trials": 1, "parallel": 1}, trial={"max_attempts": 1, "stop_grace": "10s"})
    home.running(1, step=4)
    os.kill(home.one("supervisor"), signal.SIGTERM)
    home.open_gate()

    home.completed()

    details = home.trial(1)["attempt_details"]
    assert [a["exit"]["cause"] for a in details] == ["stopped", "exited"]
    assert home.trial(1)["status"] == "succeeded"


def test_a_trial_that_hangs_is_stopped_and_tried_again(home: Home) -> None:
    script = HELD.replace("not gate.exists()", "trial.attempt == 1")
    home.begin(
        script, budget={"trials": 1, "parallel": 1}, trial={"heartbeat": "1s", "max_attempts": 2, "stop_grace": "0s"}
    )

    home.completed()

    details = home.trial(1)["attempt_details"]
    assert len(details) == 2
    assert home.steps(1) == list(range(10)), "the second attempt went on after the checkpoint"


def test_a_trial_that_fails_shows_code_and_last_lines(home: Home) -> None:
    script = "import sys\nfor n in range(5): print('line', n, file=sys.stderr)\nraise ValueError('the data is gone')\n"
    home.begin(script, budget={"trials": 1, "parallel": 1, "failures": 1}, trial={"max_attempts": 2})

    home.reached("failed")

    found = home.trial(1)
    assert (found["status"], found["reason"]) == ("failed", "exit_code")
    assert "the data is gone" in found["message"]
    for attempt in found["attempt_details"]:
        assert attempt["exit"]["code"] == 1
        assert attempt["exit"]["tail"].startswith("line 0\nline 1")
    assert len(found["attempt_details"]) == 2
    shown = home.tuner("show", f"{home.id}/1")
    assert "exited, code 1" in shown
    assert "| ValueError: the data is gone" in shown


def test_after_a_stop_and_the_end_of_the_service_nothing_is_left(own_home: Home) -> None:
    home = own_home
    home.begin(HELD + "import subprocess\n")
    home.running(2, step=4)
    home.tuner("stop", home.id, "--wait")
    assert home.show()["status"] == "stopped"
    home.tuner("serve", "--stop")

    wait_until(lambda: not home.left())

    assert not home.all_pids()
    assert not (home.home / "service.json").exists()


def test_an_agent_of_another_version_is_ordered_to_leave_with_both_versions_named(home: Home) -> None:
    home.open_gate()
    home.begin(budget={"trials": 1, "parallel": 1})
    hello = {
        "kind": "hello",
        "version": PROTOCOL_VERSION + 98,
        "agent_id": "of-the-future",
        "boot_id": "b",
        "host": "h",
        "pid": 1,
        "resources": {"cpus": 1, "memory_bytes": 1},
        "attempts": [],
    }
    with home.service() as service:
        token = home.tuner("token", "add", "of-the-future", "--role", "agent").strip()
        address = service.url.replace("http", "ws", 1) + "/api/v1/agents/of-the-future/channel"
        with connect(address, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None) as channel:
            channel.send(json.dumps(hello))
            ordered = json.loads(channel.recv(timeout=180))
        wait_until(lambda: [agent["id"] for agent in service.agents()] == ["local"])
    assert ordered["kind"] == "leave"
    assert f"version {PROTOCOL_VERSION + 98}" in ordered["reason"]
    assert f"the service {PROTOCOL_VERSION}" in ordered["reason"]
    home.completed()


def test_a_row_damaged_while_the_search_runs_is_named_and_the_search_goes_on_once_it_is_repaired(
    own_home: Home,
) -> None:
    home = own_home
    home.begin(budget={"trials": 4, "parallel": 2}, tuner="tpe", trial={"max_attempts": 1})
    trials = {a["pid"] for a in home.running(2, step=4)}
    (whole,) = _sql(home, "SELECT parameters FROM trials WHERE number = 1")[0]
    _sql(home, "UPDATE trials SET parameters = '{' WHERE number = 1")
    home.kill_all("worker")  # the next one is told its history from the rows

    def listed() -> dict[str, Any]:
        with home.service() as service:
            (one,) = service.experiments()
        return one

    wait_until(lambda: listed()["status"] == "paused")
    assert listed()["reason"] == "rows_damaged"
    assert "line 2 of the journal" in listed()["message"]
    assert "`tuner doctor` names every such row" in listed()["message"]
    assert all(is_running(pid) for pid in trials)

    _sql(home, "UPDATE trials SET parameters = ? WHERE number = 1", whole)
    home.tuner("resume", home.id)
    home.open_gate()
    home.completed()
    assert [t["attempts"] for t in home.trials()] == [1] * 4


def _sql(home: Home, statement: str, *values: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(home.home / "tuner.db", timeout=180)) as connection:
        rows = connection.execute(statement, values).fetchall()
        connection.commit()
    return rows
