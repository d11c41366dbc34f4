"""The algorithm worker's process: ``python -m tuner_service.workers.worker``, frames on its standard input and output.

The main thread reads frames and answers Ping at once; one thread folds the tuner's queue and one the assessor's.
The process ends with its input, at once and whatever an algorithm is doing, so that none outlives its service.
What algorithms print goes to standard error.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, NoReturn, TypeVar

from trials.wire.log_lines import LogForm, write_line
from tuner_service.dispatcher.items import Answer, Queue, SuggestionRequested, TrialEnded
from tuner_service.global_generators import alone
from tuner_service.workers.building import add_code_folder, build_advisor_fold, build_assessor_fold, build_tuner_fold
from tuner_service.workers.faults import MESSAGE_LIMIT, Faulted, guarded
from tuner_service.workers.folds.advisor import AdvisorFold
from tuner_service.workers.folds.folding import AssessorFold, TunerFold
from tuner_service.workers.messages import (
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
    command_from_wire,
    message_to_wire,
)
from tuner_service.workers.protocol import EXIT_NO_PIPES, FrameError, encode_frames, read_frame

ANSWER_DELAY_S = 0.01  # answers wait this long for others while there is more to fold
BATCH_ITEMS = 1_000  # folded history items that are counted in one message
SNAPSHOT_BYTES_PER_LINE = 2_048  # a larger snapshot is taken less often, so that its cost a line stays bounded
PROGRESS_EVERY = 10_000  # lines of history between two notes in the worker's log
EXIT_BAD_FRAME = 3
AUTO = "auto"  # the algorithm that chooses among others as it goes
FIRST_OWN_DESCRIPTOR = 500  # of the pipes: far from those that a program closes, or is given again, by habit

Fold = TunerFold | AssessorFold | AdvisorFold
QueueCommand = LoadSnapshot | Told | HistoryEnd
Item = TypeVar("Item")


class Outbox:
    """Sends messages whole, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, *messages: FromWorker) -> None:
        frames = encode_frames([wire for message in messages for wire in message_to_wire(message)])
        with self._lock:
            try:
                for frame in frames:
                    self._stream.write(frame)
                self._stream.flush()
            except BrokenPipeError:
                leave(0)  # the service is gone
            except (OSError, ValueError) as error:
                _note(f"the worker cannot answer any more, an algorithm has closed its descriptors: {error}")
                leave(EXIT_NO_PIPES)


