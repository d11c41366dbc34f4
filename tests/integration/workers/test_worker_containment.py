"""What a class of a user starts ends with its worker, and a class that breaks its worker ends in plain words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from tests.waiting import wait_until
from trials.processes import keeping
from trials.processes.identity import children_of, read_stat
from tuner_service.dispatcher.commands import AlgorithmFaulted, QueueAnswered, WorkerDied, WorkerEvent, WorkerReady
from tuner_service.dispatcher.items import Queue, SuggestionRequested
from tuner_service.domain.experiment import AlgorithmSpec, Objective
from tuner_service.workers.forks import WorkerForks
from tuner_service.workers.link import KEEPER_SAYS, WorkerLink
from tuner_service.workers.messages import Initialize, Told, command_to_wire
from tuner_service.workers.protocol import encode_frame
from tuner_service.workers.starting import WorkerProcess, spawn_worker

Event = TypeVar("Event", bound=WorkerEvent)
MIB = 1 << 20
CODE = """
import ctypes, os, signal, subprocess, sys, threading, time
from pathlib import Path
from tuner_service.tuners.base import Tuner

PIDS = Path(__file__).parent.parent / "pids"


def leave_behind(count=1, **options):
    for _ in range(count):
        child = subprocess.Popen(["sleep", "600"], start_new_session=True, **options)
        with PIDS.open("a") as file:
            print(child.pid, file=file)


class Plain(Tuner):
    def suggest(self, number, rng):
        self.break_down()
        return {"x": 0.5}

    def observe(self, outcome):
        pass

    def break_down(self):
        leave_behind()


class Daemons(Plain):
    def break_down(self):
        leave_behind(3)
        leave_behind(1, env={"PATH": os.environ["PATH"]})  # without the mark in its environment
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            leave_behind()
            time.sleep(600)


class Leaves(Plain):
    def break_down(self):
        leave_behind()
        os._exit(0)


class Faults(Plain):
    def break_down(self):
        leave_behind()
        ctypes.string_at(0)


class Closes(Plain):
    def break_down(self):
        leave_behind()
        os.closerange(0, 4096)


class Interrupts(Plain):
    def break_down(self):
        raise KeyboardInterrupt


class Strange(Plain):
    def break_down(self):
        raise type("Odd", (BaseException,), {})("neither an Exception nor an exit")


class Takes(Plain):
    def break_down(self):
        self.kept = bytearray(1 << 30)


class TakesInParts(Plain):
    def break_down(self):
        for _ in range(4):
            if not os.fork():
                kept = bytearray(150 << 20)
                time.sleep(600)
        time.sleep(600)


class Multiplies(Plain):
    def break_down(self):
        leave_behind(600)
        time.sleep(600)


class Floods(Plain):
    def break_down(self):
        for _ in range(200):
            sys.stdout.write("x" * 99_999 + chr(10))
            sys.stderr.write("y" * 99_999 + chr(10))


class Stops(Plain):
    def break_down(self):
        os.kill(os.getpid(), signal.SIGSTOP)
