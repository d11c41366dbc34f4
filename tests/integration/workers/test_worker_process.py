"""A real worker process, spoken to through its link."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.waiting import wait_until
from tuner_service.dispatcher.commands import (
    AlgorithmFaulted,
    QueueAnswered,
    SnapshotTaken,
    WorkerDied,
    WorkerEvent,
    WorkerPonged,
    WorkerReady,
)
from tuner_service.dispatcher.items import (
    AlgorithmFault,
    Answer,
    MetricsReported,
    Queue,
    QueueItem,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    Taken,
    TrialEnded,
)
from tuner_service.domain.experiment import AlgorithmSpec, Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus
from tuner_service.workers.link import WorkerLink
from tuner_service.workers.messages import Initialize, Told, command_to_wire
from tuner_service.workers.protocol import encode_frame

CODE = """
import json, os, sys, threading, time
from tuner_service.assessors.base import Assessor, Keep, Stop
from tuner_service.tuners.base import NotYet, Tuner


class Echo(Tuner):
    may_leave_space = True

    def suggest(self, number, rng):
        print("asked for", number)
        return {"number": number, "drawn": rng.random()}

    def observe(self, outcome):
        pass


class Raises(Echo):
    def observe(self, outcome):
        raise KeyError("the wrong key")


class Strays(Echo):
    may_leave_space = False


class RaisesWhenBuilt(Echo):
    def __init__(self, space, objective, *, size):
        raise ValueError(f"size {size} is odd")


class Hangs(Echo):
    def suggest(self, number, rng):
        while True:
            time.sleep(60)


class Spins(Echo):
    def suggest(self, number, rng):
        while True:
            pass


class Meets(Echo):
    # answers only while two are asked at a time
    suggests_in_parallel = True
    both = threading.Barrier(2, timeout=180)

    def suggest(self, number, rng):
        self.both.wait()
        return super().suggest(number, rng)


class Learns(Echo):
    # learns only while two have ended at a time; its snapshots hold what it was told
    observes_in_parallel = True
    both = threading.Barrier(2, timeout=180)

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.told = []

    def observe(self, outcome):
        self.both.wait()
        self.told.append(outcome.number)

    def state_dict(self):
        return {"told": sorted(self.told)}

    def load_state_dict(self, state):
        self.told = state["told"]


class Leaves(Echo):
    def suggest(self, number, rng):
        print("I am leaving now", file=sys.stderr)
        os._exit(5)


class StopsOdd(Assessor):
    def assess(self, trial, reports):
        return Stop("it is odd") if trial % 2 else Keep()

    def ended(self, outcome, reports):
        pass


class NotATuner:
    pass
"""
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}, "c": {"type": "categorical", "choices": ["a", "b"]}}
Event = TypeVar("Event", bound=WorkerEvent)


class Worker:
    """A link and everything that came out of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[WorkerEvent] = []
        self.log_path = folder / "workers" / "e1.log"
        self.link = WorkerLink(
            experiment_id="e1", generation=3, log_path=self.log_path, now=time.monotonic, on_event=self.events.append
        )

    def start(
        self,
        tuner: str = "random",
        *,
        assessor: str | None = None,
        snapshots: Mapping[Queue, tuple[int, str]] | None = None,
        history: Mapping[Queue, Iterable[QueueItem]] | None = None,
        **fields: Any,
    ) -> Worker:
        args = fields.pop("args", {})
        (self.folder / "code").mkdir(exist_ok=True)
        (self.folder / "code" / "own_algorithms.py").write_text(CODE)
        command = Initialize(
            experiment_id="e1",
            search_space=SPACE,
            objective=Objective(metric="loss"),
            seed=7,
            tuner=algorithm(tuner, args),
            assessor=None if assessor is None else algorithm(assessor, {}),
            code_folder=str(self.folder / "code"),
            **fields,
        )
        self.link.start(command, snapshots=snapshots or {}, history=history or {})
        return self

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in list(self.events) if isinstance(event, kind)]

    def wait(self, kind: type[Event]) -> Event:
        return wait_until(lambda: self.of(kind))[0]

    def answers(self, queue: Queue = Queue.TUNER) -> list[Answer]:
        return [answer for event in self.of(QueueAnswered) if event.queue is queue for answer in event.answers]

    def wait_for_answers(self, count: int, queue: Queue = Queue.TUNER) -> list[Answer]:
        wait_until(lambda: len(self.answers(queue)) >= count)
        return self.answers(queue)


