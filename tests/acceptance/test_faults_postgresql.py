"""A service whose database is on a PostgreSQL server, and the standby that takes over from it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.acceptance.harness import Home, is_running
from tests.joined_agents import JoinedAgent
from tests.postgresql import the_server
from tests.waiting import wait_until
from tuner_service import connect

pytestmark = pytest.mark.slow
MakeHome = Callable[..., Home]


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    """On a server, reached with a password that must be seen nowhere (the server asks for none)."""
    url = the_server().filled_database().replace("tuner@", "tuner:hunter2@")
    return make_home(environment={"TUNER_DB": url})


@contextmanager
def a_standby(home: Home) -> Iterator[int]:
    """Its process, once it waits."""
    log = home.folder / "standby.log"
    with log.open("wb") as sink:
        command = home.command("serve", "--standby", "--log-format", "json")
        process = subprocess.Popen(command, env=home.variables(), cwd=home.folder, stdout=sink, stderr=sink)
    try:
        wait_until(lambda: "standby_waits" in log.read_text())
        wait_until(lambda: "standby" in roles(home))
        check_what_it_answers(home)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def check_what_it_answers(home: Home) -> None:
    services = {service["role"]: service["url"] for service in json.loads(home.tuner("ps", "--services", "-o", "json"))}
    assert services["active"] == address(home)["url"] != services["standby"]
    for path, status, words in (
        ("/healthz", 200, "ok"),
        ("/readyz", 503, "this service is a standby"),
        ("/api/v1/experiments", 503, f"the active one is {services['active']}"),
    ):
        answer = httpx.get(services["standby"] + path)
        assert answer.headers.get("tuner-active") == (services["active"] if "/api/" in path else None)
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
    check_what_it_reads(home, services["standby"], services["active"])
    sent = httpx.get(services["standby"] + "/experiments/x", headers={"accept": "text/html"})
    assert (sent.status_code, sent.headers["location"]) == (307, services["active"] + "/experiments/x")
    assert httpx.post(services["standby"] + "/api/v1/experiments", json={"x": "y" * 100_000}).status_code == 503


def check_what_it_reads(home: Home, standby: str, active: str) -> None:
    headers = {"authorization": f"Bearer {(home.home / 'token').read_text().strip()}"}
    experiment = f"/api/v1/experiments/{home.id}"
    for path in ("/api/v1/quota-groups", f"{experiment}/search-space", f"{experiment}/pareto"):
        there, here = httpx.get(active + path, headers=headers), httpx.get(standby + path, headers=headers)
        assert (here.status_code, here.text) == (there.status_code, there.text)
        assert here.headers["tuner-role"] == "standby"
    for path in ("/api/v1/agents", f"/api/v1/trials/{home.id}/1/logs", f"{experiment}?wait_for=ended"):
        assert httpx.get(standby + path, headers=headers).headers["tuner-active"] == active
    changed = httpx.post(f"{standby}{experiment}/stop", headers=headers, json={})
    assert (changed.status_code, changed.headers["tuner-active"]) == (503, active)


def service_in_role(home: Home, role: str) -> str:
    found = json.loads(home.tuner("ps", "--services", "-o", "json"))
    return next(str(service["url"]) for service in found if service["role"] == role)


def roles(home: Home) -> list[str]:
    return [service["role"] for service in json.loads(home.tuner("ps", "--services", "-o", "json"))]


def address(home: Home) -> dict[str, object]:
    try:
        return dict(json.loads((home.home / "service.json").read_text()))
    except FileNotFoundError:
        return {}


def test_a_search_on_a_server_goes_on_after_the_service_was_killed_and_says_no_password(home: Home) -> None:
    home.begin()
    pids = {a["pid"] for a in home.running(2, step=4)}
    home.kill_all("service", "worker")
    home.serve()
    assert {a["pid"] for a in home.running(2, step=4)} == pids
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in home.pids("service") + home.pids("worker")]
    diagnosis = home.tuner("doctor")
    home.open_gate()
    home.completed()
    replayed = home.tuner("doctor", "--replay", home.id)

    assert [trial["attempts"] for trial in home.trials()] == [1, 1]
    assert "every row of it can be read" in diagnosis
    assert "same" in replayed
    home.tuner("serve", "--stop")
    home.tuner("gc", "--dry-run")
    said = [diagnosis.encode(), replayed.encode(), *commands]
    said += [file.read_bytes() for file in home.home.rglob("*.log")]
    assert not any(b"hunter2" in text for text in said)


def test_two_commands_that_start_the_service_at_once_find_the_one_that_has_the_database(home: Home) -> None:
    home.begin()
    home.running(2, step=4)
    home.kill_all("service")
    command, environment = home.command("resume", home.id), home.variables()
    both = [subprocess.Popen(command, env=environment, cwd=home.folder, stdout=subprocess.DEVNULL) for _ in range(2)]

    assert [process.wait(60) for process in both] == [0, 0]
    wait_until(lambda: len(home.pids("service")) == 1)  # the other one has looked at the lease, and leaves


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_standby_takes_over_and_no_trial_is_disturbed(number: signal.Signals, home: Home) -> None:
    home.begin(budget={"trials": 4, "parallel": 2})
    pids = {a["pid"] for a in home.running(2, step=4)}
    active = int(str(address(home)["pid"]))
    with a_standby(home) as standby:
        os.kill(active, number)
        begun = time.monotonic()
        wait_until(lambda: address(home).get("pid") == standby)
        assert time.monotonic() - begun < 10  # on a busy machine; measured it is 1 s and 4 s
        assert {a["pid"] for a in home.running(2, step=4)} == pids
        home.tuner("set", home.id, "--parallel", "3")  # the standby launches, while the one before still hangs
        home.running(3, step=1)
        assert time.monotonic() - begun < 20, "the agent has not gone to the standby by itself"
        if number == signal.SIGSTOP:
            os.kill(active, signal.SIGCONT)
            wait_until(lambda: not is_running(active))
            assert address(home)["pid"] == standby
        home.open_gate()
        home.completed()
        assert [trial["attempts"] for trial in home.trials()] == [1, 1, 1, 1]
        assert roles(home)[0] == "active"


def test_agents_and_programs_with_the_standbys_address_find_whoever_is_active(home: Home) -> None:
    home.begin(budget={"trials": 4, "parallel": 2})
    home.running(2, step=4)
    active, token = int(str(address(home)["pid"])), (home.home / "token").read_text().strip()
    with a_standby(home) as standby:
        url = service_in_role(home, "standby")
        agent = JoinedAgent(home, "node-b", url=url)
        elsewhere = {**home.variables(), "TUNER_URL": url, "TUNER_TOKEN": token}

        def tuner(*arguments: str) -> str:
            command = [sys.executable, "-m", "tuner_service.cli.main", *arguments]
            done = subprocess.run(command, env=elsewhere, cwd=home.folder, capture_output=True, text=True, check=True)
            return done.stdout

        def is_joined() -> bool:
            nodes = json.loads(tuner("agent", "ls", "-o", "json"))
            return any(node["id"] == "node-b" and node["state"] == "ready" for node in nodes)

        try:
            agent.start()
            wait_until(is_joined)
            tuner("set", home.id, "--parallel", "1")
            assert httpx.get(f"{address(home)['url']}/readyz").json()["role"] == "active"
            os.kill(active, signal.SIGKILL)
            wait_until(lambda: address(home).get("pid") == standby)
            wait_until(is_joined)
            with connect(url=url, token=token) as service:
                assert service.experiment(home.id).view["budget"]["parallel"] == 1
            home.open_gate()
            home.completed()
        finally:
            agent.end()


def test_a_dump_and_a_copy_of_the_store_taken_while_a_search_runs_go_on_elsewhere(
    home: Home, make_home: MakeHome, tmp_path: Path
) -> None:
    """The operations page's commands, after the machine with the home was lost."""
    (home.folder / "digits").mkdir()
    (home.folder / "digits" / "a.txt").write_text("1")
    home.begin(trial={"datasets": {"data": str(home.folder / "digits")}})
    home.running(2, step=4)

    server, database, restored = the_server(), home.environment["TUNER_DB"], the_server().new_database()
    dump = str(tmp_path / "tuner.dump")
    for program in (
        ["pg_dump", "--format=custom", f"--file={dump}", database],
        ["pg_restore", "--exit-on-error", f"--dbname={restored}", dump],
    ):
        subprocess.run([str(server.programs / program[0]), *program[1:]], check=True, capture_output=True)
    shutil.copytree(home.home / "assets", tmp_path / "copy", ignore=shutil.ignore_patterns("incoming"))
    home.end()
    shutil.rmtree(home.home)
    shutil.rmtree(home.folder / "digits")
    elsewhere = make_home(name="elsewhere", environment={"TUNER_DB": restored})
    elsewhere.id = home.id
    elsewhere.open_gate()
    elsewhere.tuner("resume", home.id, "--assets", str(tmp_path / "copy"), "--wait")

    found = elsewhere.trials()
    assert [(trial["status"], trial["attempts"]) for trial in found] == [("succeeded", 2)] * 2
    for trial in found:
        assert sorted({report["step"] for report in trial["metrics"] if report["step"] is not None}) == list(range(10))
