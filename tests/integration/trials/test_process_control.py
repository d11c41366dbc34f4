"""Whole trees end when told, whatever they did to stay, and every end says what it was."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running, started
from tests.integration.trials.stubborn_campaign import STUBBORN, children_in
from tests.waiting import wait_until
from trials.processes.control_groups import own_group
from trials.wire.messages import LogChunk, ReadLog, Stop
from trials.wire.resources import samples_of

StartAgent = Callable[..., AgentProcess]


@pytest.fixture(params=["fork", "spawn"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["groups", "no groups"])
def agent(request: pytest.FixtureRequest, start_agent: StartAgent) -> AgentProcess:
    """With control groups where the kernel grants them, and as if it granted none."""
    if request.param == "groups" and (own_group() is None or not os.access(str(own_group()), os.W_OK)):
        pytest.skip("the kernel grants no control groups here")
    return start_agent(TUNER_CGROUPS="on" if request.param == "groups" else "off")


def pids_of(service: FakeService, nonce: str, number: int) -> list[int]:
    work = service.folder(nonce, number=number) / "work"
    return [*wait_until(partial(children_in, work)), started(service, nonce).process.pid]


def stop(service: FakeService, nonce: str, launch: Any, *, grace_s: float = 0.1) -> None:
    service.send(Stop(key=launch.key, nonce=nonce, grace_s=grace_s, reason="stopped_by_user"))


def test_a_stop_reaches_every_process_and_none_of_another_trial(
    service: FakeService, agent: AgentProcess, isolation: str
) -> None:
    launches = {f"n{i}": service.launch(STUBBORN, nonce=f"n{i}", number=i, isolation=isolation) for i in range(1, 5)}
    pids = {nonce: pids_of(service, nonce, number) for number, nonce in enumerate(launches, start=1)}

    stop(service, "n1", launches["n1"])
    record = service.wait_for_exit("n1").exit

    assert (record.cause, record.isolation, record.signal) == ("stopped", isolation, signal.SIGKILL)
    assert not any(is_running(pid) for pid in pids["n1"])
    assert all(is_running(pid) for nonce in ("n2", "n3", "n4") for pid in pids[nonce])
    for nonce in ("n2", "n3", "n4"):
        stop(service, nonce, launches[nonce])
    for nonce in launches:
        service.wait_for_exit(nonce)
    assert not [pid for found in pids.values() for pid in found if is_running(pid)]


def test_what_a_trial_leaves_behind_ends_with_it(service: FakeService, agent: AgentProcess, isolation: str) -> None:
    service.launch(STUBBORN, nonce="other", number=9, isolation=isolation)
    others = pids_of(service, "other", 9)
    script = STUBBORN.rpartition("time.sleep(600)")[0] + "while len(list(pathlib.Path('.').glob('*.pid'))) < 4: pass\n"
    service.launch(script, isolation=isolation)

    record = service.wait_for_exit().exit

    assert (record.cause, record.code) == ("exited", 0)
    assert not any(is_running(pid) for pid in children_in(service.folder() / "work"))
    assert all(is_running(pid) for pid in others)


def test_when_the_parent_is_killed_nothing_of_its_trials_stays(
    service: FakeService, agent: AgentProcess, isolation: str
) -> None:
    service.launch(STUBBORN, isolation=isolation)
    service.launch(STUBBORN, nonce="n2", number=2, isolation=isolation)
    pids = [*pids_of(service, "n1", 1), *pids_of(service, "n2", 2)]
    service.launch("print('ended before')", nonce="n3", number=3, isolation=isolation)
    assert service.wait_for_exit("n3").exit.cause == "exited"

    parents = {json.loads((service.folder(n, number=i) / "claim.json").read_text())["pid"] for n, i in
               (("n1", 1), ("n2", 2))}  # fmt: skip
    for parent in parents:
        os.kill(parent, signal.SIGKILL)

    assert len(parents) == (1 if isolation == "fork" else 2)
    assert [service.wait_for_exit(nonce).exit.cause for nonce in ("n1", "n2")] == ["supervisor_lost"] * 2
    assert not any(is_running(pid) for pid in pids)
    assert len(service.of(type(service.wait_for_exit("n3")), "n3")) == 1, "its end was told once"
    service.launch("print('next')", nonce="n4", number=4, isolation=isolation)
    assert service.wait_for_exit("n4").exit.isolation == isolation


def test_a_trial_that_uses_more_memory_than_it_may_ends_alone(
    service: FakeService, agent: AgentProcess, isolation: str
) -> None:
    hungry = """
