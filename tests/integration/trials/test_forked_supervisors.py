"""Supervisors that are forked from a server of theirs: each is as one that was started by itself, and outlives it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running, started
from tests.process_table import parent
from tests.waiting import wait_until
from trials.agent.supervision.orders import send_order
from trials.files import read_json
from trials.processes.identity import read_stat
from trials.wire.messages import Stop

StartAgent = Callable[..., AgentProcess]
WAITS = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
MARKED = "marks what a supervisor has of its agent"


def server_of(service: FakeService) -> int | None:
    """The living server of supervisors that is ready."""
    for path in (service.home / "agent" / "fork").glob("*.state.json"):
        state = read_json(str(path)) or {}
        if state.get("supervises") and is_running(state["pid"]):
            return int(state["pid"])
    return None


def have_server(service: FakeService, *, number: int) -> int:
    """One that is ready: the first trial that is started anew does not wait for it."""
    nonce = f"before-{number}"
    service.launch("pass", nonce=nonce, number=number, isolation="spawn")
    assert service.wait_for_exit(nonce).exit.isolation == "spawn"
    return wait_until(lambda: server_of(service))


def supervisor_of(service: FakeService, nonce: str, number: int) -> int:
    claim = wait_until(lambda: read_json(str(service.folder(nonce, number=number) / "claim.json")))
    return int(claim["pid"])


def goes_to_its_end(service: FakeService, nonce: str, number: int) -> bool:
    (service.folder(nonce, number=number) / "work" / "go").touch()
    record = service.wait_for_exit(nonce).exit
    return (record.cause, record.code) == ("exited", 0)


def descriptors(pid: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found[int(path.name)] = str(path.readlink())
    return found


def state_of(pid: int) -> dict[str, Any]:
    """What a program sees of another one from outside."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    fds = descriptors(pid)
    return {
        "argv": [os.fsdecode(word) for word in words[:4]],
        "session": os.getsid(pid) == pid == os.getpgid(pid),
        "folder": str(Path(f"/proc/{pid}/cwd").readlink()),
        "environment": set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")),
        "limits": Path(f"/proc/{pid}/limits").read_text(),
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt", "Umask")},
        "streams": [fds[0], Path(fds[1]).name, Path(fds[2]).name],
        "descriptors": sorted(text.split(":")[0] if ":" in text else "file" for n, text in fds.items() if n > 2),
    }