"""


class Worker:
    """A link, everything that came out of it, and the processes that its tuner started."""

    def __init__(self, folder: Path, *, is_forked: bool) -> None:
        self.folder = folder
        self.is_forked = is_forked
        self.forks: list[WorkerForks] = []
        self.events: list[WorkerEvent] = []
        self.pids_file = folder / "pids"
        self.link: WorkerLink | None = None

    def start(self, tuner: str, *, memory_bytes: int = 4 << 30) -> Worker:
        self.link = WorkerLink(
            experiment_id="e1",
            generation=1,
            log_path=self.folder / "workers" / "e1.log",
            now=time.monotonic,
            on_event=self.events.append,
            spawn=self._take(memory_bytes),
        )
        self.link.start(command(self.folder, tuner), snapshots={}, history={})
        self.link.tell(Queue.TUNER, SuggestionRequested(line=1, number=1))
        return self

    def _take(self, memory_bytes: int) -> Callable[[Path], WorkerProcess]:
        if not self.is_forked:
            return partial(spawn_worker, memory_bytes=memory_bytes)
        self.forks.append(WorkerForks(folder=self.folder / "workers", memory_bytes=memory_bytes, answer_s=60.0))
        self.forks[-1].prepare()
        return self.forks[-1].take

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in list(self.events) if isinstance(event, kind)]

    def wait(self, kind: type[Event]) -> Event:
        return wait_until(lambda: self.of(kind))[0]

    def started(self) -> list[int]:
        return [int(text) for text in self.pids_file.read_text().split()] if self.pids_file.exists() else []

    def left(self) -> list[int]:
        return [pid for pid in self.started() if (stat := read_stat(pid)) is not None and stat.state not in "ZX"]


def command(folder: Path, tuner: str) -> Initialize:
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "own_algorithms.py").write_text(CODE)
    return Initialize(
        experiment_id="e1",
        search_space={"x": {"_type": "uniform", "_value": [0, 1]}},
        objective=Objective(metric="loss"),
        seed=7,
        tuner=AlgorithmSpec(class_name=f"own_algorithms:{tuner}"),
        code_folder=str(folder / "code"),
    )


def worker_below(keeper: int) -> int:
    """The oldest child: those that it adopted came later."""
    return children_of(keeper)[0]


@pytest.fixture(params=[False, True], ids=["started anew", "forked"])
def worker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Worker]:
    made = Worker(tmp_path, is_forked=request.param)
    yield made
    for forks in made.forks:
        forks.close()
    if made.link is not None:
        made.link.kill()
        assert made.link.join(30)
    left = made.left()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_whatever_a_tuner_started_ends_with_its_worker(worker: Worker) -> None:
    worker.start("Daemons").wait(QueueAnswered)
    wait_until(lambda: len(worker.started()) == 5)
    assert worker.link is not None
    worker.link.kill()
    assert worker.link.join(30)
    assert worker.left() == []


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_killed_from_outside_leaves_nothing(worker: Worker, end: signal.Signals) -> None:
    worker.start("Daemons").wait(QueueAnswered)
    wait_until(lambda: len(worker.started()) == 5)
    assert worker.link is not None
    assert worker.link.pid is not None
    os.kill(worker_below(worker.link.pid), end)
    assert end.name in worker.wait(WorkerDied).detail
    assert worker.left() == []


def test_a_service_that_is_killed_leaves_nothing_of_a_tuner_that_hangs(worker: Worker) -> None:
    """Its side of the pipes closes; the worker itself would end, were it not stopped."""
    process = spawn_worker(worker.folder / "workers")
    told = [command(worker.folder, "Daemons"), Told(queue=Queue.TUNER, item=SuggestionRequested(line=1, number=1))]
    told.append(Told(queue=Queue.TUNER, item=SuggestionRequested(line=2, number=2)))
    with process:
        assert process.stdin is not None
        process.stdin.write(encode_frame([command_to_wire(one) for one in told]))  # type: ignore[arg-type]  # commands
        process.stdin.flush()
        wait_until(lambda: len(worker.started()) >= 5)
        os.kill(worker_below(process.pid), signal.SIGSTOP)
        process.stdin.close()
        assert process.wait(timeout=180) == -signal.SIGKILL
    assert worker.left() == []


def test_what_a_killed_keeper_leaves_is_ended_by_the_next(worker: Worker) -> None:
    worker.start("Daemons").wait(QueueAnswered)
    wait_until(lambda: len(worker.started()) == 5)
    assert worker.link is not None
    assert worker.link.pid is not None
    os.kill(worker.link.pid, signal.SIGKILL)
    worker.wait(WorkerDied)
    records = worker.folder / "workers" / "kept"
    assert len(list(records.iterdir())) == 1
    next_one = spawn_worker(worker.folder / "workers")
    wait_until(lambda: worker.left() == [])
    next_one.communicate()
    assert list(records.iterdir()) == []


def test_the_record_of_a_living_keeper_is_left_alone(worker: Worker) -> None:
    worker.start("Plain").wait(QueueAnswered)
    keeping.end_leftovers(str(worker.folder / "workers" / "kept"))
    assert len(worker.left()) == 1


@pytest.mark.parametrize(
    ("tuner", "words"),
    [
        ("Leaves", "exit code 0"),
        ("Faults", "SIGSEGV"),
        ("Closes", "closed"),
        ("Multiplies", f"may have {keeping.PROCESSES_LIMIT} at a time"),
    ],
)
def test_a_tuner_that_breaks_its_worker_is_a_death_that_says_how(worker: Worker, tuner: str, words: str) -> None:
    died = worker.start(tuner).wait(WorkerDied)
    assert words in died.detail
    assert worker.left() == []


@pytest.mark.parametrize(("tuner", "words"), [("Interrupts", "KeyboardInterrupt"), ("Strange", "neither an Exception")])
def test_whatever_is_raised_is_a_fault_of_the_line(worker: Worker, tuner: str, words: str) -> None:
    faulted = worker.start(tuner).wait(AlgorithmFaulted)
    assert (faulted.line, words in faulted.message) == (1, True)


def test_a_tuner_that_asks_for_more_memory_than_it_may_have_is_refused_and_told_the_limit(worker: Worker) -> None:
    faulted = worker.start("Takes", memory_bytes=512 * MIB).wait(AlgorithmFaulted)
    assert "MemoryError" in faulted.message
    assert "0.5 GiB: setting worker_memory" in faulted.message


def test_the_memory_of_everything_that_a_tuner_started_is_bounded_together(worker: Worker) -> None:
    died = worker.start("TakesInParts", memory_bytes=512 * MIB).wait(WorkerDied)
    assert died.detail.startswith(KEEPER_SAYS)
    assert "0.5 GiB" in died.detail.splitlines()[0]


def test_a_tuner_that_floods_its_output_still_answers(worker: Worker) -> None:
    worker.start("Floods").wait(QueueAnswered)


def test_a_worker_that_stopped_itself_can_be_ended(worker: Worker) -> None:
    worker.start("Stops").wait(WorkerReady)
    assert worker.link is not None
    worker.link.kill()
    assert worker.link.join(30)


def test_the_words_of_a_keeper_are_known_to_the_service() -> None:
    assert keeping.SAYS == KEEPER_SAYS


def test_a_keeper_that_cannot_start_its_command_says_so(tmp_path: Path) -> None:
    keeper = Path(keeping.__file__).with_name("keeper.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(keeper), str(tmp_path / "kept"), "0", "/no/such/program"],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == keeping.EXIT_NOT_STARTED
    assert "cannot start '/no/such/program'" in done.stderr