import subprocess, sys, time
child = "data = bytearray(150 << 20); import time; time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
time.sleep(600)
"""
    service.launch("import time; time.sleep(600)", nonce="other", number=2, isolation=isolation, memory_bytes=100 << 20)
    service.launch(hungry, isolation=isolation, memory_bytes=100 << 20)

    record = service.wait_for_exit().exit

    assert (record.cause, record.memory_limit_bytes, record.stop_reason) == ("out_of_memory", 100 << 20, None)
    assert record.peak_memory_bytes is not None
    assert record.peak_memory_bytes > 100 << 20
    assert is_running(started(service, "other").process.pid)


def test_a_trial_that_runs_too_long_may_save_and_is_told_apart(start_agent: StartAgent, service: FakeService) -> None:
    start_agent()
    script = """
import time, trials
trial = trials.init()
trial.report(step=1, loss=1.0)
while not trial.should_stop(): time.sleep(0.01)
trial.save_checkpoint({"step": 1}, step=1)
"""
    service.launch(script, max_duration_s=0.5, stop_grace_s=20.0)

    record = service.wait_for_exit().exit

    assert (record.cause, record.code, record.stop_reason) == ("out_of_time", 0, None)
    assert "checkpoint" in {r["kind"] for r in service.spools["n1"]}


def test_processor_time_and_memory_of_the_whole_tree_are_recorded(
    start_agent: StartAgent, service: FakeService, isolation: str
) -> None:
    start_agent()
    script = """
import subprocess, sys, time
end = time.process_time() + 0.3
while time.process_time() < end: pass
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.3: pass"], check=True)
data = bytearray(64 << 20)
import json, pathlib
seen = pathlib.Path("../resources.jsonl")  # until what it uses now stands there
while not seen.exists() or json.loads(seen.read_text().splitlines()[-1])[1] < len(data): time.sleep(0.02)
"""
    launch = service.launch(script, isolation=isolation)

    record = service.wait_for_exit().exit
    service.send(ReadLog(request_id="r", key=launch.key, nonce="n1", stream="resources", offset=0, limit=1 << 15))
    samples = samples_of(service.wait_for(LogChunk).data)

    assert samples[-1].memory_bytes > 64 << 20
    assert 0 < samples[-1].processor_s < 5
    assert samples[-1].at_s >= 1.0
    assert record.processor_s is not None
    assert 0.5 < record.processor_s < 5
    assert record.peak_memory_bytes is not None
    assert record.peak_memory_bytes > 64 << 20


def test_a_fork_server_without_agent_follows_its_trials_to_the_end_and_leaves(
    service: FakeService, start_agent: StartAgent
) -> None:
    agent = start_agent(TUNER_AGENT_IDLE_EXIT_S="0.2")
    service.launch("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)")
    pid = started(service).process.pid
    server = json.loads((service.folder() / "claim.json").read_text())["pid"]
    agent.kill()
    service.close()

    assert is_running(pid)
    (service.folder() / "work" / "go").touch()
    wait_until((service.folder() / "exit.json").exists)
    wait_until(lambda: not is_running(server))
    assert json.loads((service.folder() / "exit.json").read_text())["code"] == 0


def test_the_next_agent_uses_the_fork_server_of_the_one_before(service: FakeService, start_agent: StartAgent) -> None:
    first = start_agent()
    service.launch("print('one')")
    service.wait_for_exit()
    first.kill()
    start_agent()
    service.launch("print('two')", nonce="n2", number=2)
    service.wait_for_exit("n2")

    claims = [json.loads((service.folder(f"n{n}", number=n) / "claim.json").read_text())["pid"] for n in (1, 2)]
    assert claims[0] == claims[1]