def test_a_forked_supervisor_is_like_one_that_was_started_by_itself(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent(MARKED=MARKED)
    service.launch(WAITS, nonce="n1", number=1, isolation="spawn", pass_environment=("MARKED",))
    alone = supervisor_of(service, "n1", 1)
    server = wait_until(lambda: server_of(service))
    assert parent(alone) != server
    service.launch(
        "import os\nprint(os.environ['MARKED'], len(os.listdir('/proc/self/fd')))\n" + WAITS,
        nonce="n2", number=2, isolation="spawn", pass_environment=("MARKED",),
    )  # fmt: skip
    forked = supervisor_of(service, "n2", 2)
    assert parent(forked) == server
    for nonce, number in (("n1", 1), ("n2", 2)):
        wait_until((service.folder(nonce, number=number) / "process.json").exists)

    # What wakes the agent is opened a moment after that.
    with suppress(AssertionError):  # what is not alike for good is shown below
        wait_until(lambda: state_of(alone)["descriptors"] == state_of(forked)["descriptors"])
    states = [state_of(pid) for pid in (alone, forked)]

    assert states[1] == states[0]
    assert states[1]["session"]
    assert f"MARKED={MARKED}".encode() in states[1]["environment"]
    words = Path(f"/proc/{forked}/cmdline").read_bytes().split(b"\0")
    assert words[4].decode() == str(service.folder("n2", number=2))
    assert words[5].decode() == "the experiment asks for isolation: spawn"
    assert all(goes_to_its_end(service, nonce, number) for nonce, number in (("n1", 1), ("n2", 2)))
    record = service.wait_for_exit("n2").exit
    assert (record.isolation, record.why_spawned) == ("spawn", "the experiment asks for isolation: spawn")
    assert (service.folder("n2", number=2) / "stdout.log").read_text() == f"{MARKED} 4\n", "three and the listing's own"


def test_the_server_may_be_killed_at_any_moment(service: FakeService, start_agent: StartAgent) -> None:
    start_agent()
    server = have_server(service, number=1)
    service.launch(WAITS, nonce="n2", number=2, isolation="spawn")
    supervisor = supervisor_of(service, "n2", 2)
    trial = started(service, "n2").process.pid
    assert parent(supervisor) == server
    os.kill(server, signal.SIGSTOP)
    service.launch("print('once')", nonce="n3", number=3, isolation="spawn")  # an order that it never takes
    wait_until((service.folder("n3", number=3) / "attempt.json").exists)

    os.kill(server, signal.SIGKILL)

    assert service.wait_for_exit("n3").exit.code == 0
    assert (service.folder("n3", number=3) / "stdout.log").read_text() == "once\n"
    assert is_running(supervisor)
    assert is_running(trial)

    def is_forked_again() -> bool:
        nonce = f"again-{len(service.messages)}"
        number = 10 + len(service.messages)
        service.launch(WAITS, nonce=nonce, number=number, isolation="spawn")
        pid = supervisor_of(service, nonce, number)
        found = server_of(service)
        above = parent(pid)
        assert goes_to_its_end(service, nonce, number)
        return found is not None and found != server and above == found

    wait_until(is_forked_again)
    assert goes_to_its_end(service, "n2", 2)
    wait_until(lambda: not is_running(supervisor))


def test_a_forked_supervisor_that_is_killed_costs_its_own_trial_and_is_reaped(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()
    server = have_server(service, number=1)
    for number in (2, 3):
        service.launch(WAITS, nonce=f"n{number}", number=number, isolation="spawn")
    supervisors = [supervisor_of(service, f"n{number}", number) for number in (2, 3)]
    trials = [started(service, f"n{number}").process.pid for number in (2, 3)]
    assert [parent(pid) for pid in supervisors] == [server, server]

    os.kill(supervisors[0], signal.SIGKILL)

    assert service.wait_for_exit("n2").exit.cause == "supervisor_lost"
    assert [is_running(pid) for pid in trials] == [False, True]
    wait_until(lambda: read_stat(supervisors[0]) is None)
    assert goes_to_its_end(service, "n3", 3)
    wait_until(lambda: read_stat(supervisors[1]) is None)
    assert is_running(server)


def test_a_stop_comes_to_a_forked_supervisor_and_the_next_agent_has_the_same_server(
    service: FakeService, start_agent: StartAgent
) -> None:
    first = start_agent()
    server = have_server(service, number=1)
    launch = service.launch(WAITS, nonce="n2", number=2, isolation="spawn")
    supervisor = supervisor_of(service, "n2", 2)
    trial = started(service, "n2").process.pid
    first.kill()
    start_agent()
    assert is_running(trial)

    service.launch(WAITS, nonce="n3", number=3, isolation="spawn")
    assert parent(supervisor_of(service, "n3", 3)) == server
    assert parent(supervisor) == server
    service.send(Stop(key=launch.key, nonce=launch.nonce, grace_s=0.1, reason="stopped_by_user"))
    assert service.wait_for_exit("n2").exit.cause == "stopped"
    assert not is_running(trial)
    assert goes_to_its_end(service, "n3", 3)


def test_the_server_leaves_when_no_agent_is_there_and_its_supervisors_go_on(
    service: FakeService, start_agent: StartAgent
) -> None:
    agent = start_agent(TUNER_AGENT_IDLE_EXIT_S="0.2")
    server = have_server(service, number=1)
    service.launch(WAITS, nonce="n2", number=2, isolation="spawn")
    supervisor = supervisor_of(service, "n2", 2)
    wait_until((service.folder("n2", number=2) / "process.json").exists)
    agent.kill()
    service.close()

    wait_until(lambda: not is_running(server))
    assert is_running(supervisor)
    (service.folder("n2", number=2) / "work" / "go").touch()
    wait_until((service.folder("n2", number=2) / "exit.json").exists)
    assert json.loads((service.folder("n2", number=2) / "exit.json").read_text())["code"] == 0
    wait_until(lambda: not is_running(supervisor))


@pytest.mark.parametrize("claimed", [False, True])
def test_an_attempt_that_somebody_else_has_claimed_is_left_to_them(
    service: FakeService, start_agent: StartAgent, *, claimed: bool
) -> None:
    start_agent()
    have_server(service, number=1)
    folder = service.folder("n1", number=1).parent / "elsewhere"
    folder.mkdir(parents=True)
    if claimed:
        (folder / "claim.json").write_text("{}")
    (state,) = [
        read_json(str(path)) or {}
        for path in (service.home / "agent" / "fork").glob("*.state.json")
        if (read_json(str(path)) or {}).get("supervises")
    ]
    assert send_order(state["orders"], {"start": str(folder), "why": "x"})  # there is no attempt.json
    assert send_order(state["orders"], {"start": "/nowhere", "why": "x"})
    assert send_order(state["orders"], {"start": 5})

    if claimed:
        service.launch("pass", nonce="n9", number=9, isolation="spawn")
        assert service.wait_for_exit("n9").exit.code == 0
        assert not (folder / "exit.json").exists()
    else:
        wait_until((folder / "exit.json").exists)
        assert "did not start" in (read_json(str(folder / "exit.json")) or {})["tail"]
