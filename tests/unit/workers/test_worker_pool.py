"""Workers begin and end: one that cannot be started, for whatever reason, is said to have died and leaves nothing."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, START, a_spec
from tuner_service.dispatcher.commands import WorkerDied
from tuner_service.dispatcher.effects import Deliver, StartWorker
from tuner_service.dispatcher.items import Queue, SuggestionRequested
from tuner_service.domain.errors import RowsDamagedError, StorageError, UnavailableError
from tuner_service.domain.experiment import AlgorithmSpec
from tuner_service.service.code import CodeFile, pack_code
from tuner_service.workers import pool as pool_module
from tuner_service.workers.pool import WorkerPool

ORDER = StartWorker(experiment_id=EXPERIMENT_ID, generation=3, spec=a_spec(), tuner_cursor=0, assessor_cursor=0)


class FakeProcess:
    """Ends when it is told to, and has nothing to say."""

    def __init__(self) -> None:
        self.stdin, self.stdout, self.stderr = io.BytesIO(), io.BytesIO(), io.BytesIO()
        self.ended = threading.Event()
        self.pid, self.terminate = 0, self.ended.set
        self.kill = self.ended.set

    def poll(self) -> int | None:
        return 0 if self.ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        return 0

    def send_signal(self, number: int) -> None: ...


class World:
    """What the pool reads and starts; ``error``: what reading ends with."""

    def __init__(self, folder: Path) -> None:
        self.error: Exception | None = None
        self.code: bytes | None = None
        self.events: list[Any] = []
        self.process = FakeProcess()
        self.pool = WorkerPool(
            store=self,  # type: ignore[arg-type]
            code=self,  # type: ignore[arg-type]
            folder=folder,
            now=lambda: START,
            on_event=self.events.append,
            spare=self,  # type: ignore[arg-type]
        )

    def snapshot(self, *_: Any) -> None:
        if self.error is not None:
            raise self.error

    def history(self, *_: Any, **__: Any) -> tuple[()]:
        return ()

    def blob(self, _: str) -> bytes | None:
        return self.code

    def take(self, _: Path) -> FakeProcess:
        return self.process

    def close(self) -> None: ...


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def a_delivery() -> Deliver:
    item = SuggestionRequested(line=1, number=1)
    return Deliver(experiment_id=EXPERIMENT_ID, generation=3, queue=Queue.TUNER, item=item)


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("the database is away"),
        StorageError("the file is corrupt"),
        RowsDamagedError("journal line 7 cannot be read"),
        OSError("no room"),
        RuntimeError("nobody has thought of it"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_goes_wrong_at_the_start_is_said_as_the_death_of_that_worker(world: World, error: Exception) -> None:
    world.error = error
    world.pool.start(ORDER)

    (died,) = world.events
    assert isinstance(died, WorkerDied)
    assert (died.experiment_id, died.generation) == (EXPERIMENT_ID, 3)
    assert died.detail == f"the algorithm worker could not be started: {error}"
    assert bool(died.damage) is isinstance(error, RowsDamagedError)


def test_nothing_stays_of_a_worker_that_was_not_started(world: World) -> None:
    world.error = UnavailableError("the database is away")
    world.pool.start(ORDER)
    world.pool.deliver(a_delivery())

    assert world.pool.count() == 0


@pytest.mark.parametrize("at", ["log", "reader", "writer", "waiter"])
def test_a_machine_without_a_thread_to_spare_ends_the_process_and_says_one_death(
    world: World, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, begun = threading.Thread.start, list[str]()

    def start(thread: threading.Thread) -> None:
        begun.append(thread.name)
        if any(at in name.split() for name in begun):  # this one and all after it
            raise RuntimeError("can't start new thread")
        started(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    world.pool.start(ORDER)

    assert [event.detail for event in world.events] == [
        "the algorithm worker could not be started: can't start new thread"
    ]
    assert world.process.ended.is_set()
    assert world.pool.count() == 0
    world.pool.stop(EXPERIMENT_ID)
    world.pool.close()  # waits for the threads that there are


def test_the_next_order_starts_the_worker(world: World) -> None:
    world.error = UnavailableError("the database is away")
    world.pool.start(ORDER)
    world.error = None
    world.pool.start(ORDER)

    assert world.pool.count() == 1
    assert len(world.events) == 1
    world.pool.close()


def test_all_are_ended_and_others_can_be_started(world: World) -> None:
    world.pool.start(ORDER)
    world.pool.stop_all()

    assert world.process.ended.is_set()
    assert world.pool.count() == 0
    world.process = FakeProcess()
    world.pool.start(ORDER)
    assert not world.process.ended.is_set()
    world.pool.close()


# ── the code of users' classes ──────────────────────────────────────────────────────────────────
CODE = pack_code([CodeFile(path="tuner.py", content=b"pass\n")])


def of_user() -> StartWorker:
    """Its tuner is a class of a user's."""
    trial = replace(a_spec().trial, code_digest=CODE.digest)
    return replace(ORDER, spec=replace(a_spec(), tuner=AlgorithmSpec(class_name="tuner:Tuner"), trial=trial))


@pytest.mark.parametrize("fails", ["unpack_code", "sync_tree", "put_in_place"])
def test_of_code_that_could_not_be_unpacked_nothing_stays(
    world: World, tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = getattr(pool_module, fails)

    def failing(*arguments: Any) -> None:
        if fails == "unpack_code":
            work(*arguments)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    world.code = CODE.data
    with monkeypatch.context() as patched:
        patched.setattr(pool_module, fails, failing)
        world.pool.start(of_user())

    (died,) = world.events
    assert os.strerror(errno.ENOSPC) in died.detail
    assert list((tmp_path / "code").iterdir()) == []


def test_what_a_service_that_was_killed_has_unpacked_in_part_goes_with_the_next_unpacking(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "code" / f"{CODE.digest}.77").mkdir(parents=True)
    world.code = CODE.data
    world.pool.start(of_user())

    assert [path.name for path in (tmp_path / "code").iterdir()] == [CODE.digest]
    world.pool.close()
