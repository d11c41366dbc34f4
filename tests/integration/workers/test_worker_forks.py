"""Workers that are forked: each is by itself, its end is told, and where none can be forked one is started anew."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from trials.processes.identity import children_of
from tuner_service.dispatcher.items import Queue, SuggestionRequested
from tuner_service.domain.experiment import AlgorithmSpec, Objective
from tuner_service.workers.forks import ForkedWorker, WorkerForks
from tuner_service.workers.messages import (
    Answered,
    FromWorker,
    HistoryEnd,
    Initialize,
    Ping,
    Pong,
    QueueFaulted,
    Terminate,
    Told,
    ToWorker,
    command_to_wire,
    messages_from_wire,
)
from tuner_service.workers.protocol import encode_frame, read_frame
from tuner_service.workers.starting import WorkerProcess, spawn_worker

CODE = """
import os, random, resource, signal, sys, threading
import numpy
from tuner_service.tuners.base import Tuner

LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_RTTIME"]

class Tells(Tuner):
    def suggest(self, number, rng):
        opened = [int(name) for name in os.listdir("/proc/self/fd")]
        return {
            "drawn": [random.random(), numpy.random.random()],
            "alike": {
                "fds": sorted(f for f in opened if os.path.exists(f"/proc/self/fd/{f}")),
                "streams": [os.readlink(f"/proc/self/fd/{f}").partition(":")[0] for f in range(3)],
                "signals": {str(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
                "blocked": [str(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
                "limits": {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
                "variables": {name: text for name, text in os.environ.items() if name != "TUNER_NONCE"},
                "path": sys.path, "flags": str(sys.flags), "folder": os.getcwd(), "argv": sys.argv,
                "umask": os.umask(0o22), "leads": os.getsid(0) == os.getpid(), "nice": os.nice(0),
                "threads": sorted(thread.name for thread in threading.enumerate()),
                "seeded": rng.random(), "hash": hash("a"),
            },
        }

    def observe(self, outcome):
        pass
"""


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[WorkerForks]:
    made = WorkerForks(folder=tmp_path / "workers", answer_s=60.0)
    taken: list[WorkerProcess] = []
    take = made.take
    made.take = lambda folder: taken.append(take(folder)) or taken[-1]  # type: ignore[func-returns-value, method-assign]
    made.prepare()
    yield made
    made.close()
    for process in taken:
        process.kill()
        process.wait(60)
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def forked(forks: WorkerForks) -> ForkedWorker:
    process = forks.take(forks.folder)
    assert isinstance(process, ForkedWorker)
    return process


def tell(process: WorkerProcess, *commands: ToWorker) -> None:
    assert process.stdin is not None
    process.stdin.write(encode_frame([command_to_wire(one) for one in commands]))
    process.stdin.flush()


def hear(process: WorkerProcess, kind: type[FromWorker]) -> FromWorker:
    assert process.stdout is not None
    while (objects := read_frame(process.stdout)) is not None:
        for message in messages_from_wire(objects):
            assert not isinstance(message, QueueFaulted), message
            if isinstance(message, kind):
                return message
    raise AssertionError("it has ended")


def close(process: WorkerProcess) -> int:
    tell(process, Terminate())
    return process.wait(60)


def suggestion(process: WorkerProcess, folder: Path) -> dict[str, Any]:
    (folder / "own").mkdir(exist_ok=True)
    (folder / "own" / "tells.py").write_text(CODE)
    begin = Initialize(
        experiment_id="e1",
        search_space={"x": {"_type": "uniform", "_value": [0, 1]}},
        checks_space=False,
        objective=Objective(metric="loss"),
        seed=7,
        tuner=AlgorithmSpec(class_name="tells:Tells"),
        code_folder=str(folder / "own"),
    )
    asked = Told(queue=Queue.TUNER, item=SuggestionRequested(line=1, number=1))
    tell(process, begin, HistoryEnd(queue=Queue.TUNER), asked)
    answered = hear(process, Answered)
    assert isinstance(answered, Answered)
    return answered.answers[0].parameters  # type: ignore[union-attr]  # it was asked for


def test_two_workers_share_nothing_but_the_seed_of_their_experiment(forks: WorkerForks, tmp_path: Path) -> None:
    processes = [forked(forks), forked(forks)]
    one, other = (suggestion(process, tmp_path) for process in processes)

    drawn = [*one["drawn"], *other["drawn"]]
    assert len(set(drawn)) == 4, "numbers that nobody has seeded are other ones in each"
    assert one["alike"] == other["alike"], "also the descriptors: nothing of the worker that was forked before"
    assert [close(process) for process in processes] == [0, 0]


def test_a_forked_worker_finds_what_one_finds_that_is_started_anew(forks: WorkerForks, tmp_path: Path) -> None:
    processes = [forked(forks), spawn_worker(forks.folder)]

    fork, anew = (suggestion(process, tmp_path)["alike"] for process in processes)

    assert fork == anew
    assert [close(process) for process in processes] == [0, 0]
    streams = (processes[1].stdin, processes[1].stdout, processes[1].stderr)
    assert [stream.close() for stream in streams if stream is not None] == [None] * 3


def test_how_a_worker_ended_is_told_also_by_a_signal(forks: WorkerForks) -> None:
    process = forked(forks)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    assert process.poll() is None

    os.kill(wait_until(lambda: children_of(process.pid))[0], signal.SIGSEGV)

    assert process.wait(60) == process.poll() == -signal.SIGSEGV


def test_workers_go_on_without_the_server_and_the_next_is_started_anew(forks: WorkerForks) -> None:
    process = forked(forks)
    server = forks.pid
    assert server is not None
    os.kill(server, signal.SIGKILL)

    tell(process, Ping())
    assert isinstance(hear(process, Pong), Pong)
    anew = forks.take(forks.folder)
    assert isinstance(anew, subprocess.Popen)
    assert process.poll() is None
    process.terminate()
    assert process.wait(60) == -signal.SIGKILL
    process.terminate()  # of one that is gone already
    assert close(anew) == 0

    forks.prepare()
    assert forks.pid not in {None, server}
    assert close(forked(forks)) == 0


def test_a_server_that_hangs_is_not_waited_for_again(forks: WorkerForks) -> None:
    server = forks.pid
    assert server is not None
    assert forks._orders is not None
    forks._orders.settimeout(0.1)
    os.kill(server, signal.SIGSTOP)

    process = forks.take(forks.folder)

    assert isinstance(process, subprocess.Popen)
    assert forks.pid is None
    assert close(process) == 0


def test_a_server_that_has_no_room_for_a_fork_is_kept(forks: WorkerForks) -> None:
    server, ours = forks.pid, forks._orders
    forks._orders, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its, forks._orders:
        its.send(b"cannot be forked: no room")
        process = forks.take(forks.folder)
    forks._orders = ours

    assert isinstance(process, subprocess.Popen)
    assert close(process) == 0
    assert close(forked(forks)) == 0
    assert forks.pid == server


def test_a_worker_is_seen_as_one_below_its_keeper_and_the_server(forks: WorkerForks) -> None:
    process = forked(forks)
    worker = wait_until(lambda: children_of(process.pid))[0]

    def words(pid: int) -> list[str]:
        return Path(f"/proc/{pid}/cmdline").read_text().strip("\0").split("\0")[3:4]

    wait_until(lambda: words(worker) == words(process.pid) == ["tuner_service.workers.worker"])
    assert words(forks.pid or 0) == ["tuner_service.workers.fork_server"]
    assert children_of(forks.pid or 0) == [process.pid]
    assert close(process) == 0


def test_once_closed_it_has_no_server_and_workers_end_with_their_streams(forks: WorkerForks) -> None:
    process = forked(forks)
    forks.close()
    forks.prepare()

    assert forks.pid is None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == -signal.SIGKILL, "nobody could tell how"
