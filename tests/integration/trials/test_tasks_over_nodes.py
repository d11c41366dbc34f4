"""Groups over the nodes of a trial: one program on both, whatever ends one of them. Real processes and connections.

What they do when nothing goes wrong is tested with all other sessions (`task_sessions.py`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.integration.trials import tasks_steps as steps
from tests.integration.trials.fake_service import is_running
from tests.integration.trials.task_sessions import ROOT, TwoNodes, another_node, free_port, variables, world
from tests.own_network import own_network
from tests.waiting import wait_until
from trials.tasks import Node, NodeStartError, Task, TaskFailedError, TaskGroup, TrialSession
from trials.tasks.meeting import Meeting, Place, join

PROGRAM = """
import sys
from functools import partial
from tests.integration.trials import tasks_steps as steps
from trials.tasks import Node, Task, TaskFailedError, TaskGroup, TrialSession, final_output

def of_the_program(name):
    steps.note(f"{name} of the program")
    steps.give(name, name)

if __name__ == "__main__":
    session = TrialSession()
    for number in range(2):
        with TaskGroup() as group:
            for name in ("a", "b"):
                with Node(name):
                    Task(partial(of_the_program, name))
            found = final_output(["a", "b"])
        session.run(group)
        print("found", found.fetch(), flush=True)
    with TaskGroup() as group:
        Task(steps.resist, node="a")
        Task(steps.resist, node="b")
        Task("sh -c 'until [ $(grep -c pid $NOTES/notes) -ge 4 ]; do sleep 0.01; done; exit 7'", node="b")
    try:
        TrialSession(grace_s=0.2).run(group)
    except TaskFailedError as error:
        print(error.node, error.code, flush=True)
"""
LONG = """
from tests.integration.trials import tasks_steps as steps
from trials.tasks import Task, TaskGroup, TrialSession

if __name__ == "__main__":
    with TaskGroup() as group:
        Task(steps.resist, node="a")
        Task(steps.resist, node="b")
    TrialSession(grace_s=0.2, silence_s=2).run(group)
"""

GATED = """
from trials.tasks import Task, TaskGroup, TrialSession

if __name__ == "__main__":
    wait = "sh -c 'echo pid $$ >> $NOTES/notes; until [ -e $NOTES/gate ]; do sleep 0.01; done'"
    with TaskGroup() as group:
        Task(wait, node="a")
        Task(wait, node="b")
    TrialSession().run(group)
