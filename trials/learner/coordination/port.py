"""Where a coordinator comes in: a learner's socket, its source of data, and the hook that tells what was learnt."""

from __future__ import annotations

import fcntl
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trials.arguments import seconds
from trials.files import read_record, to_json, write_atomically
from trials.learner.coordination.door import Door
from trials.learner.coordination.driven_task import RECORD_BYTES, DrivenTask
from trials.learner.coordination.frames import learner_name, listen, record_path, require_own, socket_name
from trials.learner.coordination.messages import (
    VERSION,
    Close,
    Demand,
    GetData,
    Learn,
    LearnInfo,
    RefusedError,
    Request,
    Resource,
    Start,
)
from trials.learner.hooks import Hook
from trials.learner.priorities import checked_priorities
from trials.learner.training_loop import ASKED_TO_STOP, LoopStopped, TrainingLoop
from trials.processes.identity import identity
from trials.session import Trial

LOCK_WAIT_S = 30.0  # for the learner of the same name that was killed, and its workers
LOCK_PAUSE_S = 0.05
HOLDER_BYTES = 300  # of a lock's text
GONE_AFTER_S = 600.0  # of a coordinator to which the learner had said that it has ended, as that waits for a learner
LOOK_S = 0.2  # at whether the trial is asked to stop, while a coordinator is waited for
PRIORITIES_LIMIT = 1 << 20  # of one iteration
CLOSED = "closed by its coordinator"
Make = Callable[[list[Any]], Sequence[Any]]


class NameTakenError(RuntimeError):
    """Another process is the learner of this name."""


class CoordinatorGoneError(TimeoutError):
    """The learner had ended, goes on from before its end, and nobody gives it the batches in between any more."""


