"""The worker pool of a loader: processes forked from a fork server, or threads. Both speak the same records."""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, Protocol

from trials.data.workers.pickling import encode
from trials.data.workers.record_channel import Channel
from trials.data.workers.sample_maker import Recipe, copied_recipe
from trials.data.workers.shared_memory import SharedMemory, keep_freed_memory
from trials.data.workers.worker import Worker
from trials.data.workers.worker_fork_server import STACK_SIGNAL, Exited, Preparation, Signal, Spawn, Spawned, serve
from trials.processes.ending import Escalation, end
from trials.processes.forking import fork_if_safe
from trials.processes.parents import Child

STACK_WAIT_S = 0.5
STACK_SETTLED_S = 0.1
STACK_LIMIT = 1 << 16  # bytes
TERM_WAIT_S = 0.15  # for SIGTERM, before SIGKILL
KILL_WAIT_S = 0.15  # for the kernel to end what was killed


class WorkerPool(Protocol):
    """Starts workers and says when one ended. Used under the loader's lock."""

    def start(self) -> None:
        """What workers come from is there; nothing where it is already. Before the first ``spawn``."""
        ...

    def spawn(self, worker: int, workers: int) -> Channel:
        """The trial's end of the new worker's channel."""
        ...

    def fileno(self) -> int:
        """Readable when ``exits`` has something to say; negative when there is nothing to wait for."""
        ...

    def exits(self) -> list[Exited] | None:
        """Those that ended since; None when all of them are gone at once, with what started them."""
        ...

    def stack_of(self, worker: int) -> str: ...

    def stop(self, deadline: float) -> None:
        """All are gone when it returns, at the latest half a second after ``deadline`` (``time.monotonic``). Their
        channels were hung up before."""
        ...


class ProcessPool:
    """Its fork server is forked when the pool is made, where that is safe; else it is a new interpreter, which costs
    seconds, so that it begins only when workers are wanted."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._pids: dict[int, int] = {}
        self._stacks: dict[int, int] = {}
        self._alive: set[int] = set()
        self._exits: deque[Exited] = deque()
        self._started, self._why_not_forked = _forked_server(recipe)

    def start(self) -> None:
        if self._started is None:
            self._started = _executed_server(self._recipe, self._why_not_forked)

    @property
    def _server(self) -> _Server:
        if self._started is None:
            raise RuntimeError("the pool was not started")
        return self._started

    def spawn(self, worker: int, workers: int) -> Channel:
        ours, theirs = Channel.pair()
        try:
            readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._forget(worker)
            self._stacks[worker] = readable
            try:
                self._server.control.send(Spawn(worker, workers), (theirs.fileno(), writable))
            finally:
                os.close(writable)
            self._alive.add(worker)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def fileno(self) -> int:
        return -1 if self._started is None else self._started.control.fileno()

    def exits(self) -> list[Exited] | None:
        while _readable(self.fileno(), 0):
            if not self._receive():
                return None
        found = list(self._exits)
        self._exits.clear()
        return found

    def stack_of(self, worker: int) -> str:
        readable = self._stacks.get(worker)
        if readable is None or not self._server.control.send(Signal(worker, STACK_SIGNAL)):
            return ""
        # faulthandler writes the stack from a signal handler, frame by frame, and says nothing at its end: the stack
        # is complete when nothing more has come for a while.
        parts: list[bytes] = []
        wait = STACK_WAIT_S
        while sum(map(len, parts)) < STACK_LIMIT and _readable(readable, wait):
            part = os.read(readable, STACK_LIMIT)
            if not part:
                break  # it ended
            parts.append(part)
            wait = STACK_SETTLED_S
        return b"".join(parts).decode(errors="replace")

    def stop(self, deadline: float) -> None:
        if self._started is None:
            return
        try:
            # The workers were told already: their channels have reached the end of file.
            now = time.monotonic()
            told_s = max(0.0, deadline - now)
            steps = Escalation(now=now, told_s=told_s, grace_s=told_s + TERM_WAIT_S)
            end(steps, send=self._signal_all, gone_within=self._gone_within, kill_s=KILL_WAIT_S)
        finally:
            self._server.end()
            for worker in list(self._stacks):
                self._forget(worker)

    @property
    def pids(self) -> dict[int, int]:
        """Worker -> process id, of those that run; for tests and for people."""
        return dict(self._pids)

    @property
    def server_pid(self) -> int:
        return self._server.pid

    def _gone_within(self, seconds: float) -> bool:
        """Whether the server has said of all workers that they ended."""
        deadline = time.monotonic() + seconds
        while self._alive:
            if not _readable(self.fileno(), max(0.0, deadline - time.monotonic())):
                return False
            if not self._receive():
                return True  # with the server all of its workers end
        return True

    def _receive(self) -> bool:
        received = self._server.control.receive()
        if received is None:
            return False
        match received.value:
            case Spawned(worker=worker, pid=pid):
                self._pids[worker] = pid
            case Exited(worker=worker) as exited:
                self._pids.pop(worker, None)
                self._alive.discard(worker)
                self._exits.append(exited)
        return True

    def _signal_all(self, number: int) -> None:
        for worker in self._alive:
            self._server.control.send(Signal(worker, number))

    def _forget(self, worker: int) -> None:
        descriptor = self._stacks.pop(worker, None)
        if descriptor is not None:
            os.close(descriptor)


class ThreadPool:
    """Each thread has a copy of the dataset, as a process would. A thread that is stuck in C cannot be stopped: it is
    left alone after the deadline, and ends with the trial."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._threads: dict[int, threading.Thread] = {}
        keep_freed_memory()

    def start(self) -> None:
        """Threads come from this process."""

    def spawn(self, worker: int, workers: int) -> Channel:
        ours, theirs = Channel.pair()
        recipe = copied_recipe(self._recipe)
        thread = threading.Thread(
            target=_work, args=(theirs, recipe, worker), name=f"data worker {worker} of {workers}", daemon=True
        )
        self._threads[worker] = thread
        thread.start()
        return ours

    def fileno(self) -> int:
        return -1

    def exits(self) -> list[Exited] | None:
        return []

    def stack_of(self, worker: int) -> str:
        thread = self._threads.get(worker)
        frame = sys._current_frames().get(thread.ident or 0) if thread else None  # noqa: SLF001  # the only way to it
        return "".join(traceback.format_stack(frame)) if frame else ""

    def stop(self, deadline: float) -> None:
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))