class QueueThread(threading.Thread):
    """Folds one queue. ``on_ready`` is called once its history is folded and nothing was raised.

    It is told whether suggestions of the queue may be asked for ahead.
    """

    def __init__(
        self,
        name: Queue,
        outbox: Outbox,
        *,
        build: Callable[[], Fold],
        on_ready: Callable[[bool], None],
        command: Initialize,
    ) -> None:
        super().__init__(name=f"{name.value} queue", daemon=True)
        self.commands: queue.SimpleQueue[QueueCommand] = queue.SimpleQueue()  # the service bounds what it sends
        self._queue, self._outbox, self._build, self._on_ready = name, outbox, build, on_ready
        self._workers = command.workers
        self._progress_every_s = command.progress_every_s
        self._snapshot_every = self._next_snapshot = command.snapshot_every
        asked = command.assessor if name is Queue.ASSESSOR else command.advisor or command.tuner
        self._of_user = asked is not None and asked.class_name is not None
        # An assessor of a user's may draw from generators that the tuner has seeded for itself.
        self._in_turn: contextlib.AbstractContextManager[None] = (
            alone if self._of_user and name is Queue.ASSESSOR else contextlib.nullcontext()
        )
        self._chooses = name is Queue.TUNER and (command.advisor or command.tuner).name == AUTO
        self._choice = ""  # as it was told last
        self._live = False
        self._pool: ThreadPoolExecutor | None = None
        self._taken: deque[QueueCommand] = deque()  # from ``commands``, and not performed yet
        self._answers: list[Answer] = []
        self._answers_since = 0.0
        self._progress_told_at = time.monotonic()
        self._folded = 0  # items of history not yet counted to the service
        self._history = 0
        self._line = 0
        self._lines_since_snapshot = 0

    def run(self) -> None:
        with self._in_turn:
            fold = guarded(self._build, line=0)
        if not isinstance(fold, Faulted):
            fold.on_report = self._tell_progress
        while not isinstance(fold, Faulted):
            command = guarded(partial(self._next_command, fold), line=self._line)
            if isinstance(command, Faulted):
                fold = command
                break
            done = guarded(partial(self._perform, command, fold), line=_line_of(command))
            if isinstance(done, Faulted):
                if isinstance(command, LoadSnapshot):
                    self._refuse(command, done)
                fold = done
        if isinstance(guarded(self._flush, line=self._line), Faulted):
            self._answers = []  # what cannot be sent is what failed
        self._outbox.send(QueueFaulted(queue=self._queue, faulted=fold))
        self._swallow()

    def _next_command(self, fold: Fold) -> QueueCommand:
        """Waits for it. Requests, or ends of trials, that are there together are begun so, where the tuner can."""
        if not self._taken:
            self._taken.append(self.commands.get())
            if self._workers > 1 and isinstance(fold, TunerFold):
                if fold.suggests_in_parallel:
                    self._begin_together(_request_in, fold.suggest_ahead)
                if fold.observes_in_parallel:
                    self._begin_together(_end_in, fold.observe_ahead)
        return self._taken.popleft()

    def _begin_together(
        self, item_in: Callable[[QueueCommand], Item | None], begin: Callable[[Sequence[Item], Executor], None]
    ) -> None:
        """Of the command that was taken, and those behind it, as long as there is such an item in them."""
        items = [item for item in map(item_in, self._taken) if item is not None]
        if len(items) < len(self._taken):
            return
        while len(items) < self._workers and not self.commands.empty():
            self._taken.append(self.commands.get())
            item = item_in(self._taken[-1])
            if item is None:
                break
            items.append(item)
        if len(items) > 1:
            self._pool = self._pool or ThreadPoolExecutor(self._workers, thread_name_prefix="tuner")
            begin(items, self._pool)

    def _perform(self, command: QueueCommand, fold: Fold) -> None:
        match command:
            case LoadSnapshot():
                fold.load_state_dict(json.loads(command.state))
                self._line = command.line
            case HistoryEnd():
                self._live = True
                self._flush()
                self._on_ready(isinstance(fold, TunerFold) and fold.asks_ahead)
            case Told():
                with self._in_turn:
                    answer = fold.take(command.item)  # type: ignore[arg-type]  # the service routes by queue
                self._line = command.item.line
                self._lines_since_snapshot += 1
                self._count(answer)
                if self._live and self._chooses and isinstance(command.item, SuggestionRequested):
                    self._tell_choice(fold)
        self._flush_when_due()
        # What was begun ahead may be in the tuner already: a snapshot then would hold more than its line.
        if self._live and self._lines_since_snapshot >= self._next_snapshot and not self._taken:
            self._take_snapshot(fold)

    def _refuse(self, command: LoadSnapshot, faulted: Faulted) -> NoReturn:
        """No fault of the algorithm: other code may have made it, and what it holds can be told."""
        _note(f"a snapshot of the {self._queue.value} is of no use: {faulted.message}\n{faulted.traceback}")
        self._outbox.send(SnapshotRefused(queue=self._queue, line=command.line, why=faulted.message))
        self._swallow()

    def _swallow(self) -> NoReturn:
        while True:  # what still comes is nobody's: this worker will be replaced
            self.commands.get()

    def _count(self, answer: Answer) -> None:
        if self._live:
            if not self._answers:
                self._answers_since = time.monotonic()
            self._answers.append(answer)
            return
        self._folded += 1
        self._history += 1
        if self._history % PROGRESS_EVERY == 0:
            _note(f"{self._queue.value} queue: {self._history} lines of history folded, up to line {self._line}")

    def _tell_choice(self, fold: Fold) -> None:
        """For people: an error in it costs only what they would be told."""
        choice = guarded(lambda: fold.choice[:MESSAGE_LIMIT], line=self._line)
        if isinstance(choice, Faulted):
            _note(f"what auto does cannot be told: {choice.message}\n{choice.traceback}")
            self._chooses = False
        elif choice != self._choice:
            self._choice = choice
            self._outbox.send(Choosing(text=choice))

    def _flush_when_due(self) -> None:
        idle = self.commands.empty() and not self._taken
        if self._folded and (idle or self._folded >= BATCH_ITEMS or self._is_time_to_tell()):
            self._flush()
        if self._answers and (idle or time.monotonic() - self._answers_since >= ANSWER_DELAY_S):
            self._flush()

    def _is_time_to_tell(self) -> bool:
        return time.monotonic() - self._progress_told_at >= self._progress_every_s

    def _tell_progress(self) -> None:
        """Between two reports of an item: there may be thousands, and each takes what it takes."""
        if self._is_time_to_tell():
            self._progress_told_at = time.monotonic()
            self._outbox.send(Folded(queue=self._queue, count=0))

    def _flush(self) -> None:
        if self._folded:
            self._progress_told_at = time.monotonic()
            self._outbox.send(Folded(queue=self._queue, count=self._folded))
            self._folded = 0
        if self._answers:
            self._outbox.send(Answered(queue=self._queue, answers=tuple(self._answers)))
            self._answers = []

    def _take_snapshot(self, fold: Fold) -> None:
        """Errors here cost only the snapshot: without one, more is folded after a restart."""
        self._flush()
        self._lines_since_snapshot = 0
        text = guarded(lambda: _snapshot_text(fold, of_user=self._of_user), line=self._line)
        if text is None:
            self._next_snapshot = sys.maxsize  # this algorithm keeps none
            return
        if isinstance(text, Faulted):
            _note(f"no more snapshots of the {self._queue.value}: {text.message}\n{text.traceback}")
            self._next_snapshot = sys.maxsize
            return
        self._next_snapshot = max(self._snapshot_every, len(text) // SNAPSHOT_BYTES_PER_LINE)
        try:
            self._outbox.send(SnapshotMade(queue=self._queue, line=self._line, state=text))
        except FrameError as error:
            # What has grown so large is not worth being written out again and again, which takes several times as much.
            _note(f"no more snapshots of the {self._queue.value}: {error}")
            self._next_snapshot = sys.maxsize


class Worker:
    """Routes what the service sends."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._threads: dict[Queue, QueueThread] = {}
        self._ready = 0
        self._asks_ahead = False
        self._ready_lock = threading.Lock()

    def handle(self, command: Any) -> None:
        match command:
            case Initialize():
                self._initialize(command)
            case Ping():
                self._outbox.send(Pong())
            case Terminate():
                leave(0)
            case LoadSnapshot() | Told() | HistoryEnd():
                thread = self._threads.get(command.queue)
                if thread is None:
                    raise FrameError(f"the experiment has no {command.queue.value}")
                thread.commands.put(command)

    def _initialize(self, command: Initialize) -> None:
        if self._threads:
            raise FrameError("initialized twice")
        add_code_folder(command.code_folder)
        builds: dict[Queue, Callable[[], Fold]] = {Queue.TUNER: lambda: build_tuner_fold(command)}
        advisor, assessor = command.advisor, command.assessor
        if advisor is not None:
            builds[Queue.TUNER] = lambda: build_advisor_fold(command, advisor)
        elif assessor is not None:
            builds[Queue.ASSESSOR] = lambda: build_assessor_fold(command, assessor)
        for name, build in builds.items():
            self._threads[name] = QueueThread(
                name, self._outbox, build=build, on_ready=self._count_ready, command=command
            )
        for thread in self._threads.values():
            thread.start()

    def _count_ready(self, asks_ahead: bool) -> None:  # noqa: FBT001  # the one thing a callback is told
        with self._ready_lock:
            self._ready += 1
            self._asks_ahead |= asks_ahead
            everyone = self._ready == len(self._threads)
        if everyone:
            self._outbox.send(Initialized(asks_ahead=self._asks_ahead))


def _line_of(command: QueueCommand) -> int:
    return command.item.line if isinstance(command, Told) else 0


def _request_in(command: QueueCommand) -> SuggestionRequested | None:
    """The request that has to be computed for it."""
    item = command.item if isinstance(command, Told) else None
    return item if isinstance(item, SuggestionRequested) and item.recorded is None else None


def _end_in(command: QueueCommand) -> TrialEnded | None:
    item = command.item if isinstance(command, Told) else None
    return item if isinstance(item, TrialEnded) else None


def _snapshot_text(fold: Fold, *, of_user: bool) -> str | None:
    state = fold.state_dict()
    if of_user:
        _require_text_keys(state)
    return None if state is None else json.dumps(state, separators=(",", ":"))


def _require_text_keys(state: Any) -> None:
    """TypeError for others: JSON makes texts of them, and an algorithm would be given back what it does not know."""
    match state:
        case dict():
            for key, value in state.items():
                if not isinstance(key, str):
                    raise TypeError(f"state_dict() has the key {key!r}, and keys in JSON are texts: use str({key!r})")
                _require_text_keys(value)
        case list() | tuple():
            for value in state:
                _require_text_keys(value)


def _note(text: str) -> None:
    """In its log, which is its standard error: among what algorithms print, and shown to people as it is."""
    write_line(LogForm.TEXT, logger="tuner_service.workers", event="worker_leaves", error=text)


def leave(code: int) -> NoReturn:
    """End the process now: an algorithm that hangs, or a thread of its own, must not keep it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the service that read it may be gone
        sys.stderr.flush()
    os._exit(code)


def take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The frames' streams; from here on standard input is empty and standard output is standard error."""
    frames_in, frames_out = os.fdopen(_far_copy(0), "rb"), os.fdopen(_far_copy(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return frames_in, frames_out


def _far_copy(descriptor: int) -> int:
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_OWN_DESCRIPTOR)
    except OSError:
        return os.dup(descriptor)  # no process may have as many here


def main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal group; the service decides
    frames_in, frames_out = take_over_pipes()
    worker = Worker(Outbox(frames_out))
    try:
        while (objects := read_frame(frames_in)) is not None:
            for wire in objects:
                worker.handle(command_from_wire(wire))
    except FrameError as error:
        _note(f"the worker was sent something it cannot use: {error}")
        leave(EXIT_BAD_FRAME)
    except OSError as error:
        _note(f"the worker hears nothing any more, an algorithm has closed its descriptors: {error}")
        leave(EXIT_NO_PIPES)
    except BaseException:  # noqa: BLE001  # whatever it is, threads of algorithms must not keep the process
        with contextlib.suppress(OSError, ValueError):
            traceback.print_exc()
        leave(1)
    leave(0)


if __name__ == "__main__":
    main()
