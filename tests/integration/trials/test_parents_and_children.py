"""Real processes: they die with their parent, tell of their ends, and keep their numbers until they were reaped."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
from trials.processes.detached import EndWatch, start_detached
from trials.processes.identity import Identity, identity, is_alive, is_stopped, read_stat, send_verified
from trials.processes.parents import Child, ending_of

REPOSITORY = Path(__file__).parents[3]
FOR_EVER = [sys.executable, "-c", "import signal; signal.pause()"]

FORKING = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from trials.processes.parents import DEFAULT, Waker, die_with, end_mask, fork, leave_handlers
waker = Waker([signal.SIGTERM])
parent = os.getpid()
pid = fork()
if pid == 0:
    if sys.argv[2] == "orphan":
        os.kill(parent, signal.SIGKILL)  # the parent ends before the child has asked to die with it
    leave_handlers()
    while sys.argv[2] == "orphan" and os.getppid() == parent:
        pass
    die_with(parent, code=7)
    end_mask()
    os.write(1, f"{os.getpid()}\\n".encode())
    signal.pause()
signal.pause()
"""


def forking(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", FORKING, str(REPOSITORY), *words], stdout=subprocess.PIPE)


def test_a_child_dies_with_its_parent_and_gets_signals_as_any_process_does() -> None:
    with forking("plain") as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        found = Identity.read(identity(child))
        assert found is not None
        assert is_alive(found)

        parent.kill()
        wait_until(lambda: not is_alive(found))
        assert parent.stdout.read() == b""


def test_a_child_whose_parent_has_ended_already_goes_on_with_nothing() -> None:
    with forking("orphan") as parent:
        assert parent.stdout is not None
        assert parent.stdout.read() == b""  # it has exited, and said nothing


def test_a_child_keeps_its_number_until_it_is_reaped_and_says_how_it_ended() -> None:
    pid = os.posix_spawn(sys.executable, FOR_EVER, os.environ)
    child = Child(pid)
    assert ending_of(pid) is None

    child.signal(signal.SIGTERM)
    select.select([child.descriptor], [], [])

    assert ending_of(pid) is not None
    stat = read_stat(pid)
    assert stat is not None
    assert stat.state == "Z"
    child.signal()  # a zombie stays as it is
    assert child.reap() == -signal.SIGTERM
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(child.descriptor)


def test_a_process_is_only_signalled_when_it_is_that_very_one() -> None:
    with subprocess.Popen(FOR_EVER) as process:
        found = Identity.read(identity(process.pid))
        assert found is not None
        stranger = Identity(boot_id=found.boot_id, pid=found.pid, start_time=found.start_time + 1)

        assert not send_verified(signal.SIGKILL, stranger)
        assert not is_alive(stranger)
        assert send_verified(signal.SIGSTOP, found)
        wait_until(lambda: is_stopped(found))
        assert not is_stopped(stranger)
        assert send_verified(signal.SIGKILL, found)
        process.wait()
        assert not send_verified(signal.SIGKILL, found)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"boot_id": "b", "pid": 0, "start_time": 1},
        {"boot_id": "b", "pid": -1, "start_time": 1},
        {"boot_id": "b", "pid": 1 << 40, "start_time": 1},
        {"boot_id": "b", "pid": "12", "start_time": 1},
        {"boot_id": "b", "pid": 12, "start_time": -1},
        {"boot_id": "b" * 1_000, "pid": 12, "start_time": 1},
        {"boot_id": 3, "pid": 12, "start_time": 1},
    ],
)
def test_what_can_be_no_process_is_read_as_none(record: dict[str, object]) -> None:
    assert Identity.read(record) is None


def test_ends_are_told_once_of_children_and_others_and_not_of_what_was_let_go(tmp_path: Path) -> None:
    async def scene() -> None:
        ends, told = EndWatch(), list[str]()
        processes = [start_detached(FOR_EVER, log=tmp_path / "log") for _ in range(3)]
        first, second, third = processes
        try:
            stat = read_stat(first.pid)
            assert stat is not None
            assert not ends.add("another", first.pid, lambda: told.append("another"), start_time=stat.start_time + 1)
            assert ends.add("first", first.pid, lambda: told.append("first"), start_time=stat.start_time)
            assert ends.add("second", second.pid, lambda: told.append("second"))
            assert ends.add("third", third.pid, lambda: told.append("third"))
            assert os.getsid(first.pid) == first.pid
            ends.remove("second")
            for process in processes:
                process.kill()
            while "first" in ends or "third" in ends:
                await asyncio.sleep(0.01)
        finally:
            ends.close()
            codes = {process.wait() for process in processes}
        assert sorted(told) == ["first", "third"]
        assert codes == {-signal.SIGKILL}
        assert not ends.add("gone", first.pid, lambda: told.append("gone"))

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_process_that_is_just_leaving_and_the_one_in_its_place_are_each_told_once(tmp_path: Path) -> None:
    async def scene() -> None:
        ends, told = EndWatch(), list[str]()
        leaving, successor = [start_detached(FOR_EVER, log=tmp_path / "log") for _ in range(2)]
        try:
            assert ends.add("server", leaving.pid, lambda: told.append("leaving"))
            assert ends.add("server", successor.pid, lambda: told.append("successor"))
            leaving.kill()
            while not told:
                await asyncio.sleep(0.01)
            assert "server" in ends
            successor.kill()
            while "server" in ends:
                await asyncio.sleep(0.01)
        finally:
            ends.close()
            for process in (leaving, successor):
                process.kill()
                process.wait()
        assert told == ["leaving", "successor"]

    asyncio.run(asyncio.wait_for(scene(), 30))
