"""The port of a learner: one coordinator is heard, hostile ones cost nothing, and so do kills of either side."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest
import torch

from tests.waiting import wait_until
from trials.data import AsyncDataLoader
from trials.learner import (
    Coordinator,
    CoordinatorGoneError,
    Demand,
    Ended,
    Learner,
    LearnerPort,
    LearnerRefusedError,
    LearnInfo,
    LoopStopped,
    SaveCheckpoint,
)
from trials.learner.coordination import door as doors
from trials.learner.coordination.coordinator import LearnerLostError
from trials.learner.coordination.frames import FRAME_BYTES, connect, encode, record_path
from trials.learner.coordination.port import NameTakenError

ROOT = Path(__file__).parents[3]
TASK = "a1/left"


class OneTrial:
    experiment_id, number = "e", 1

    def __init__(self) -> None:
        self.is_asked = False
        self.saved: Any = None

    def should_stop(self) -> bool:
        return self.is_asked

    def restore(self) -> Any:
        return self.saved and json.loads(self.saved)

    def report(self, values: Any, *, step: int) -> None: ...

    def save_checkpoint(self, state: Any, *, step: int) -> None:
        self.saved = json.dumps(state)

    def wait_for_checkpoint(self) -> None: ...


class Client:
    """Says what it likes."""

    def __init__(self, place: Path, name: str = "left") -> None:
        found = connect(place, name)
        assert found is not None
        self.socket = found
        self.socket.setblocking(True)
        self.socket.settimeout(30)

    def send(self, **message: Any) -> None:
        self.socket.sendall(encode(message))

    def receive(self) -> Any:
        """None where the learner has hung up."""
        data = b""
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">I", data)[0]:
            more = self.socket.recv(1 << 16)
            if not more:
                return None
            data += more
        return json.loads(data[4:])

    def ask(self, **message: Any) -> Any:
        self.send(**message)
        return self.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.socket.close()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[LearnerPort]:
    with LearnerPort(OneTrial(), tmp_path, name="left") as found:  # type: ignore[arg-type]  # what it uses of a trial
        yield found


def heard(port: LearnerPort) -> bool:
    with Client(port.place) as client:
        answer = client.ask(task="resource")
        return answer is not None and "ok" in answer


# ── one after the other ─────────────────────────────────────────────────────────────────────────
def test_a_task_from_its_start_to_its_close(port: LearnerPort) -> None:
    with Client(port.place) as client:
        resource = client.ask(task="resource")["ok"]
        assert (resource["name"], resource["pid"], resource["task_id"]) == ("left", os.getpid(), None)
        assert client.ask(task="start", task_id=TASK, info={"lr": 0.5})["ok"]["task_id"] == TASK
        assert port.wait_for_task(timeout_s=60) == {"lr": 0.5}
        asking = threading.Thread(target=lambda: given.append(port.data_for(2, 0)))
        given: list[Any] = []
        asking.start()
        news = client.ask(task="get_data", task_id=TASK, after=0, wait_s=20)["ok"]
        assert news["demand"] == {"batch_size": 2, "cur_learner_iter": 0}
        assert "ok" in client.ask(task="learn", task_id=TASK, cur_learner_iter=0, data=["a", "b"])
        asking.join(20)
        assert given == [["a", "b"]]
        port.remember(["a", "b"], [0.5, 2.0])
        port.tell(1, {"loss": float("nan")})
        (info,) = client.ask(task="get_data", task_id=TASK, after=0, wait_s=20)["ok"]["learnt"]
        assert (info["number"], info["samples"], info["priorities"]) == (1, ["a", "b"], [0.5, 2.0])
        assert str(info["metrics"]["loss"]) == "nan"
        assert "ok" in client.ask(task="close", task_id=TASK)
        with pytest.raises(LoopStopped, match="closed by its coordinator"):
            port.data_for(2, 1)


def test_a_wrong_task_is_answered_by_name_and_the_connection_stays(port: LearnerPort) -> None:
    with Client(port.place) as client:
        error = client.ask(task="lern", data=[1])["error"]
        assert error["kind"] == "unknown_task"
        assert "'lern'; a learner knows resource, start, get_data, learn, close" in error["message"]
        assert "ok" in client.ask(task="resource")


def test_requests_that_come_at_once_are_answered_in_order(port: LearnerPort) -> None:
    with Client(port.place) as client:
        client.socket.sendall(encode({"task": "resource"}) * 3 + encode({"task": "other"}))
        data = b""
        while data.count(b'"ok"') < 3 or b"unknown_task" not in data:
            data += client.socket.recv(1 << 16)
    assert data.rindex(b'"ok"') < data.index(b"unknown_task")


@pytest.mark.parametrize("wait_s", [0.05, -1, float("nan")])
def test_what_is_waited_for_comes_when_its_time_is_over(port: LearnerPort, wait_s: float) -> None:
    with Client(port.place) as client:
        client.ask(task="start", task_id=TASK, info={})
        answer = client.ask(task="get_data", task_id=TASK, after=0, wait_s=wait_s)["ok"]
    assert (answer["demand"], answer["learnt"], answer["ended"]) == (None, [], None)


def test_a_second_coordinator_is_told_that_there_is_one_and_heard_when_that_is_gone(port: LearnerPort) -> None:
    with Client(port.place) as first:
        assert "ok" in first.ask(task="resource")
        with Client(port.place) as second:
            assert second.receive()["error"]["kind"] == "busy"
            assert second.receive() is None
        assert "ok" in first.ask(task="resource")
    wait_until(lambda: heard(port))


def test_a_coordinator_that_says_nothing_makes_room(port: LearnerPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "IDLE_LIMIT_S", 0.05)
    with Client(port.place) as silent:
        assert silent.receive() is None
    assert heard(port)


# ── hostile ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "data",
    [b"\xff" * 4, b"\0\0\0\x02[]", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\x4e\x20" + b"[" * 20_000],
    ids=["length", "list", "http", "deep"],
)
def test_what_is_no_frame_ends_the_connection_with_a_reason(port: LearnerPort, data: bytes) -> None:
    with Client(port.place) as client:
        client.socket.sendall(data)
        assert client.receive()["error"]["kind"] == "malformed"
        assert client.receive() is None
    assert heard(port)


def test_whoever_never_reads_costs_no_memory_and_nobody_else(
    port: LearnerPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "IDLE_LIMIT_S", 0.5)
    with Client(port.place) as client:
        client.socket.setblocking(False)
        assert pushed(client.socket) < 2 * FRAME_BYTES
        wait_until(lambda: heard_beside(port))


def pushed(connection: socket.socket) -> int:
    """Bytes that it takes before it takes no more."""
    sent = 0
    with contextlib.suppress(BlockingIOError, ConnectionError):
        while sent < 8 * FRAME_BYTES:
            sent += connection.send(encode({"task": "x" * 1000}) * 50)
    return sent


def heard_beside(port: LearnerPort) -> bool:
    with Client(port.place) as client:
        try:
            answer = client.ask(task="resource")
        except ConnectionError:
            return False
        return answer is not None and "ok" in answer


def test_a_start_that_cannot_be_written_down_has_not_happened(port: LearnerPort) -> None:
    record = record_path(port.place, "left")
    record.mkdir()
    with Client(port.place) as client:
        assert client.ask(task="start", task_id=TASK, info={})["error"]["kind"] == "failed"
        assert client.ask(task="resource")["ok"]["task_id"] is None
        record.rmdir()
        assert "ok" in client.ask(task="start", task_id=TASK, info={})


def test_a_name_belongs_to_one_process_at_a_time(port: LearnerPort) -> None:
    with pytest.raises(NameTakenError, match=rf"process {os.getpid()} is learner 'left'"):
        LearnerPort(OneTrial(), port.place, name="left")  # type: ignore[arg-type]  # what it uses of a trial
    assert heard(port)


def test_a_learner_waits_for_one_of_another_container_that_has_its_pid_and_is_being_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = os.open(tmp_path / "left.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, f"{os.getpid()} 1 4026531836 the same machine".encode())
    waited: list[float] = []

    def gone(pause_s: float) -> None:
        waited.append(pause_s)
        fcntl.flock(lock, fcntl.LOCK_UN)

    monkeypatch.setattr("trials.learner.coordination.port.time", SimpleNamespace(monotonic=lambda: 0.0, sleep=gone))
    with LearnerPort(OneTrial(), tmp_path, name="left"):  # type: ignore[arg-type]  # what it uses of a trial
        assert len(waited) == 1
    os.close(lock)


def test_a_folder_with_a_long_path_holds_a_socket(tmp_path: Path) -> None:
    place = tmp_path / ("x" * 120) / ("y" * 120)
    with LearnerPort(OneTrial(), place) as port:  # type: ignore[arg-type]  # what it uses of a trial
        assert port.name == "e-1"
        with Client(place, "e-1") as client:
            assert client.ask(task="resource")["ok"]["name"] == "e-1"
        assert (place / "e-1.sock").stat().st_mode & 0o077 == 0


# ── with a learner and a coordinator ────────────────────────────────────────────────────────────
class Sums:
    """Its weight is the sum of what it was given."""

    def __init__(self) -> None:
        self.value = 0.0

    def step(self, batch: list[float]) -> dict[str, float]:
        self.value += sum(batch)
        return {"loss": self.value}

    def state_dict(self) -> float:
        return self.value

    def load_state_dict(self, state: float) -> None:
        self.value = state


class Batches:
    """What a loader is to a source: its position is that of the learner."""

    def __init__(self, source: Any) -> None:
        self.source, self.taken = source, 0

    def __iter__(self) -> Iterator[Any]:
        while (batch := self.source(2, self.taken)) is not None:
            self.taken += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken = state["taken"]


class Counted:
    """Gives 0, 1, 2 … two at a time, for so many iterations."""

    def __init__(self, iterations: int = 5) -> None:
        self.iterations = iterations
        self.heard: list[int] = []

    def sample(self, learner: str, demand: Demand) -> list[int] | None:
        first = 2 * demand.cur_learner_iter
        return None if demand.cur_learner_iter >= self.iterations else [first, first + 1]

    def learnt(self, learner: str, info: LearnInfo) -> None:
        self.heard.append(info.number)


def learn(
    trial: OneTrial, place: Path, name: str = "left", *, save_every: int | None = None, **ends: int
) -> tuple[float, str | None]:
    model = Sums()
    with LearnerPort(trial, place, name=name) as port:  # type: ignore[arg-type]  # what it uses of a trial
        if port.wait_for_task() is None:
            return 0.0, "no task"
        batches = Batches(port.data_source())
        learner = Learner(trial, step=model.step, batches=batches, state={"model": model}, hooks=[port.hook()])  # type: ignore[arg-type]
        if save_every is not None:
            learner.add(SaveCheckpoint(every_steps=save_every))
        learner.run(**(ends or {"epochs": 1}))
    return model.value, learner.stop_reason


class Beside(threading.Thread):
    """A learner in a thread; ``join`` gives what came of it."""

    def __init__(self, *arguments: Any, **ends: int) -> None:
        super().__init__()
        self.found: Any = None
        self._call = lambda: learn(*arguments, **ends)
        self.start()

    def run(self) -> None:
        self.found = self._call()

    def result(self) -> Any:
        self.join(30)
        return self.found


def test_a_learner_learns_what_its_coordinator_gives_until_there_is_no_more(tmp_path: Path) -> None:
    beside = Beside(OneTrial(), tmp_path)
    chooser = Counted()
    with Coordinator(tmp_path, chooser=chooser, journal=tmp_path / "journal") as coordinator:
        assert coordinator.run({"left": {"lr": 1}}) == {"left": Ended(finished=True, step=5)}

    assert beside.result() == (45.0, None)
    assert chooser.heard == [1, 2, 3, 4, 5]


def test_that_it_has_ended_is_written_down_once_its_last_checkpoint_is_on_the_disk(tmp_path: Path) -> None:
    class Writing(OneTrial):
        ended: tuple[bool, ...] = ()

        def wait_for_checkpoint(self) -> None:
            self.ended += (json.loads(record_path(tmp_path, "left").read_text())["ended"],)

    trial = Writing()
    beside = Beside(trial, tmp_path)
    with Coordinator(tmp_path, chooser=Counted(), journal=tmp_path / "journal") as coordinator:
        coordinator.run({"left": {}})
    assert beside.result() == (45.0, None)
    assert trial.ended == (False,)
    assert json.loads(record_path(tmp_path, "left").read_text())["ended"]


def test_a_coordinator_that_comes_after_a_learner_has_ended_hears_what_it_left(tmp_path: Path) -> None:
    trial = OneTrial()
    beside = Beside(trial, tmp_path, steps=2)
    with client_when_there(tmp_path) as client:
        client.ask(task="start", task_id=TASK, info={})
        for number in range(2):
            while client.ask(task="get_data", task_id=TASK, after=0, wait_s=20)["ok"]["demand"] is None:
                pass
            assert "ok" in client.ask(task="learn", task_id=TASK, cur_learner_iter=number, data=[1, 1])
    assert beside.result() == (4.0, None)
    chooser = Counted()
    (tmp_path / "journal").write_text('{"kind":"journal","version":1,"id":"a1"}\n')
    with Coordinator(tmp_path, chooser=chooser, journal=tmp_path / "journal") as coordinator:
        assert coordinator.run({"left": {}}) == {"left": Ended(finished=True, step=2)}
    assert chooser.heard == [1, 2]


def client_when_there(place: Path) -> Client:
    wait_until((place / "left.sock").exists)
    return Client(place)


def test_a_learner_that_is_closed_ends_and_says_so(tmp_path: Path) -> None:
    beside = Beside(OneTrial(), tmp_path)

    class Closing(Counted):
        def joined(self, coordinator: Coordinator) -> None:
            self.coordinator = coordinator

        def learnt(self, learner: str, info: LearnInfo) -> None:
            super().learnt(learner, info)
            if info.number == 3:
                self.coordinator.close_learner(learner)

    chooser = Closing(iterations=10**9)
    with Coordinator(tmp_path, chooser=chooser, journal=tmp_path / "journal") as coordinator:
        ended = coordinator.run({"left": {}})["left"]

    assert not ended.finished
    assert chooser.heard == list(range(1, ended.step + 1))
    assert beside.result()[1] == "closed by its coordinator"


def test_a_learner_at_another_task_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    trial = OneTrial()
    beside = Beside(trial, tmp_path)
    with client_when_there(tmp_path) as client:
        client.ask(task="start", task_id="other/left", info={})
    with (
        Coordinator(tmp_path, chooser=Counted(), journal=tmp_path / "journal") as coordinator,
        pytest.raises(LearnerRefusedError, match=r"learner 'left' refused \(other_task\).*is at task 'other/left'"),
    ):
        coordinator.run({"left": {}})
    trial.is_asked = True
    assert beside.result() == (0.0, "asked to stop")


def test_a_learner_that_is_asked_to_stop_while_it_waits_goes_on_later(tmp_path: Path) -> None:
    trial = OneTrial()
    waiting = Beside(trial, tmp_path)
    trial.is_asked = True
    assert waiting.result() == (0.0, "no task")
    trial.is_asked = False
    again = Beside(trial, tmp_path)
    with Coordinator(tmp_path, chooser=Counted(), journal=tmp_path / "journal") as coordinator:
        assert coordinator.run({"left": {}})["left"].finished
    assert again.result() == (45.0, None)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_while_data_is_waited_for_ends_no_epoch(tmp_path: Path, workers: int) -> None:
    trial = OneTrial()

    def live() -> tuple[list[float], str | None]:
        seen: list[float] = []

        def step(batch: Any) -> dict[str, float]:
            seen.extend(batch.tolist())
            return {"loss": 0.0}

        with (
            LearnerPort(trial, tmp_path, name="left") as port,  # type: ignore[arg-type]  # what it uses of a trial
            AsyncDataLoader(port.data_source(torch.tensor), 2, num_workers=workers) as loader,
        ):
            learner = Learner(trial, step=step, batches=loader, state={}, hooks=[port.hook()])  # type: ignore[arg-type]
            learner.run(epochs=1)
        return seen, learner.stop_reason

    with LearnerPort(trial, tmp_path, name="left"), Client(tmp_path) as client:  # type: ignore[arg-type]
        client.ask(task="start", task_id=TASK, info={})
    stopping = threading.Thread(target=lambda: found.append(live()))
    found: list[Any] = []
    stopping.start()
    with client_when_there(tmp_path) as client:
        for number in range(3):
            while client.ask(task="get_data", task_id=TASK, after=0, wait_s=20)["ok"]["demand"] is None:
                pass
            client.ask(task="learn", task_id=TASK, cur_learner_iter=number, data=[2 * number, 2 * number + 1])
        trial.is_asked = True
        stopping.join(30)
    trial.is_asked = False
    (tmp_path / "journal").write_text('{"kind":"journal","version":1,"id":"a1"}\n')
    going_on = threading.Thread(target=lambda: found.append(live()))
    going_on.start()
    with Coordinator(tmp_path, chooser=Counted(), journal=tmp_path / "journal") as coordinator:
        assert coordinator.run({"left": {}})["left"] == Ended(finished=True, step=5)
    going_on.join(30)

    (before, why), (after, none) = found
    assert (why, none) == ("asked to stop", None)
    assert before + after == [float(number) for number in range(10)]


def test_a_learner_that_nobody_is_is_said_after_a_while(tmp_path: Path) -> None:
    with (
        Coordinator(tmp_path, chooser=Counted(), journal=tmp_path / "journal", lost_after_s=0.1) as coordinator,
        pytest.raises(LearnerLostError, match="nobody has answered as learner 'left'"),
    ):
        coordinator.run({"left": {}})


def test_a_learner_that_had_ended_and_whose_newest_checkpoint_is_damaged_waits_no_longer_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Damaged(OneTrial):
        """Its newest checkpoint cannot be read any more: it goes on from the one before."""

        def save_checkpoint(self, state: Any, *, step: int) -> None:
            if step < 5:
                super().save_checkpoint(state, step=step)

    trial = Damaged()
    beside = Beside(trial, tmp_path, save_every=4)
    with Coordinator(tmp_path, chooser=Counted(), journal=tmp_path / "journal") as coordinator:
        coordinator.run({"left": {}})
    assert beside.result() == (45.0, None)

    monkeypatch.setattr("trials.learner.coordination.port.GONE_AFTER_S", 0.0)
    again = r"had ended after 5 iterations, and wants the batch of iteration 4 again.*task '\w+/left' was heard for 0 s"
    with pytest.raises(CoordinatorGoneError, match=again):
        learn(trial, tmp_path, save_every=4)


def test_a_coordinator_that_asks_for_a_learner_that_had_ended_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not heard of the end yet, and has the batches still."""

    class Looking(OneTrial):
        looks = 0

        def should_stop(self) -> bool:
            self.looks += 1
            return super().should_stop()

    now = 0.0
    monkeypatch.setattr("trials.learner.coordination.port.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr("trials.learner.coordination.port.GONE_AFTER_S", 60.0)
    ended = {"task_id": TASK, "info": {}, "ended": True, "finished": True, "step": 2, "learnt": []}
    record_path(tmp_path, "left").write_text(json.dumps(ended))
    trial = Looking()
    beside = Beside(trial, tmp_path)
    with client_when_there(tmp_path) as client:
        for number in range(2):
            while client.ask(task="get_data", task_id=TASK, after=0, wait_s=20)["ok"]["demand"] is None:
                pass
            now += 50.0
            assert "ok" in client.ask(task="get_data", task_id=TASK, after=0)
            now += 50.0
            looks = trial.looks
            wait_until(lambda looks=looks: trial.looks > looks + 1)
            assert "ok" in client.ask(task="learn", task_id=TASK, cur_learner_iter=number, data=[1, 1])
        assert beside.result() == (4.0, None)


KILLED = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.integration.trials.test_learner_port import OneTrial
from trials.learner import LearnerPort
port = LearnerPort(OneTrial(), Path(sys.argv[1]), name="left")
print("there", flush=True)
port.wait_for_task()
print("started", flush=True)
port.data_for(1, 0)
"""


def test_a_learner_that_was_killed_leaves_its_name_and_its_task_to_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED.format(root=str(ROOT)), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        with Client(tmp_path) as client:
            client.ask(task="start", task_id=TASK, info={"lr": 2})
            assert process.stdout.readline() == "started\n"
            process.kill()
            assert client.receive() is None
    assert connect(tmp_path, "left") is None
    with LearnerPort(OneTrial(), tmp_path, name="left") as port:  # type: ignore[arg-type]  # what it uses of a trial
        assert port.wait_for_task(timeout_s=0) == {"lr": 2}


def test_a_record_that_is_none_is_named(tmp_path: Path) -> None:
    record_path(tmp_path, "left").write_text("[]")
    with pytest.raises(ValueError, match=r"left\.task\.json is no record of a task"):
        LearnerPort(OneTrial(), tmp_path, name="left")  # type: ignore[arg-type]  # what it uses of a trial


def test_a_folder_that_others_may_write_into_is_no_place_to_meet(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with pytest.raises(PermissionError, match="can be written by others"):
        LearnerPort(OneTrial(), tmp_path, name="left")  # type: ignore[arg-type]  # what it uses of a trial
    with pytest.raises(PermissionError, match="can be written by others"):
        Coordinator(tmp_path, chooser=Counted(), journal=tmp_path / "journal")


def test_sockets_of_others_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "left.sock").write_text("a file")
    assert connect(tmp_path, "left") is None
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "right.sock"))
    assert connect(tmp_path, "right") is None


def test_a_fork_that_leaves_the_block_takes_the_socket_of_its_parent_not_along(port: LearnerPort) -> None:
    child = os.fork()
    if child == 0:
        port.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

    with Client(port.place) as client:
        assert client.ask(task="resource")["ok"]["pid"] == os.getpid()
