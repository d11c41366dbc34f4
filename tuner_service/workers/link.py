"""The service's side of one algorithm worker: one process, from its start to its end.

Four threads: the writer drains what is told into frames, the reader turns answers into events, the log keeps what
the worker prints, and the waiter reports the worker's death after everything that it had said.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from trials.wire.texts import valid_json
from tuner_service.dispatcher.commands import (
    AlgorithmFaulted,
    QueueAnswered,
    SnapshotTaken,
    WorkerDied,
    WorkerEvent,
    WorkerPonged,
    WorkerProgressed,
    WorkerReady,
)
from tuner_service.dispatcher.items import (
    MetricsReported,
    PauseAdvised,
    Queue,
    QueueItem,
    ResultsImported,
    SearchSpaceUpdated,
    StopAdvised,
)
from tuner_service.domain.errors import LimitExceededError, RowsDamagedError, StorageError, UnavailableError
from tuner_service.workers.messages import (
    PROGRESS_S,
    Answered,
    Choosing,
    Folded,
    FromWorker,
    HistoryEnd,
    Initialize,
    Initialized,
    LoadSnapshot,
    Ping,
    Pong,
    QueueFaulted,
    SnapshotMade,
    SnapshotRefused,
    Terminate,
    Told,
    ToWorker,
    command_to_wire,
    messages_from_wire,
)
from tuner_service.workers.protocol import EXIT_NO_PIPES, FrameError, encode_frames, read_frame
from tuner_service.workers.starting import WorkerProcess, end_worker, spawn_worker
from tuner_service.workers.worker_log import WorkerLog

BATCH_ITEMS = 256  # items of one frame
UNANSWERED_LIMIT = 1_024  # items of one queue that the worker holds; the others wait here
PENDING_LIMIT = 1_000_000  # items that wait here; tell() raises LimitExceededError beyond
STOP_GRACE_S = 2.0  # a worker that was told to end and has not is killed
SILENT_END_S = 5.0  # for a worker that closed its side of the pipe to end: it can answer nothing any more
KEEPER_SAYS = "the algorithm worker was ended: "  # begins what its keeper writes; as in trials.processes.keeping
LOG_DRAIN_S = 0.5  # for what an ended worker printed; a process that it left behind may hold that open
DRAIN_S = 5.0  # how long the frames of a worker that died are still read

LARGE = ResultsImported | SearchSpaceUpdated

Snapshots = Mapping[Queue, tuple[int, str]]
History = Mapping[Queue, Iterable[QueueItem]]


def _frames_of(batch: list[ToWorker]) -> Iterator[list[ToWorker]]:
    """What is encoded at once: no other thread runs meanwhile, so that what may be a megabyte goes by itself."""
    together: list[ToWorker] = []
    for command in batch:
        if isinstance(command, Told) and isinstance(command.item, LARGE):
            if together:
                yield together
            yield [command]
            together = []
        else:
            together.append(command)
    if together:
        yield together


def _is_unread(item: QueueItem) -> bool:
    return isinstance(item, MetricsReported) and item.unread > 0


def _not_there(line: int) -> MetricsReported:
    raise StorageError(f"line {line} was told without its reports")


class WorkerLink:
    """One worker process of one experiment.

    ``on_event`` is called from threads of the link, one event at a time. It must not wait for a thread that may be
    calling ``stop`` or ``kill``: once one of these has returned, no event comes any more.
    """

    def __init__(  # noqa: PLR0913  # two names, and what is the service's business
        self,
        *,
        experiment_id: str,
        generation: int,
        log_path: Path,
        now: Callable[[], float],
        on_event: Callable[[WorkerEvent], None],
        on_refused: Callable[[Queue, int], None] = lambda _queue, _line: None,
        reports_on: Callable[[int], MetricsReported] = _not_there,
        spawn: Callable[[Path], WorkerProcess] = spawn_worker,
    ) -> None:
        """``spawn`` gives a process of ``tuner_service.workers.worker``: a fork, or one that is started anew.

        ``on_refused`` is told of a snapshot, by its line, that the algorithm could not load; its worker ends then.
        ``reports_on`` reads the reports of a line that was told without them, in a thread of the link.
        """
        self._experiment_id, self._generation = experiment_id, generation
        self._log_path, self._now, self._on_event, self._spawn = log_path, now, on_event, spawn
        self._on_refused, self._reports_on = on_refused, reports_on
        self.choice = ""  # what ``auto`` does, and why, as it said last; any thread
        self._gate = threading.RLock()  # held while an event comes out
        self._closed = self._begun = False
        self._wake = threading.Condition()
        self._pending: dict[Queue, deque[QueueItem]] = {name: deque() for name in Queue}
        self._unanswered = dict.fromkeys(Queue, 0)
        self._read_lines: set[int] = set()  # told without their reports, which were read, and not answered yet
        self._faulted: set[Queue] = set()
        self._progress_told_at: dict[Queue, float] = {}
        self._progress_every_s = PROGRESS_S / 2
        self._ready = self._ping_wanted = self._ending = self._end_sent = False
        self._broke = self._damage = ""
        self._process: WorkerProcess | None = None
        self._threads: list[threading.Thread] = []
        self._reader: threading.Thread | None = None
        self._log: WorkerLog | None = None
        self._killer: threading.Timer | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    # ── for the service ─────────────────────────────────────────────────────────────────────────
    def begin(self) -> None:
        """Its turn to be started has come: from here on the time that this takes counts."""
        self._begun = True

    def start(self, command: Initialize, *, snapshots: Snapshots, history: History) -> None:
        """Start the process and return; WorkerReady says that it has folded the history. Once in a link's life.

        ``history``: the items after each queue's snapshot that were answered, in line order; read in a thread of the
        link. Raises OSError where no process can be started, and RuntimeError where no thread can: ``kill`` it then.
        """
        # Its clock is another one: of what it tells in time nothing is to be left out.
        self._progress_every_s = command.progress_every_s / 2
        process = self._process = self._spawn(self._log_path.parent)
        if self._closed:  # it was told to end meanwhile, when there was nothing to be ended yet
            self._end()
        self._log = WorkerLog(cast("BinaryIO", process.stderr), self._log_path)
        name = f"worker {self._experiment_id}/{self._generation}"
        steps = self._steps(command, snapshots, history)
        self._reader = threading.Thread(target=self._read, args=(process,), name=f"{name} reader", daemon=True)
        writer = threading.Thread(target=self._write, args=(process, steps), name=f"{name} writer", daemon=True)
        waiter = threading.Thread(target=self._wait, args=(process,), name=f"{name} waiter", daemon=True)
        for thread in (self._log, self._reader, writer, waiter):
            thread.start()
            self._threads.append(thread)

    def tell(self, queue: Queue, item: QueueItem) -> None:
        """Put ``item`` at the end of what the worker has to answer; returns at once. Ignored once it has ended."""
        with self._wake:
            if len(self._pending[queue]) >= PENDING_LIMIT:
                raise LimitExceededError(f"more than {PENDING_LIMIT} items wait for the {queue.value} worker")
            if queue not in self._faulted and not self._ending:
                self._pending[queue].append(item)
                self._wake.notify_all()

    def ping(self) -> None:
        """Ask for WorkerPonged; goes ahead of waiting items. One that is not started yet answers at once.

        While it waits for its turn that is WorkerProgressed, so that what holds up the starts of others is not held
        against it.
        """
        if self._process is None:
            names: dict[str, Any] = {"experiment_id": self._experiment_id, "generation": self._generation}
            if self._begun:
                self._emit(WorkerPonged(at=self._now(), **names))
            else:
                self._emit(WorkerProgressed(at=self._now(), queue=Queue.TUNER, **names))
            return
        with self._wake:
            self._ping_wanted = True
            self._wake.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether no event comes out any more."""
        return self._closed

    def fail(self, exc: Exception) -> None:
        """Say that it could not be started, as the death of its worker, unless it was told to end; and end it."""
        damage = str(exc) if isinstance(exc, RowsDamagedError) else ""
        self._die(f"the algorithm worker could not be started: {exc}", damage=damage)
        self.kill()

    def stop(self) -> None:
        """Let the process end; no event comes out any more. Returns at once; safe to repeat."""
        self._close()
        process = self._process
        if process is None or process.poll() is not None:
            return
        with self._wake:
            if self._killer is None:
                self._killer = threading.Timer(STOP_GRACE_S, self._end)
                self._killer.daemon = True
                self._killer.start()

    def kill(self) -> None:
        """End the process now, with all that it started; no event comes out any more. Returns at once; repeatable."""
        self._close()
        self._end()

    def _end(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        with self._wake:
            if self._killer is not None:
                self._killer.cancel()
            self._killer = end_worker(self._process)

    def join(self, timeout_s: float) -> bool:
        """Wait until the process and the link's threads have ended; whether they have."""
        deadline = time.monotonic() + timeout_s
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # ── the writer ──────────────────────────────────────────────────────────────────────────────
    def _write(self, process: WorkerProcess, steps: Iterator[ToWorker]) -> None:
        stream = cast("BinaryIO", process.stdin)
        done = False
        try:
            self._send_history(stream, steps)
            self._send_live(stream)
            done = True
        except BrokenPipeError:
            done = True  # it died; the waiter says so
        except FrameError as error:
            self._broke = f"it could not be told what it has to know: {error}"
        except RowsDamagedError as error:
            self._broke, self._damage = f"its history could not be read: {error}", str(error)
        finally:
            if not done:  # reading the history failed, or the frame did: nothing more can be answered
                self._broke = self._broke or "its history could not be read; see the service's log"
                self._end()
            with contextlib.suppress(OSError):  # what was not flushed has nowhere to go
                stream.close()

    def _steps(self, command: Initialize, snapshots: Snapshots, history: History) -> Iterator[ToWorker]:
        yield command
        for name in Queue:
            if name is Queue.ASSESSOR and command.assessor is None:
                continue
            if name in snapshots:
                line, state = snapshots[name]
                yield LoadSnapshot(queue=name, line=line, state=state)
            for item in history.get(name, ()):
                yield Told(queue=name, item=item)
            yield HistoryEnd(queue=name)

    def _send_history(self, stream: BinaryIO, steps: Iterator[ToWorker]) -> None:
        while batch := list(islice(steps, BATCH_ITEMS)):
            batch = [step for step in batch if not (isinstance(step, Told) and step.queue in self._faulted)]
            told = [step.queue for step in batch if isinstance(step, Told)]
            while not self._book(told):
                self._send(stream, [Ping()])
            if self._ending:
                return
            self._send(stream, batch)

    def _book(self, told: list[Queue]) -> bool:
        """Wait for room for these items and count them as sent; False when a ping has to go first."""
        with self._wake:
            self._wake.wait_for(lambda: self._ending or self._ping_wanted or all(map(self._room, set(told))))
            if self._ping_wanted:
                self._ping_wanted = False
                return False
            for name in told:
                self._unanswered[name] += 1
            return True

    def _room(self, name: Queue) -> int:
        """How many items of the queue may be sent; one that has faulted swallows everything."""
        return BATCH_ITEMS if name in self._faulted else max(0, UNANSWERED_LIMIT - self._unanswered[name])

    def _send_live(self, stream: BinaryIO) -> None:
        while batch := self._next_batch():
            self._send(stream, list(map(self._whole, batch)))

    def _whole(self, command: ToWorker) -> ToWorker:
        """With its reports, where they are in their rows alone."""
        if not isinstance(command, Told) or not _is_unread(command.item):
            return command
        return Told(queue=command.queue, item=self._reports_on(command.item.line))

    def _next_batch(self) -> list[ToWorker]:
        """What to send next, at least one command; waits for it. Nothing once the end was sent.

        One whose reports are to be read is the last, so that those of one line are in memory at a time.
        """
        with self._wake:
            self._wake.wait_for(lambda: self._ending or self._ping_wanted or any(map(self._sendable, Queue)))
            if self._ending:
                self._ping_wanted = False
                ended, self._end_sent = self._end_sent, True
                return [] if ended else [Terminate()]
            batch: list[ToWorker] = [Ping()] if self._ping_wanted else []
            self._ping_wanted = False
            for name in Queue:
                for _ in range(min(self._sendable(name), BATCH_ITEMS)):
                    item = self._pending[name].popleft()
                    batch.append(Told(queue=name, item=item))
                    self._unanswered[name] += 1
                    if _is_unread(item):
                        self._read_lines.add(item.line)
                        return batch
            return batch

    def _sendable(self, name: Queue) -> int:
        """How many live items may be sent: none before the worker is ready, so that no answer precedes that."""
        return min(len(self._pending[name]), self._room(name)) if self._ready or self._faulted else 0

    def _send(self, stream: BinaryIO, batch: list[ToWorker]) -> None:
        for together in _frames_of(batch):
            for frame in encode_frames([command_to_wire(command) for command in together]):
                stream.write(frame)
        stream.flush()

    # ── the reader ──────────────────────────────────────────────────────────────────────────────
    def _read(self, process: WorkerProcess) -> None:
        stream = cast("BinaryIO", process.stdout)
        try:
            while (objects := read_frame(stream, text=valid_json)) is not None:
                for message in messages_from_wire(objects):
                    self._hear(message)
            process.wait(SILENT_END_S)
        except FrameError as error:
            if process.poll() is None:  # a frame cut short by its death needs no words of its own
                self._broke = f"it sent what is no answer: {error}"
                self._end()
        except RowsDamagedError as error:
            self._broke, self._damage = f"what it judged could not be read: {error}", str(error)
            self._end()
        except (StorageError, UnavailableError) as error:
            self._broke = f"what it judged could not be read: {error}"
            self._end()
        except subprocess.TimeoutExpired:
            self._broke = "an algorithm closed the pipe that the worker answers on"
            self._end()
        finally:
            stream.close()

    def _hear(self, message: FromWorker) -> None:
        at = self._now()
        names: dict[str, Any] = {"experiment_id": self._experiment_id, "generation": self._generation}
        match message:
            case Initialized():
                self._emit(WorkerReady(at=at, asks_ahead=message.asks_ahead, **names))
                with self._wake:
                    self._ready = True
                    self._wake.notify_all()
            case Pong():
                self._emit(WorkerPonged(at=at, **names))
            case Choosing():
                self.choice = message.text
            case Folded():
                self._answered(message.queue, message.count)
                self._tell_progress(message.queue, at)
            case Answered():
                self._answered(message.queue, len(message.answers))
                read = self._read_again(message)
                self._emit(QueueAnswered(at=at, queue=message.queue, answers=message.answers, read=read, **names))
            case SnapshotMade():
                self._emit(SnapshotTaken(at=at, queue=message.queue, line=message.line, state=message.state, **names))
            case SnapshotRefused():
                self._on_refused(message.queue, message.line)
                self._broke = f"a snapshot of its {message.queue.value} could not be loaded: {message.why}"
                self._end()
            case QueueFaulted():
                self._give_up(message.queue)
                told = message.faulted
                self._emit(
                    AlgorithmFaulted(
                        at=at,
                        queue=message.queue,
                        line=told.line,
                        fault=told.fault,
                        message=told.message,
                        traceback=told.traceback,
                        **names,
                    )
                )

    def _read_again(self, message: Answered) -> tuple[MetricsReported, ...]:
        """The lines at which it advises something, of those that whoever told them has no reports of."""
        with self._wake:
            lines = self._read_lines & {answer.line for answer in message.answers}
            self._read_lines -= lines
        advised = (a.line for a in message.answers if isinstance(a, StopAdvised | PauseAdvised) and a.line in lines)
        return tuple(map(self._reports_on, advised))

    def _tell_progress(self, name: Queue, at: float) -> None:
        """Not more often than there is use of it: history is folded a thousand lines at a time."""
        told_at = self._progress_told_at.get(name)
        if told_at is None or abs(at - told_at) >= self._progress_every_s:
            self._progress_told_at[name] = at
            names: dict[str, Any] = {"experiment_id": self._experiment_id, "generation": self._generation}
            self._emit(WorkerProgressed(at=at, queue=name, **names))

    def _answered(self, name: Queue, count: int) -> None:
        with self._wake:
            self._unanswered[name] -= count
            self._wake.notify_all()

    def _give_up(self, name: Queue) -> None:
        with self._wake:
            self._faulted.add(name)
            self._pending[name].clear()
            self._wake.notify_all()

    # ── the waiter ──────────────────────────────────────────────────────────────────────────────
    def _wait(self, process: WorkerProcess) -> None:
        code = process.wait()
        log, reader = self._log, self._reader
        if log is None or reader is None:
            return
        reader.join(DRAIN_S)
        log.join(LOG_DRAIN_S)
        with self._wake:
            self._ending = True
            self._wake.notify_all()
            if self._killer is not None:
                self._killer.cancel()
        tail = log.tail
        how = "; ".join(part for part in (_how_it_ended(code, tail), self._broke) if part)
        self._die(f"{how}\nits last output:\n{tail}" if tail else how, damage=self._damage)

    def _die(self, detail: str, *, damage: str) -> None:
        """The last event."""
        names: dict[str, Any] = {"experiment_id": self._experiment_id, "generation": self._generation}
        with self._gate:
            self._emit(WorkerDied(at=self._now(), detail=detail, damage=damage, **names))
            self._close()

    # ── the gate ────────────────────────────────────────────────────────────────────────────────
    def _emit(self, event: WorkerEvent) -> None:
        with self._gate:
            if not self._closed:
                self._on_event(event)

    def _close(self) -> None:
        with self._gate:
            self._closed = True
        with self._wake:
            self._ending = True
            self._wake.notify_all()


def _how_it_ended(code: int, tail: str) -> str:
    """In a sentence; its keeper's, where that has ended it."""
    said = [line for line in tail.splitlines() if line.startswith(KEEPER_SAYS)]
    if said:
        return said[-1]
    if code < 0:
        return f"the algorithm worker was killed by signal {-code} ({_signal_name(-code)})"
    why = ": an algorithm has closed its descriptors" if code == EXIT_NO_PIPES else ""
    return f"the algorithm worker ended with exit code {code}{why}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