def _work(channel: Channel, recipe: Recipe, number: int) -> None:
    worker = Worker(channel, recipe, globals_too=False)
    try:
        if recipe.worker_init is not None:
            recipe.worker_init(number)
        worker.run()
    finally:
        worker.close()


# ── the fork server ─────────────────────────────────────────────────────────────────────────────
class _Server:
    """The trial's side of it."""

    def __init__(self, control: Channel, pid: int, process: subprocess.Popen[bytes] | None) -> None:
        self.control = control
        self.pid = pid
        self._process = process
        self._owner = os.getpid()

    def end(self) -> None:
        """It ends when it is hung up on; it has no workers any more, or kills those it has."""
        self.control.hang_up()
        self.control.close()
        if os.getpid() != self._owner:
            return
        if self._process is not None:
            try:
                self._process.wait(KILL_WAIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            return
        try:
            server = Child(self.pid)
            if not _readable(server.descriptor, KILL_WAIT_S):
                server.signal()
            server.reap()
        except (ProcessLookupError, ChildProcessError):
            return  # the trial waits for every child of its process, and has reaped this one


def _forked_server(recipe: Recipe) -> tuple[_Server | None, str]:
    """From this process; None where that is not safe, and why."""
    with _server_ends() as (ours, theirs, trial):
        pid, why_not = fork_if_safe()
        if pid == 0:
            _become_server(recipe, ours, theirs, trial)
        if pid is None:
            ours.close()
            return None, why_not
        return _Server(ours, pid, None), ""


def _executed_server(recipe: Recipe, why_not_forked: str) -> _Server:
    """A new interpreter."""
    with _server_ends() as (ours, theirs, trial):
        process = _executed(recipe, ours, theirs, trial, why_not_forked=why_not_forked)
        return _Server(ours, process.pid, process)


@contextmanager
def _server_ends() -> Iterator[tuple[Channel, Channel, int]]:
    """Both ends of a control channel and this process's pidfd; only the first is left, and not after an error."""
    trial = os.pidfd_open(os.getpid())
    try:
        ours, theirs = Channel.pair()
    except BaseException:
        os.close(trial)
        raise
    try:
        yield ours, theirs, trial
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        os.close(trial)


def _become_server(recipe: Recipe, ours: Channel, theirs: Channel, trial: int) -> NoReturn:
    try:
        ours.close()
        serve(theirs, recipe, trial)
    finally:
        os._exit(0)


def _executed(
    recipe: Recipe, ours: Channel, theirs: Channel, trial: int, *, why_not_forked: str
) -> subprocess.Popen[bytes]:
    """Told as ``multiprocessing`` tells its own: the recipe is pickled, the main module imported."""
    from multiprocessing import spawn

    try:
        encoded = encode(recipe)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(
            f"the dataset, transform, collate_fn or worker_init_fn cannot be given to worker processes: {error}. "
            f"This process cannot be forked ({why_not_forked}), so they are pickled: "
            "define them at the top level of a module, or begin the first iteration before that."
        ) from error
    main = {name: value for name, value in spawn.get_preparation_data("data workers").items() if name != "authkey"}
    memory = SharedMemory.create(encoded.size, name="trials-data-recipe")
    try:
        spans = encoded.place(memory.bytes())
        process = _interpreter((theirs.fileno(), memory.descriptor, trial))
    finally:
        memory.close()
    try:
        ours.send(Preparation(main=main, spans=spans))
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def _interpreter(passed: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """It is given these descriptors."""
    root = str(Path(__file__).resolve().parents[3])
    path = f"import sys; sys.path.insert(0, {root!r})"
    code = f"{path}; from trials.data.workers.worker_fork_server import main; main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, passed)],
        pass_fds=passed,
        stdin=subprocess.DEVNULL,
        # OpenBLAS and OpenMP start a pool of threads when they are imported, which would make the forks unsafe.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )


def _readable(descriptor: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