def algorithm(name: str, args: dict[str, Any]) -> AlgorithmSpec:
    return AlgorithmSpec(class_name=name, args=args) if ":" in name else AlgorithmSpec(name=name, args=args)


@pytest.fixture
def worker_in(tmp_path: Path) -> Iterator[Callable[[str], Worker]]:
    workers: list[Worker] = []

    def make(name: str = "home") -> Worker:
        (tmp_path / name).mkdir()
        workers.append(Worker(tmp_path / name))
        return workers[-1]

    yield make
    for worker in workers:
        worker.link.kill()
        assert worker.link.join(10)


@pytest.fixture
def worker(worker_in: Callable[[str], Worker]) -> Worker:
    return worker_in("home")


def request(line: int, recorded: dict[str, Any] | None = None) -> SuggestionRequested:
    return SuggestionRequested(line=line, number=line, recorded=recorded)


def end(line: int, number: int, parameters: dict[str, Any]) -> TrialEnded:
    outcome = TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=0.5 / number)
    return TrialEnded(line=line, outcome=outcome)


def test_a_worker_answers_both_queues_line_by_line_after_it_is_ready(worker: Worker) -> None:
    worker.start("own_algorithms:Echo", assessor="own_algorithms:StopsOdd")
    worker.link.tell(Queue.TUNER, request(1))
    worker.link.tell(Queue.ASSESSOR, metrics(2, 1))
    worker.link.tell(Queue.ASSESSOR, metrics(3, 2))
    worker.link.tell(Queue.TUNER, end(4, 1, {}))
    suggested, taken = worker.wait_for_answers(2)
    assert isinstance(suggested, Suggested)
    assert (suggested.line, suggested.parameters["number"], taken) == (1, 1, Taken(line=4))
    assert worker.wait_for_answers(2, Queue.ASSESSOR) == [
        StopAdvised(line=2, sequence=50, message="it is odd"),
        Taken(line=3),
    ]
    assert isinstance(worker.events[0], WorkerReady)
    assert (worker.events[0].experiment_id, worker.events[0].generation) == ("e1", 3)


def metrics(line: int, number: int) -> MetricsReported:
    return MetricsReported(line=line, number=number, reports=(Report(step=1, value=0.5),), sequences=(50,))


def test_with_workers_a_tuner_that_can_is_asked_several_things_at_a_time(worker: Worker) -> None:
    for line in (1, 2, 3, 4):  # they wait in the link, and go together
        worker.link.tell(Queue.TUNER, request(line))
    worker.start("own_algorithms:Meets", workers=2)
    answers = worker.wait_for_answers(4)
    assert [(answer.line, answer.parameters["number"]) for answer in answers if isinstance(answer, Suggested)] == [
        (1, 1), (2, 2), (3, 3), (4, 4)
    ]  # fmt: skip


def test_with_workers_a_tuner_that_can_is_told_of_several_ends_at_a_time(worker: Worker) -> None:
    for line in (1, 2, 3, 4):
        worker.link.tell(Queue.TUNER, end(line, line, {}))
    worker.start("own_algorithms:Learns", workers=2, snapshot_every=1)

    assert [answer.line for answer in worker.wait_for_answers(4)] == [1, 2, 3, 4]
    snapshots = wait_until(lambda: [s for s in worker.of(SnapshotTaken) if s.line == 4])
    assert json.loads(snapshots[0].state)["tuner"]["told"] == [1, 2, 3, 4]
    told = {s.line: json.loads(s.state)["tuner"]["told"] for s in worker.of(SnapshotTaken)}
    assert all(numbers == list(range(1, line + 1)) for line, numbers in told.items())


def test_what_a_class_prints_goes_to_the_log_and_harms_no_frame(worker: Worker) -> None:
    worker.start("own_algorithms:Echo")
    worker.link.tell(Queue.TUNER, request(1))
    worker.wait_for_answers(1)
    wait_until(lambda: worker.log_path.exists() and "asked for 1" in worker.log_path.read_text())


def test_a_killed_worker_is_reported_after_everything_it_said(worker: Worker) -> None:
    worker.start()
    worker.link.tell(Queue.TUNER, request(1))
    worker.wait_for_answers(1)
    assert worker.link.pid is not None
    os.kill(worker.link.pid, signal.SIGKILL)
    died = worker.wait(WorkerDied)
    assert "SIGKILL" in died.detail
    assert worker.events[-1] is died
    assert worker.link.join(10)
    worker.link.tell(Queue.TUNER, request(2))
    worker.link.ping()