class LearnerPort:
    """A coordinator drives this learner: it gives the task and the data, and is told what was learnt.

    ``place`` is a folder that the coordinator knows, and ``name`` the learner's in it; a trial's is its experiment and
    number where it is not given, so that its next attempt has it again. The port is there until ``close``, the end of
    the ``with`` or of the process. One process at a time is the learner of a name, and one coordinator is heard.
    """

    def __init__(self, trial: Trial, place: str | os.PathLike[str], *, name: str | None = None) -> None:
        self.trial = trial
        self.place = Path(place).absolute()
        self.name = learner_name(name or f"{trial.experiment_id}-{trial.number}")
        require_own(self.place)
        self._owner = os.getpid()
        self._lock = _locked(self.place / f"{self.name}.lock", self.name)
        self._task = DrivenTask()
        self._read_record()
        self._samples: list[Any] = []
        self._priorities: list[float] = []
        self._changed = threading.Condition()
        self._is_gone = False
        self._heard_at = -math.inf  # a request about the task
        self._has_given = self._has_told = False  # data to the loader; what was learnt of it to the coordinator
        self._door = Door(listen(self.place, self.name), self._changed, self._answer)

    # ── for the script ──────────────────────────────────────────────────────────────────────────
    def wait_for_task(self, timeout_s: float | None = None) -> Mapping[str, Any] | None:
        """The ``info`` that the coordinator has started this learner with; None where the trial is asked to stop.

        A learner that was killed has it at once. TimeoutError when there is none in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + seconds(timeout_s, what="timeout_s")
        with self._changed:
            while self._task.task_id is None:
                if self._is_gone:
                    raise RuntimeError("the learner's port was closed; wait for a task inside its `with` block")
                if self._is_asked_to_stop():
                    return None
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"no coordinator has started {self.name!r} in {self.place} in {timeout_s:g} s")
                self._wait()
            return self._task.info

    def data_source(self, make: Make = list) -> PortSource:
        """For ``AsyncDataLoader``: asks the coordinator for a batch. ``make`` gets what that sent, a list of JSON
        values, and returns samples, or functions that the loader's workers run, such as ``references`` does."""
        return PortSource(self, make)

    def hook(self) -> Hook:
        """For the ``Learner``: tells what every iteration has learnt, ends it when the coordinator does, and says
        when it has finished."""
        return Driven(self)

    def close(self) -> None:
        """The coordinator sees the learner go; what it has not been told lies in the record of the task.

        In a fork nothing: the socket is that of the process that the fork came from.
        """
        if self._is_gone or self._owner != os.getpid():
            return
        with self._changed:
            self._is_gone = True
            self._door.ring()
            if self._has_given and not self._has_told:
                sys.stderr.write(
                    f"learner {self.name!r} has told its coordinator nothing of what it learnt, nor that it has ended: "
                    "give the Learner hooks=[port.hook()]\n"
                )
        self._door.close()
        (self.place / socket_name(self.name)).unlink(missing_ok=True)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    # ── what a coordinator is answered, in the thread of the door ───────────────────────────────
    def _answer(self, request: Request, is_last: bool) -> dict[str, Any] | None:  # noqa: FBT001  # as the door calls it
        task = self._task
        if isinstance(request, Resource):
            return self._resource()
        self._heard_at = time.monotonic()
        match request:
            case Start():
                if task.start(request):
                    self._write_record(undo=task.forget)
                    self._changed.notify_all()
            case GetData():
                has_news = task.has_news(request)
                self._changed.notify_all()  # what it has taken makes room
                return task.news() if has_news or is_last else None
            case Learn():
                task.learn(request)
                self._changed.notify_all()
            case Close():
                if task.close(request):
                    self._write_record(undo=task.reopen)
                    self._changed.notify_all()
        return {"task_id": task.task_id, "step": task.step}

    def _resource(self) -> dict[str, Any]:
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return {
            "version": VERSION,
            "name": self.name,
            "pid": os.getpid(),
            "task_id": self._task.task_id,
            "step": self._task.step,
            "cpus": len(os.sched_getaffinity(0)),
            "gpus": [device for device in devices.split(",") if device],
            "rank": int(os.environ.get("RANK", "0")),
            "world_size": int(os.environ.get("WORLD_SIZE", "1")),
        }

    # ── what the training does ──────────────────────────────────────────────────────────────────
    def data_for(self, batch_size: int, iteration: int) -> list[Any] | None:
        """Of the coordinator, waiting for it; None where there is no more. LoopStopped where the learner is to end.

        CoordinatorGoneError where the learner had ended already, and nobody asks for it for GONE_AFTER_S.
        """
        asked_at = time.monotonic()
        with self._changed:
            self._task.want(Demand(batch_size=batch_size, cur_learner_iter=iteration))
            self._door.ring()
            there, data = self._task.taken()
            while not there:
                if self._task.is_closed or self._is_gone:
                    raise LoopStopped(CLOSED)
                if self._is_asked_to_stop():
                    raise LoopStopped(ASKED_TO_STOP)
                if time.monotonic() - max(asked_at, self._heard_at) > GONE_AFTER_S:
                    self._require_not_ended(iteration)
                self._wait()
                there, data = self._task.taken()
            self._has_given = self._has_given or data is not None
            return data

    def _require_not_ended(self, iteration: int) -> None:
        """A coordinator waits for no learner that has said that it has ended."""
        ended_at = self._task.had_finished_at
        if ended_at is not None:
            raise CoordinatorGoneError(
                f"learner {self.name!r} had ended after {ended_at} iterations, and wants the batch of iteration "
                f"{iteration} again, as where its newest checkpoint is damaged; but no coordinator of task "
                f"{self._task.task_id!r} was heard for {GONE_AFTER_S:g} s: begin another task in another folder"
            )

    def remember(self, samples: Sequence[Any], priorities: Sequence[float]) -> None:
        """For the next ``tell``. ValueError past PRIORITIES_LIMIT."""
        samples, priorities = checked_priorities(samples, priorities)
        if len(self._samples) + len(samples) > PRIORITIES_LIMIT:
            raise ValueError(
                f"more than {PRIORITIES_LIMIT} priorities in one iteration: does the learner have the hook?"
            )
        self._samples += samples
        self._priorities += priorities

    def tell(self, number: int, metrics: Mapping[str, Any]) -> None:
        """What iteration ``number``, counted from 1, has learnt. It waits while 16 MiB of that were not taken."""
        self._has_told = True
        info = LearnInfo(
            number=number,
            metrics={name: float(value) for name, value in metrics.items()},
            samples=self._samples,
            priorities=self._priorities,
        )
        self._samples, self._priorities = [], []
        with self._changed:
            while not self._task.has_room() and not self._task.is_closed and not self._is_asked_to_stop():
                self._wait()
            self._task.add(info)
            self._door.ring()

    def end(self, *, finished: bool) -> None:
        """The record says how it ended when this returns."""
        with self._changed:
            self._task.end(finished=finished)
            self._write_record(undo=lambda: None)
            self._door.ring()

    @property
    def is_closed(self) -> bool:
        """Whether the coordinator wants it to end."""
        with self._changed:
            return self._task.is_closed

    def state_dict(self) -> dict[str, Any]:
        with self._changed:
            return self._task.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        with self._changed:
            self._task.load_state_dict(state)

    def _wait(self) -> None:
        if self._door.failure is not None:
            raise RuntimeError("the learner's port has failed") from self._door.failure
        self._changed.wait(LOOK_S)

    def _is_asked_to_stop(self) -> bool:
        return self.trial.should_stop()

    # ── the record ──────────────────────────────────────────────────────────────────────────────
    def _read_record(self) -> None:
        path = record_path(self.place, self.name)
        try:
            self._task.load_record(read_record(str(path), limit=RECORD_BYTES))
        except FileNotFoundError:
            return
        except ValueError as error:
            raise ValueError(f"{path} is no record of a task ({error}); move it away to begin anew") from error

    def _write_record(self, *, undo: Callable[[], None]) -> None:
        """RefusedError, and nothing has changed, where it cannot be written."""
        try:
            write_atomically(str(record_path(self.place, self.name)), to_json(self._task.record()), durable=True)
        except OSError as error:
            undo()
            raise RefusedError("failed", f"the learner could not write that down: {error}") from error