"""


ENDED_WITHIN_S = 20.0  # of a busy machine; that is what the silence is shorter than by far


@contextmanager
def program(
    folder: Path, text: str, *, begin: Callable[[], None] | None = None
) -> Iterator[list[subprocess.Popen[str]]]:
    """One on each node, each in a folder of its own."""
    port = free_port()
    with ExitStack() as stack:
        processes = []
        for node in (0, 1):
            own = folder / f"node{node}"
            own.mkdir()
            (own / "group.py").write_text(textwrap.dedent(text))
            environment = {**os.environ, **variables(folder), **world(node, port=port)}
            started = subprocess.Popen(
                [sys.executable, "group.py"], cwd=own, env=environment, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
                preexec_fn=begin,  # noqa: PLW1509  no other thread of a test runs then
            )  # fmt: skip
            processes.append(stack.enter_context(started))
            stack.callback(started.kill)
        yield processes


def pids(folder: Path) -> list[int]:
    notes = folder / "notes"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith("pid ")]


def none_runs(folder: Path) -> bool:
    return not [pid for pid in pids(folder) if is_running(pid)]


def test_one_program_has_the_same_outputs_and_the_same_failure_on_both_nodes(tmp_path: Path) -> None:
    with program(tmp_path, PROGRAM) as (first, second):
        said = [process.communicate(timeout=60)[0] for process in (first, second)]

    assert said == ["found ['a', 'b']\nfound ['a', 'b']\nb 7\n"] * 2
    assert sorted((tmp_path / "notes").read_text().splitlines()[:4]) == [
        *["a of the program"] * 2,
        *["b of the program"] * 2,
    ]
    assert len(pids(tmp_path)) == 4
    assert none_runs(tmp_path)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_program_that_is_killed_on_one_node_ends_the_group_on_both(killed: int, tmp_path: Path) -> None:
    with program(tmp_path, LONG) as processes:
        wait_until(lambda: len(pids(tmp_path)) == 4)
        processes[killed].send_signal(signal.SIGKILL)
        said, _ = processes[1 - killed].communicate(timeout=60)

        assert processes[1 - killed].returncode == 1
        assert ("node 1 of the trial is gone" if killed else "node 0 of the trial is gone") in said
        wait_until(lambda: none_runs(tmp_path))


def test_nodes_that_are_cut_off_from_one_another_end_the_group_on_both(tmp_path: Path) -> None:
    with own_network() as network:
        if network is None:
            pytest.skip("this user may have no network of its own, which could be cut")
        with program(tmp_path, LONG, begin=network.enter) as processes:
            wait_until(lambda: len(pids(tmp_path)) == 4)
            network.cut()
            cut_at = time.monotonic()
            said = [process.communicate(timeout=60)[0] for process in processes]
            took_s = time.monotonic() - cut_at

    assert [process.returncode for process in processes] == [1, 1]
    assert "node 1 of the trial is gone" in said[0] or "its connection ended" in said[0]
    assert "node 0 of the trial is gone" in said[1]
    assert took_s < ENDED_WITHIN_S
    assert none_runs(tmp_path)


def test_a_program_that_is_told_to_stop_waits_for_tasks_that_save_before_they_leave(tmp_path: Path) -> None:
    with program(tmp_path, GATED) as processes:
        wait_until(lambda: len(pids(tmp_path)) == 2)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        (tmp_path / "gate").touch()
        for process in processes:
            process.communicate(timeout=60)

    assert [process.returncode for process in processes] == [0, 0]


def test_who_does_not_know_the_key_is_nobody(tmp_path: Path) -> None:
    port = free_port()
    place = Place.of(world(0, port=port))
    meeting = Meeting(place)
    try:
        stranger = [sys.executable, "-m", "tests.integration.trials.task_sessions", ""]
        environment = {**os.environ, **world(1, port=port), "TUNER_WORLD_KEY": "guessed"}
        with subprocess.Popen(stranger, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as process:
            assert meeting.next(time.monotonic() + 1.0) is None
            process.kill()
    finally:
        meeting.close()

    with TaskGroup() as group:
        Task("touch began", node="a")
        Task("true", node="b")
    alone = TrialSession(environ=world(0, port=free_port()), start_timeout_s=0.2)
    with pytest.raises(NodeStartError, match=r"node 1 of the trial did not come within 0\.2 s"):
        alone.run(group)
    assert not Path("began").exists()


def test_a_node_that_finds_a_stranger_at_its_address_does_not_join_it() -> None:
    port = free_port()
    stranger = Meeting(Place(node=0, nodes=2, address="127.0.0.1", port=port, key="another"))
    listens = threading.Thread(target=lambda: stranger.next(time.monotonic() + 0.5))
    listens.start()
    try:
        with pytest.raises(ConnectionError, match=r"did not answer in 0\.4 s"):
            join(Place.of(world(1, port=port)), {"node": 1}, timeout_s=0.4)
    finally:
        listens.join()
        stranger.close()


def test_what_a_node_asks_for_is_looked_for_on_both_machines_and_refused_by_name(tmp_path: Path) -> None:
    session = TwoNodes(tmp_path, environ=world(0, port=free_port()))
    with TaskGroup() as group, Node("far", labels={"zone": "b"}):
        Task("true")

    with pytest.raises(ValueError, match="node 'far' wants the label zone='b', and the session has no such label"):
        session.run(group)
    with pytest.raises(ValueError, match="node 'far' wants the label"):  # it was not used
        session.run(group)


def test_a_process_that_hosts_a_node_and_is_killed_is_named(tmp_path: Path) -> None:
    place = Place.of(world(0, port=free_port()))
    session = TrialSession(tmp_path, environment=variables(tmp_path), environ=world(0, port=place.port), grace_s=0.2)

    with another_node(tmp_path, place) as other, TaskGroup() as group:
        wait = "until [ $(grep -c pid $NOTES/notes) -ge 4 ]; do sleep 0.01; done"
        Task(steps.resist, node="a")
        Task(steps.resist, node="b")
        Task(["sh", "-c", f"{wait}; kill -9 {other.pid}; sleep 600"], node="a")
        with pytest.raises(TaskFailedError, match="the runner on node 'b' failed: node 1 of the trial is gone"):
            session.run(group, timeout_s=60)
    wait_until(lambda: none_runs(tmp_path))
