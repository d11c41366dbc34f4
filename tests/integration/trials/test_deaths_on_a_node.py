"""Whoever dies, nothing is lost and nothing is left running."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running, started
from tests.waiting import wait_until
from trials.agent.local import list_local, stop_local
from trials.wire.attempt import AttemptKey
from trials.wire.messages import Hello, Started

StartAgent = Callable[..., AgentProcess]
COUNTING = """
import time, pathlib, trials
trial = trials.init()
for step in range(trial.parameters.get("steps", 20)):
    trial.report(step=step, loss=float(step))
    while step == 10 and not pathlib.Path("go").exists():
        time.sleep(0.01)
"""


def work_of(service: FakeService) -> Path:
    return service.folder() / "work"


def test_an_agent_that_was_killed_is_followed_by_one_that_adopts_its_trials(
    service: FakeService, start_agent: StartAgent
) -> None:
    first = start_agent()
    service.launch(COUNTING)
    wait_until(lambda: len(service.values("loss")) == 11)
    process = started(service).process
    first.kill()
    (work_of(service) / "go").touch()

    start_agent()
    observed = service.of(Hello)[-1].attempts[0]
    exited = service.wait_for_exit()

    assert (observed.nonce, observed.process) == ("n1", process)
    assert observed.spooled >= 11
    assert service.values("loss") == [float(step) for step in range(20)]
    assert (exited.exit.cause, exited.exit.code, exited.last_sequence) == ("exited", 0, 20)


def test_an_end_that_no_agent_saw_is_told_by_the_next_one(service: FakeService, start_agent: StartAgent) -> None:
    first = start_agent()
    service.launch(COUNTING)
    pid = started(service).process.pid
    first.kill()
    (work_of(service) / "go").touch()
    wait_until(lambda: not is_running(pid))
    wait_until((work_of(service).parent / "exit.json").exists)

    start_agent()

    assert service.wait_for_exit().exit.code == 0
    assert len(service.values("loss")) == 20


def test_reports_that_were_taken_but_not_acknowledged_are_taken_once(
    service: FakeService, start_agent: StartAgent
) -> None:
    first = start_agent()
    service.answers_reports = False
    service.launch(COUNTING)
    wait_until(lambda: service.values("loss"))
    first.kill()
    service.answers_reports = True
    (work_of(service) / "go").touch()

    start_agent()
    service.wait_for_exit()

    assert service.values("loss") == [float(step) for step in range(20)]


def test_a_lost_connection_is_made_again_and_reports_go_on(service: FakeService, start_agent: StartAgent) -> None:
    start_agent()
    service.launch(COUNTING)
    wait_until(lambda: len(service.values("loss")) == 11)
    service.disconnect()
    (work_of(service) / "go").touch()
    service.wait_for(Hello, count=2)

    assert service.wait_for_exit().last_sequence == 20
    assert service.values("loss") == [float(step) for step in range(20)]


def test_when_a_supervisor_is_killed_its_trial_and_grandchildren_end(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()
    service.launch(
        """