def test_the_end_of_what_it_printed_is_in_the_report_of_its_death(worker: Worker) -> None:
    worker.start("own_algorithms:Leaves")
    worker.link.tell(Queue.TUNER, request(1))
    detail = worker.wait(WorkerDied).detail
    assert "exit code 5" in detail
    assert "I am leaving now" in detail


@pytest.mark.parametrize("name", ["Hangs", "Spins"])
def test_a_worker_whose_tuner_hangs_answers_pings_and_can_be_killed(worker: Worker, name: str) -> None:
    worker.start(f"own_algorithms:{name}", assessor="own_algorithms:StopsOdd")
    worker.link.tell(Queue.TUNER, request(1))
    worker.wait(WorkerReady)
    worker.link.ping()
    worker.wait(WorkerPonged)
    worker.link.tell(Queue.ASSESSOR, metrics(2, 2))
    assert worker.wait_for_answers(1, Queue.ASSESSOR) == [Taken(line=2)]
    worker.link.kill()
    assert worker.link.join(10)
    assert not worker.of(WorkerDied)


def test_a_tuner_that_raises_is_reported_with_its_traceback_and_answers_nothing_more(worker: Worker) -> None:
    worker.start("own_algorithms:Raises", assessor="own_algorithms:StopsOdd")
    worker.link.tell(Queue.TUNER, request(1))
    worker.link.tell(Queue.TUNER, end(2, 1, {}))
    worker.link.tell(Queue.TUNER, request(3))
    faulted = worker.wait(AlgorithmFaulted)
    assert (faulted.queue, faulted.line, faulted.fault) == (Queue.TUNER, 2, AlgorithmFault.RAISED)
    assert "the wrong key" in faulted.message
    assert "own_algorithms.py" in faulted.traceback
    worker.link.tell(Queue.ASSESSOR, metrics(4, 2))
    worker.wait_for_answers(1, Queue.ASSESSOR)
    assert [answer.line for answer in worker.answers()] == [1]
    assert not worker.of(WorkerDied)


def test_a_suggestion_outside_the_space_is_a_fault_of_its_line_that_names_the_parameter(worker: Worker) -> None:
    worker.start("own_algorithms:Strays")
    worker.link.tell(Queue.TUNER, request(1))
    faulted = worker.wait(AlgorithmFaulted)
    assert (faulted.line, faulted.fault) == (1, AlgorithmFault.RAISED)
    assert "number is no parameter of the search space" in faulted.message
    assert "x is missing" in faulted.message


@pytest.mark.parametrize(
    ("tuner", "args", "words"),
    [
        ("own_algorithms:RaisesWhenBuilt", {"size": 3}, "size 3 is odd"),
        ("own_algorithms:RaisesWhenBuilt", {}, "size"),
        ("own_algorithms:NotATuner", {}, "subclass of tuner_service.tuners.base.Tuner"),
        ("own_algorithms:Missing", {}, "not there"),
        ("no_such_module:Tuner", {}, "no_such_module"),
        ("grid", {"step": 3}, "points"),
    ],
)
def test_an_algorithm_that_cannot_be_built_is_a_fault_at_line_0(
    worker: Worker, tuner: str, args: dict[str, Any], words: str
) -> None:
    worker.start(tuner, args=args)
    faulted = worker.wait(AlgorithmFaulted)
    assert faulted.line == 0
    assert words in faulted.message
    assert not worker.of(WorkerReady)


@pytest.mark.parametrize("tuner", ["random", "tpe"])
def test_a_worker_rebuilt_from_history_or_snapshot_goes_on_as_the_first(
    worker_in: Callable[[str], Worker], tuner: str
) -> None:
    first = worker_in("first").start(tuner, snapshot_every=10)
    lines: list[QueueItem] = []
    for number in range(1, 21):
        first.link.tell(Queue.TUNER, request(2 * number - 1))
        answer = first.wait_for_answers(2 * number - 1)[-1]
        assert isinstance(answer, Suggested)
        lines += [
            request(2 * number - 1, answer.parameters),
            end(2 * number, 2 * number - 1, answer.parameters),
        ]
        first.link.tell(Queue.TUNER, lines[-1])
    first.link.tell(Queue.TUNER, request(100))
    expected = first.wait_for_answers(41)[-1]
    snapshots = first.of(SnapshotTaken)
    assert [snapshot.line for snapshot in snapshots[:2]] == [10, 20]

    folded = worker_in("folded").start(tuner, history={Queue.TUNER: iter(lines)})
    taken = snapshots[1]
    later = [line for line in lines if line.line > taken.line]
    loaded = worker_in("loaded").start(
        tuner, snapshots={Queue.TUNER: (taken.line, taken.state)}, history={Queue.TUNER: later}
    )
    for again in (folded, loaded):
        again.link.tell(Queue.TUNER, request(100))
        assert again.wait_for_answers(1) == [expected]