class PortSource:
    """A data source that asks the coordinator; priorities of its samples go back the same way."""

    fingerprint = "the coordinator of a learner"

    def __init__(self, port: LearnerPort, make: Make) -> None:
        self._port, self._make = port, make

    def __call__(self, batch_size: int, cur_learner_iter: int) -> Sequence[Any] | None:
        data = self._port.data_for(batch_size, cur_learner_iter)
        return None if data is None else self._make(data)

    def update_priorities(self, samples: Sequence[Any], priorities: Sequence[float]) -> None:
        self._port.remember(samples, priorities)


class Driven(Hook):
    """Tells the coordinator, before a checkpoint is saved: the checkpoint holds what it has not taken.

    That the learner has ended is told once its last checkpoint is on the disk.
    """

    priority = 60

    def __init__(self, port: LearnerPort) -> None:
        self._port = port

    def before_run(self, learner: TrainingLoop) -> None:
        self._end_if_closed(learner)

    def after_iteration(self, learner: TrainingLoop) -> None:
        self._port.tell(learner.step, learner.metrics)
        self._end_if_closed(learner)

    def after_run(self, learner: TrainingLoop) -> None:
        if learner.stop_reason != ASKED_TO_STOP:  # then it goes on later
            # Whoever has said that it has ended is given nothing more: killed then, it must not have to learn again.
            learner.trial.wait_for_checkpoint()
            self._port.end(finished=learner.stop_reason is None)

    def _end_if_closed(self, learner: TrainingLoop) -> None:
        if self._port.is_closed:
            learner.stop(CLOSED)

    def state_dict(self) -> dict[str, Any]:
        return self._port.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._port.load_state_dict(state)


def _locked(path: Path, name: str) -> int:
    """NameTakenError when another process has it still after LOCK_WAIT_S, and at once where this one has it.

    Between containers of one machine, too, which share its locks; other machines do not reach the socket beside it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    own = _own_identity()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, HOLDER_BYTES, 0).decode(errors="replace").strip()
            if time.monotonic() > deadline or holder == own:
                os.close(descriptor)
                raise NameTakenError(
                    f"process {holder.partition(' ')[0]} is learner {name!r} in {path.parent}; choose another name, or "
                    "end it"
                ) from None
            time.sleep(LOCK_PAUSE_S)
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, own.encode(), 0)
            return descriptor


def _own_identity() -> str:
    """Of this process and no other of the machine: in another container, one may have the same pid."""
    own = identity(os.getpid())
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    return f"{own['pid']} {own['start_time']} {namespace} {own['boot_id']}"
