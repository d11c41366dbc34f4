"""Workers begin and end: one that cannot be started, for whatever reason, is said to have died and leaves nothing."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, START, a_spec
from tests.simulated_disk import SimulatedDisk
from tests.waiting import wait_until
from tuner_service.dispatcher.changes import StoredSnapshot
from tuner_service.dispatcher.commands import SnapshotTaken, WorkerDied, WorkerPonged, WorkerProgressed
from tuner_service.dispatcher.effects import Deliver, PingWorker, StartWorker
from tuner_service.dispatcher.items import MetricsReported, Queue, SuggestionRequested
from tuner_service.domain.errors import RowsDamagedError, StorageError, UnavailableError
from tuner_service.domain.experiment import AlgorithmSpec
from tuner_service.service.code import CodeFile, pack_code
from tuner_service.workers import pool as pool_module
from tuner_service.workers import snapshots
from tuner_service.workers.messages import SnapshotMade, SnapshotRefused
from tuner_service.workers.pool import WorkerPool
from tuner_service.workers.starts import PATIENCE_S, Starts

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
    """What the pool reads and starts; ``error``: what reading ends with, once ``gate`` is open."""

    def __init__(self, folder: Path) -> None:
        self.error: Exception | None = None
        self.code: bytes | None = None
        self.stored: StoredSnapshot | None = None
        self.told_after = -1
        self.gate = threading.Event()
        self.gate.set()
        self.reads = self.taken = 0
        self.moment = 0.0
        self.each_its_own = False  # a process
        self.meanwhile: Callable[[], None] = lambda: None
        self.events: list[Any] = []
        self.process = FakeProcess()
        self.pool = WorkerPool(
            store=self,  # type: ignore[arg-type]
            code=self,  # type: ignore[arg-type]
            folder=folder,
            now=lambda: START,
            on_event=self.events.append,
            forks=self,  # type: ignore[arg-type]
            _starts=Starts(at_once=1, now=lambda: self.moment),
        )

    def start(self, order: StartWorker = ORDER) -> None:
        """Returns when the start has come to its end."""
        self.pool.start(order)
        self.settle()

    def settle(self) -> None:
        done = threading.Event()
        try:
            self.pool._starts.put(done.set)
        except RuntimeError:  # there is no thread, and nothing to wait for
            return
        assert done.wait(60)

    def snapshot(self, _: str, queue: Queue) -> StoredSnapshot | None:
        self.reads += 1
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        return self.stored if queue is Queue.TUNER else None

    def history(self, _: str, queue: Queue, *, after: int, upto: int) -> tuple[()]:
        self.told_after = after if queue is Queue.TUNER else self.told_after
        return ()

    def reports_on(self, _: str, line: int) -> MetricsReported:
        return MetricsReported(line=line, number=1, reports=(), sequences=())

    def hear(self, message: Any) -> None:
        """From the worker, which is heard; a snapshot is stored."""
        _, link = self.pool._links[EXPERIMENT_ID]
        link._hear(message)
        for event in self.events:
            if isinstance(event, SnapshotTaken):
                self.stored = StoredSnapshot(
                    experiment_id=EXPERIMENT_ID, queue=event.queue, line=event.line, state=event.state, at=START
                )

    def blob(self, _: str) -> bytes | None:
        return self.code

    def take(self, _: Path) -> FakeProcess:
        self.taken += 1
        self.meanwhile()
        return FakeProcess() if self.each_its_own else self.process

    def close(self) -> None: ...


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.gate.set()
    world.pool.close()


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
    world.start()

    (died,) = world.events
    assert isinstance(died, WorkerDied)
    assert (died.experiment_id, died.generation) == (EXPERIMENT_ID, 3)
    assert died.detail == f"the algorithm worker could not be started: {error}"
    assert bool(died.damage) is isinstance(error, RowsDamagedError)


def test_nothing_stays_of_a_worker_that_was_not_started(world: World) -> None:
    world.error = UnavailableError("the database is away")
    world.start()
    world.pool.deliver(a_delivery())

    assert world.pool.count() == 0


@pytest.mark.parametrize("at", ["starter", "log", "reader", "writer", "waiter"])
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
    world.start()

    assert [event.detail for event in world.events] == [
        "the algorithm worker could not be started: can't start new thread"
    ]
    assert world.process.ended.is_set() is (at != "starter")
    assert world.pool.count() == 0
    world.pool.stop(EXPERIMENT_ID)
    world.pool.close()  # waits for the threads that there are


def test_the_next_order_starts_the_worker(world: World) -> None:
    world.error = UnavailableError("the database is away")
    world.start()
    world.error = None
    world.start()

    assert world.pool.count() == 1
    assert len(world.events) == 1


def test_who_orders_a_start_waits_for_none_and_what_is_delivered_meanwhile_is_kept(world: World) -> None:
    world.gate.clear()
    world.pool.start(ORDER)
    wait_until(lambda: world.reads)
    world.pool.deliver(a_delivery())
    world.pool.ping(PingWorker(experiment_id=EXPERIMENT_ID, generation=3))

    assert world.pool.count() == 1
    assert [type(event) for event in world.events] == [WorkerPonged], "it is no worker that hangs"
    world.gate.set()
    world.settle()
    _, link = world.pool._links[EXPERIMENT_ID]
    assert link.pid is not None
    assert list(link._pending[Queue.TUNER]) == [a_delivery().item]


def test_of_one_that_waits_for_its_turn_to_be_started_the_time_does_not_count(world: World) -> None:
    world.gate.clear()
    world.pool.start(ORDER)
    wait_until(lambda: world.reads)
    world.pool.start(replace(ORDER, experiment_id="waiting"))
    for experiment_id in (EXPERIMENT_ID, "waiting"):
        world.pool.ping(PingWorker(experiment_id=experiment_id, generation=3))

    names: dict[str, Any] = {"at": START, "generation": 3}
    assert world.events == [
        WorkerPonged(experiment_id=EXPERIMENT_ID, **names),
        WorkerProgressed(experiment_id="waiting", queue=Queue.TUNER, **names),
    ]
    world.pool.stop("waiting")


def test_a_start_that_hangs_takes_the_place_of_others_for_a_while_alone(world: World) -> None:
    world.each_its_own = True
    world.gate.clear()
    world.pool.start(ORDER)
    wait_until(lambda: world.reads)
    held, world.gate = world.gate, threading.Event()
    world.gate.set()
    world.pool.start(replace(ORDER, experiment_id="waiting"))
    world.pool.ping(PingWorker(experiment_id="waiting", generation=3))
    assert world.taken == 0

    world.moment += PATIENCE_S + 1
    world.pool.ping(PingWorker(experiment_id="waiting", generation=3))
    wait_until(lambda: world.taken)
    _, link = world.pool._links["waiting"]
    wait_until(lambda: link.pid is not None)
    held.set()
    wait_until(lambda: world.taken == 2)
    world.settle()


def test_several_are_started_at_a_time(world: World) -> None:
    world.each_its_own = True
    world.pool._starts = Starts(at_once=2)
    world.gate.clear()
    for name in ("one", "two", "three"):
        world.pool.start(replace(ORDER, experiment_id=name))
    wait_until(lambda: world.reads == 2)
    world.gate.set()
    wait_until(lambda: world.taken == 3)


def test_a_worker_that_is_stopped_while_it_is_started_leaves_nothing_and_says_nothing(world: World) -> None:
    world.gate.clear()
    world.pool.start(ORDER)
    wait_until(lambda: world.reads)
    world.pool.start(replace(ORDER, generation=4))
    world.pool.stop(EXPERIMENT_ID)
    world.gate.set()
    world.settle()

    assert world.taken == 0
    assert world.pool.count() == 0
    assert world.events == []
    assert world.reads == len(Queue), "for one that is not wanted any more nothing is read"


def test_a_worker_that_is_stopped_just_as_it_begins_is_ended(world: World) -> None:
    world.meanwhile = lambda: world.pool.stop(EXPERIMENT_ID)
    world.start()

    assert world.process.ended.is_set()
    assert world.events == []


def test_all_are_ended_and_others_can_be_started(world: World) -> None:
    world.start()
    world.pool.stop_all()

    assert world.process.ended.is_set()
    assert world.pool.count() == 0
    world.process = FakeProcess()
    world.start()
    assert not world.process.ended.is_set()
    world.pool.close()


# ── snapshots ───────────────────────────────────────────────────────────────────────────────────
MADE = SnapshotMade(queue=Queue.TUNER, line=8, state='{"seen":[1,2]}')


def with_code(digest: str) -> StartWorker:
    trial = replace(a_spec().trial, code_digest=digest)
    return replace(ORDER, tuner_cursor=9, spec=replace(of_user().spec, trial=trial))


def began(world: World, order: StartWorker) -> None:
    world.process = FakeProcess()
    world.start(order)


def test_a_snapshot_is_used_by_the_code_that_has_made_it(world: World, tmp_path: Path) -> None:
    for digest in ("a", "b"):
        (tmp_path / "code" / digest).mkdir(parents=True)
    began(world, with_code("a"))
    world.hear(MADE)
    assert world.stored is not None
    json.loads(world.stored.state)

    began(world, with_code("a"))
    assert world.told_after == 8, "what came after it alone"
    began(world, with_code("b"))
    assert world.told_after == 0, "other code is told everything"


def test_a_snapshot_of_another_version_of_the_package_is_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = replace(ORDER, tuner_cursor=9)
    began(world, order)
    world.hear(MADE)
    monkeypatch.setattr(snapshots, "_version", lambda: "another")
    began(world, order)
    assert world.told_after == 0

    world.stored = StoredSnapshot(experiment_id=EXPERIMENT_ID, queue=Queue.TUNER, line=8, state=MADE.state, at=START)
    began(world, order)
    assert world.told_after == 0, "nor one of before they were named"


def test_a_snapshot_of_more_than_was_answered_is_left_out(world: World) -> None:
    """It holds answers that the service has not stored, and that others may come in the place of."""
    began(world, replace(ORDER, tuner_cursor=9))
    world.hear(MADE)
    for cursor, after in ((7, 0), (8, 8)):
        began(world, replace(ORDER, tuner_cursor=cursor))
        assert world.told_after == after


def test_a_snapshot_that_could_not_be_loaded_is_left_out_by_the_next_worker(world: World) -> None:
    order = replace(ORDER, tuner_cursor=9)
    began(world, order)
    world.hear(MADE)
    began(world, order)
    world.hear(SnapshotRefused(queue=Queue.TUNER, line=8, why="KeyError: 'x'"))
    assert world.process.ended.is_set(), "its death brings the next one"

    began(world, order)
    assert world.told_after == 0

    world.hear(MADE)
    began(world, order)
    assert world.told_after == 8, "the one that has taken its place is of use"


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
        world.start(of_user())

    (died,) = world.events
    assert os.strerror(errno.ENOSPC) in died.detail
    assert list((tmp_path / "code").iterdir()) == []


def test_code_that_two_starts_unpack_at_a_time_is_there_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a folder of its own, of which neither removes the other's."""
    work, both = pool_module.sync_tree, threading.Barrier(2, timeout=60)

    def together(folder: str) -> None:
        both.wait()
        work(folder)
        both.wait()

    monkeypatch.setattr(pool_module, "sync_tree", together)
    world.each_its_own = True
    world.pool._starts = Starts(at_once=2)
    world.code = CODE.data
    for name in ("one", "two"):
        world.pool.start(replace(of_user(), experiment_id=name))
    wait_until(lambda: world.taken == 2)

    assert world.events == []
    assert [path.name for path in (tmp_path / "code").iterdir()] == [CODE.digest]
    assert (tmp_path / "code" / CODE.digest / "tuner.py").read_bytes() == b"pass\n"


def test_code_that_is_never_looked_at_again_is_whole_under_its_name_whenever_the_power_goes(
    world: World, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found, name = tmp_path_factory.mktemp("found"), f"code/{CODE.digest}"

    def is_whole(disk: SimulatedDisk) -> None:
        for kept_names in (False, True):
            code = disk.after_power_loss(found, kept_names=kept_names) / name
            assert not code.exists() or (code / "tuner.py").read_bytes() == b"pass\n", disk.events

    world.code = CODE.data
    with SimulatedDisk(tmp_path, at_every_event=is_whole) as disk:
        world.start(of_user())
        assert (disk.after_power_loss(found, kept_names=False) / name).exists()
    assert world.events == []


def test_what_a_service_that_was_killed_has_unpacked_in_part_goes_with_the_next_unpacking(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "code" / f"{CODE.digest}.77").mkdir(parents=True)
    world.code = CODE.data
    world.start(of_user())

    assert [path.name for path in (tmp_path / "code").iterdir()] == [CODE.digest]
    world.pool.close()
