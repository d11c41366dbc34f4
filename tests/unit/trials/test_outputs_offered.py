"""An output is offered until it is an asset; how long depends on what hinders it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hanging import Hanging
from trials.agent.moving import outputs
from trials.agent.moving.outputs import OFFER_ATTEMPTS, OutputsCollector
from trials.agent.moving.storing import StoreHangsError, StoreThreads
from trials.files import read_json, to_json
from trials.stores import BrokenOffError
from trials.wire.attempt import AttemptKey
from trials.wire.files import FILE_ATTEMPT, FILE_OUTPUT, FOLDER_WORK
from trials.wire.messages import Message
from trials.wire.outputs import OutputOffered, OutputStored
from trials.wire.records import ExitCause, ExitRecord

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)
EXITED = ExitRecord(cause=ExitCause.EXITED, code=0)
FULL = OutputStored(nonce="n", error="the disk of the store is full", may_pass=True)
REFUSED = OutputStored(nonce="n", error="its manifest makes no sense")
STORED = OutputStored(nonce="n")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "PAUSE_S", 0.0)


class Scene:
    """An attempt that left a file, and a service that gives ``answers`` one after the other."""

    def __init__(self, folder: Path, answers: Iterator[OutputStored], *, threads: StoreThreads | None = None) -> None:
        attempt = folder / "attempt"
        (attempt / FOLDER_WORK / "out").mkdir(parents=True)
        (attempt / FOLDER_WORK / "out" / "model").write_bytes(b"weights")
        (attempt / FILE_ATTEMPT).write_bytes(to_json({"spec": {"output": "out", "keep_outputs": "always"}}))
        self.held: Any = SimpleNamespace(key=KEY, nonce="n", folder=attempt, hurried=asyncio.Event())
        self.offered: list[OutputOffered] = []
        self._answers = answers
        self.collector = OutputsCollector(send=self._send, threads=threads or StoreThreads())
        self.collector.begin(None, str(folder / "staging"), own=None)

    async def _send(self, message: Message) -> None:
        assert isinstance(message, OutputOffered)
        self.offered.append(message)
        if message.pieces:
            self.collector.stored(next(self._answers))

    def collect(self, *, step: int | None = None) -> None:
        asyncio.run(self.collector.collect(self.held, EXITED if step is None else None, step=step))

    @property
    def is_done(self) -> bool:
        return bool(read_json(str(self.held.folder / FILE_OUTPUT)))

    @property
    def kept(self) -> list[bool]:
        """Of each offer, whether there was something to keep."""
        return [bool(offer.pieces) for offer in self.offered]


def test_a_store_that_is_full_when_an_attempt_ends_is_waited_for(tmp_path: Path) -> None:
    scene = Scene(tmp_path, iter([*[FULL] * 20, STORED]))
    scene.collect()
    assert (scene.kept, scene.is_done) == ([True] * 21, True)


def test_a_store_that_stays_full_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(100))
    monkeypatch.setattr(outputs, "monotonic", lambda: next(times) * 200.0)
    scene = Scene(tmp_path, iter([FULL] * 100))
    scene.collect()
    assert OFFER_ATTEMPTS < len(scene.kept) < 30
    assert (scene.kept[-1], scene.offered[-1].message, scene.is_done) == (False, FULL.error, True)


def test_of_an_attempt_that_is_to_stop_a_full_store_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "PAUSE_S", 1_000.0)  # it is not waited out
    scene = Scene(tmp_path, iter([FULL] * 100))
    monkeypatch.setattr(outputs, "OFFER_ATTEMPTS", 2)

    async def ends() -> None:
        collecting = asyncio.ensure_future(scene.collector.collect(scene.held, EXITED))
        while not scene.offered:
            await asyncio.sleep(0)
        scene.held.hurried.set()
        await asyncio.wait_for(collecting, 30)

    asyncio.run(ends())
    assert (scene.kept, scene.is_done) == ([True, True, False], True)


def test_what_does_not_pass_is_tried_a_few_times(tmp_path: Path) -> None:
    scene = Scene(tmp_path, iter([REFUSED] * 100))
    scene.collect()
    assert (scene.kept, scene.is_done) == ([True] * OFFER_ATTEMPTS + [False], True)


def test_a_running_trial_does_not_wait_for_its_store(tmp_path: Path) -> None:
    scene = Scene(tmp_path, iter([FULL] * 100))
    scene.collect(step=3)
    assert (scene.kept, scene.is_done) == ([True] * OFFER_ATTEMPTS + [False], False)


@pytest.mark.parametrize(
    ("error", "is_waited_for"),
    [
        (OSError(errno.ENOSPC, "no room"), True),
        (BrokenOffError("status 503: the disk is full"), True),
        (PermissionError(errno.EACCES, "not yours"), False),
    ],
)
def test_of_errors_here_a_full_disk_and_a_service_in_trouble_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, is_waited_for: bool
) -> None:
    stage, left = outputs.stage, iter([error] * 20)

    def failing(*args: Any) -> Any:
        if (raised := next(left, None)) is not None:
            raise raised
        return stage(*args)

    monkeypatch.setattr(outputs, "stage", failing)
    scene = Scene(tmp_path, iter([STORED]))
    scene.collect()
    assert scene.kept == [is_waited_for]
    assert str(error) in scene.offered[0].message or is_waited_for


def test_nothing_is_tried_for_an_attempt_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path, iter([]))

    def removed(*_: Any) -> Any:
        scene.held.folder.rename(tmp_path / "gone")
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(outputs, "stage", removed)
    scene.collect()
    assert scene.offered == []


def test_an_end_does_not_wait_for_ever_for_a_store_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(StoreThreads):
        async def run(self, work: Any, *, root: str, size: int = 0) -> Any:
            raise StoreHangsError(f"store: {root}: it has not answered")

    scene = Scene(tmp_path, iter([]), threads=Hanging())
    tries = OFFER_ATTEMPTS + 2
    times = iter([0.0] * tries)
    monkeypatch.setattr(outputs, "monotonic", lambda: next(times, outputs.OUTPUT_WAIT_S + 1))
    scene.collect()

    assert scene.is_done
    assert scene.kept == [False]
    assert "it has not answered" in scene.offered[-1].message


def test_what_is_kept_in_a_store_that_hangs_has_a_thread_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a few such trials would keep the node from starting others."""
    hang = Hanging()
    monkeypatch.setattr(outputs, "stage", hang)
    scene = Scene(tmp_path, iter([]))

    asyncio.run(hang.leaves_threads_to_others(scene.collector.collect(scene.held, EXITED)))

    assert scene.is_done