import subprocess, time, pathlib
child = subprocess.Popen(['sleep', '600'], start_new_session=True)
pathlib.Path('child.tmp').write_text(str(child.pid))
pathlib.Path('child.tmp').rename('child')
time.sleep(600)
"""
    )
    path = work_of(service) / "child"
    wait_until(path.exists)
    pids = [int(path.read_text()), started(service).process.pid]
    claim = json.loads((path.parent.parent / "claim.json").read_text())

    os.kill(claim["pid"], signal.SIGKILL)

    record = service.wait_for_exit().exit
    assert (record.cause, record.code, record.signal) == ("supervisor_lost", None, None)
    assert not any(is_running(pid) for pid in pids)


def test_a_supervisor_that_died_while_no_agent_lived_is_found_out(
    service: FakeService, start_agent: StartAgent
) -> None:
    first = start_agent()
    service.launch(COUNTING)
    pid = started(service).process.pid
    first.kill()
    claim = json.loads((work_of(service).parent / "claim.json").read_text())
    os.kill(claim["pid"], signal.SIGKILL)
    wait_until(lambda: not is_running(pid))

    start_agent()

    assert service.wait_for_exit().exit.cause == "supervisor_lost"


def test_an_attempt_of_another_boot_is_told_as_such(service: FakeService, start_agent: StartAgent) -> None:
    first = start_agent()
    service.launch(COUNTING)
    pid = started(service).process.pid
    first.kill()
    path = work_of(service).parent / "claim.json"
    claim = json.loads(path.read_text())
    os.kill(claim["pid"], signal.SIGKILL)
    wait_until(lambda: not is_running(pid))
    path.write_text(json.dumps(claim | {"boot_id": "another"}))

    start_agent()

    assert service.wait_for_exit().exit.cause == "host_rebooted"


SLEEPING = "import time, trials; trials.init().report(step=0, loss=0.0); time.sleep(600)"


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_trials_of_a_home_that_was_removed_end_with_their_parents_though_no_agent_is_left(
    service: FakeService, start_agent: StartAgent, isolation: str
) -> None:
    agent = start_agent()
    service.launch(SLEEPING, isolation=isolation)
    wait_until(lambda: service.values("loss"))
    trial = started(service).process.pid
    parent = int(Path(f"/proc/{trial}/stat").read_text().rpartition(")")[2].split()[1])
    agent.kill()

    wait_until(lambda: shutil.rmtree(service.home, ignore_errors=True) or not service.home.exists())

    wait_until(lambda: not is_running(trial))
    wait_until(lambda: not is_running(parent))


def test_a_trial_whose_home_was_moved_runs_on(service: FakeService, start_agent: StartAgent, tmp_path: Path) -> None:
    agent = start_agent()
    service.launch(COUNTING)
    wait_until(lambda: len(service.values("loss")) == 11)
    trial = started(service).process.pid
    agent.kill()

    service.home.rename(tmp_path / "moved")
    try:
        (tmp_path / "moved" / work_of(service).relative_to(service.home) / "go").touch()
        wait_until(lambda: not is_running(trial))
        (spool,) = (tmp_path / "moved").rglob("reports.jsonl")
        assert len(spool.read_text().splitlines()) == 20
    finally:
        (tmp_path / "moved").rename(service.home)


def wait_until_reaped(service: FakeService) -> None:
    """Until the fork server knows nothing of the trial any more."""
    service.wait_for_exit()
    pid = started(service).process.pid
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_launch_that_was_cut_off_before_the_claim_is_not_reported_and_can_be_repeated(
    service: FakeService, start_agent: StartAgent
) -> None:
    first = start_agent()
    launch = service.launch("print('once')")
    wait_until_reaped(service)
    first.kill()
    folder = work_of(service).parent
    for name in ("claim.json", "process.json", "exit.json"):  # as if the agent had died before the supervisor began
        (folder / name).unlink(missing_ok=True)  # a trial of a few milliseconds has no process.json
    service.messages.clear()

    start_agent()
    assert service.of(Hello)[-1].attempts == ()
    service.send(launch)

    assert service.wait_for_exit().exit.code == 0


def test_a_launch_that_was_prepared_before_the_machine_was_started_anew_is_not_repeated(
    service: FakeService, start_agent: StartAgent
) -> None:
    first = start_agent()
    launch = service.launch("print('once')")
    wait_until_reaped(service)
    first.kill()
    folder = work_of(service).parent
    for name in ("claim.json", "process.json", "exit.json"):  # a power loss may take what was not yet on the disk
        (folder / name).unlink(missing_ok=True)  # a trial of a few milliseconds has no process.json
    attempt = json.loads((folder / "attempt.json").read_text())
    attempt["local"]["boot_id"] = "another"
    (folder / "attempt.json").write_text(json.dumps(attempt))
    service.messages.clear()

    start_agent()
    service.send(launch)

    assert service.wait_for_exit().exit.cause == "host_rebooted"
    assert (folder / "stdout.log").read_text() == "once\n"


@pytest.mark.parametrize("torn", [("claim.json",), ("claim.json", "attempt.json")])
def test_what_a_power_loss_has_emptied_does_not_keep_the_launch_from_its_answer(
    service: FakeService, start_agent: StartAgent, torn: tuple[str, ...]
) -> None:
    first = start_agent()
    launch = service.launch("print('again')")
    wait_until_reaped(service)
    first.kill()
    folder = work_of(service).parent
    attempt = json.loads((folder / "attempt.json").read_text())
    attempt["local"]["boot_id"] = "another"
    (folder / "attempt.json").write_text(json.dumps(attempt))
    for name in torn:
        (folder / name).write_text("")
    for name in ("process.json", "exit.json"):
        (folder / name).unlink(missing_ok=True)  # a trial of a few milliseconds has no process.json
    service.messages.clear()

    start_agent()
    service.send(launch)

    record = service.wait_for_exit().exit
    assert record.cause == ("exited" if "attempt.json" in torn else "host_rebooted")
    assert (folder / "stdout.log").read_text() == "again\n"


def test_an_ended_trial_is_reaped_although_no_service_says_that_it_has_the_exit(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()
    service.launch("import time; time.sleep(0.1)")
    pid = wait_until(lambda: service.of(Started))[-1].process.pid
    service.wait_for_exit()

    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_attempts_of_another_lineage_are_shown_and_left_alone(service: FakeService, start_agent: StartAgent) -> None:
    first = start_agent()
    service.launch(COUNTING)
    wait_until(lambda: len(service.values("loss")) == 11)
    first.kill()
    service.lineage = "a copied database"
    service.spools.clear()
    service.messages.clear()
    (work_of(service) / "go").touch()

    start_agent()
    wait_until((work_of(service).parent / "exit.json").exists)
    service.lineage = "unchanged"
    service.launch("print('of this one')", nonce="n2", number=2)
    service.lineage = "a copied database"

    assert [attempt.nonce for attempt in service.of(Hello)[-1].attempts] == ["n1"]
    wait_until((service.folder("n2", number=2) / "exit.json").exists)
    assert service.values("loss") == []


def test_an_agent_without_service_and_trials_leaves(service: FakeService, start_agent: StartAgent) -> None:
    agent = start_agent(TUNER_AGENT_IDLE_EXIT_S="0.1")
    service.close()

    assert agent.wait() == 0


def test_an_agent_without_trials_waits_for_the_service_that_started_it(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent("--service-pid", str(os.getpid()), TUNER_AGENT_IDLE_EXIT_S="0")
    service.disconnect()

    service.wait_for(Hello, count=2)


def test_trials_run_on_when_the_agent_is_terminated(service: FakeService, start_agent: StartAgent) -> None:
    agent = start_agent()
    service.launch(COUNTING)
    pid = started(service).process.pid

    assert agent.terminate() == 0
    assert is_running(pid)


def test_trials_can_be_listed_and_stopped_without_service_and_agent(
    service: FakeService, start_agent: StartAgent
) -> None:
    agent = start_agent()
    service.launch(COUNTING)
    service.launch(COUNTING, nonce="n2", number=2)
    pids = [started(service, nonce).process.pid for nonce in ("n1", "n2")]
    agent.kill()
    service.close()

    assert [(a.key.number, a.pid, a.alive) for a in list_local(service.home)] == [
        (1, pids[0], True),
        (2, pids[1], True),
    ]
    only = AttemptKey(experiment_id="exp", number=1, attempt=1)
    assert [(a.key, a.alive, a.cause) for a in stop_local(service.home, {only}, grace_s=5)] == [
        (only, False, "stopped")
    ]
    assert [a.key.number for a in stop_local(service.home, grace_s=5)] == [2]
    assert not any(is_running(pid) for pid in pids)


def test_a_supervisor_that_is_terminated_stops_its_trial(service: FakeService, start_agent: StartAgent) -> None:
    start_agent()
    service.launch(COUNTING)
    pid = started(service).process.pid
    claim = json.loads((work_of(service).parent / "claim.json").read_text())

    os.kill(claim["pid"], signal.SIGTERM)

    record = service.wait_for_exit().exit
    assert (record.cause, record.stop_reason, record.signal) == ("stopped", "host_shutdown", signal.SIGTERM)
    assert not is_running(pid)
    assert len(service.of(Started)) == 1