def test_a_worker_that_cannot_load_its_snapshot_ends_and_says_why(worker: Worker) -> None:
    worker.start("tpe", snapshots={Queue.TUNER: (1, '{"search_space":null,"tuner":{}}')})
    died = worker.wait(WorkerDied)
    assert "a snapshot of its tuner could not be loaded: KeyError: 'version'" in died.detail
    assert not worker.of(AlgorithmFaulted)


def test_a_long_history_is_folded_without_an_answer_while_pings_are_answered(worker: Worker) -> None:
    lines = (request(line, {"x": line / 30_000, "c": "a"}) for line in range(1, 20_001))
    worker.start(history={Queue.TUNER: lines})
    worker.link.ping()
    worker.wait(WorkerPonged)
    worker.wait(WorkerReady)
    assert worker.answers() == []


def test_thousands_of_lines_told_at_once_are_all_answered_in_order(worker: Worker) -> None:
    worker.start()
    for line in range(1, 5_001):
        worker.link.tell(Queue.TUNER, request(line, {"x": 0.5, "c": "a"}))
    assert [answer.line for answer in worker.wait_for_answers(5_000)] == list(range(1, 5_001))


def test_after_a_stop_the_process_ends_and_no_event_comes_out(worker: Worker) -> None:
    worker.start()
    worker.wait(WorkerReady)
    worker.link.stop()
    seen = list(worker.events)
    assert worker.link.join(10)
    assert worker.events == seen


def test_a_stop_also_ends_a_worker_that_does_not_listen(worker: Worker) -> None:
    worker.start("own_algorithms:Echo")
    worker.wait(WorkerReady)
    assert worker.link.pid is not None
    os.kill(worker.link.pid, signal.SIGSTOP)
    worker.link.stop()
    assert worker.link.join(10)


def test_a_history_that_cannot_be_read_ends_the_worker_and_says_so(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable() -> Iterator[QueueItem]:
        yield request(1, {"x": 0.5, "c": "a"})
        raise OSError("the disk is gone")

    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    worker.start(history={Queue.TUNER: unreadable()})
    assert "history could not be read" in worker.wait(WorkerDied).detail
    assert [type(hook.exc_value) for hook in raised] == [OSError]


@pytest.mark.parametrize("name", ["Hangs", "Spins"])
def test_a_worker_whose_service_is_gone_ends_although_its_tuner_hangs(tmp_path: Path, name: str) -> None:
    (tmp_path / "own_algorithms.py").write_text(CODE)
    command = Initialize(
        experiment_id="e1",
        search_space=SPACE,
        objective=Objective(metric="loss"),
        seed=7,
        tuner=AlgorithmSpec(class_name=f"own_algorithms:{name}"),
        code_folder=str(tmp_path),
    )
    ask = Told(queue=Queue.TUNER, item=request(1))
    process = subprocess.Popen(
        [sys.executable, "-m", "tuner_service.workers.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdin is not None
        process.stdin.write(encode_frame([command_to_wire(command), command_to_wire(ask)]))
        process.stdin.close()
        assert process.wait(timeout=180) == 0


def test_a_frame_that_makes_no_sense_ends_the_worker_with_a_word() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuner_service.workers.worker"],
        input=encode_frame([{"kind": "Sudo", "queue": "tuner", "line": 1}]),
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 3
    assert b"Sudo" in done.stderr


def test_worker_and_registries_import_nothing_heavy() -> None:
    program = (
        "import sys; import {}; print([name for name in "
        "('optuna', 'torch', 'sqlalchemy', 'fastapi', 'pandas', 'scipy'{}) if name in sys.modules])"
    )
    for module, more in [
        ("tuner_service.workers.worker", ""),
        ("tuner_service.tuners.registry, tuner_service.assessors.registry", ", 'numpy', 'json_tricks'"),
    ]:
        done = subprocess.run(
            [sys.executable, "-c", program.format(module, more)], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"
