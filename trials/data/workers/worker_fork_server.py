"""The fork server: the process that the workers of a trial are forked from.

It has one thread, no device, and the dataset. It is forked from the trial where that is safe (one thread, no CUDA),
else a new interpreter. It ends when the trial does, however that ended; its workers end with it.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import select
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from trials.data.errors import INIT_FAILED
from trials.data.workers.pickling import decode
from trials.data.workers.record_channel import Channel
from trials.data.workers.sample_maker import Recipe
from trials.data.workers.shared_memory import SharedMemory, keep_freed_memory
from trials.data.workers.worker import Worker
from trials.processes.parents import Child, die_with

STACK_SIGNAL = signal.SIGRTMIN + 3


class Spawn(NamedTuple):
    """Fork a worker; its end of the channel and of the pipe for its stack come with it."""

    worker: int
    workers: int


class Signal(NamedTuple):
    worker: int
    number: int


class Spawned(NamedTuple):
    worker: int
    pid: int


class Exited(NamedTuple):
    worker: int
    pid: int
    signal: int | None
    exit_code: int | None


@dataclass(slots=True, kw_only=True)
class _Child:
    worker: int
    process: Child


def serve(control: Channel, recipe: Recipe, trial: int) -> None:
    """Until the trial hangs up or ends; ``trial`` is its pidfd. No worker is left afterwards."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the trial's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()  # so that collections in the workers do not copy every page that holds an object
    children: dict[int, _Child] = {}
    while True:
        poll = select.poll()
        for descriptor in (control.fileno(), trial, *children):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        if trial in ready:
            break
        for descriptor in ready & children.keys():
            child = children.pop(descriptor)
            control.send(_reaped(child))
        if control.fileno() in ready:
            received = control.receive()
            if received is None:
                break
            _obey(received.value, received.descriptors, _Scene(control, recipe, trial, children))
    for child in children.values():
        child.process.signal()
        _reaped(child)


@dataclass(slots=True)
class _Scene:
    control: Channel
    recipe: Recipe
    trial: int
    children: dict[int, _Child]


def _obey(value: Any, descriptors: tuple[int, ...], scene: _Scene) -> None:
    match value:
        case Spawn(worker=worker):
            server = os.getpid()
            pid = os.fork()
            if pid == 0:
                _become_worker(value, descriptors, scene, server)
            for descriptor in descriptors:
                os.close(descriptor)
            process = Child(pid)
            scene.children[process.descriptor] = _Child(worker=worker, process=process)
            scene.control.send(Spawned(worker, pid))
        case Signal(worker=worker, number=number):
            for child in scene.children.values():
                if child.worker == worker:
                    child.process.signal(number)


def _reaped(child: _Child) -> Exited:
    code = child.process.reap()
    return Exited(child.worker, child.process.pid, -code if code < 0 else None, code if code >= 0 else None)


# ── in a worker ─────────────────────────────────────────────────────────────────────────────────
def _become_worker(spawn: Spawn, descriptors: tuple[int, ...], scene: _Scene, server: int) -> None:
    """Never returns."""
    code = 1
    try:
        die_with(server)
        scene.control.close()
        os.close(scene.trial)
        for child in scene.children.values():
            child.process.forget()
        channel, stack = Channel.of_descriptor(descriptors[0]), descriptors[1]
        faulthandler.register(STACK_SIGNAL, file=stack, all_threads=False)
        keep_freed_memory()
        worker = Worker(channel, scene.recipe, globals_too=True)
        code = INIT_FAILED
        _prepare_libraries(spawn, scene.recipe)
        code = 1
        worker.run()
        code = 0
    except BaseException as error:  # noqa: BLE001  # a fork of another program must not go on in that program
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else 1
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    finally:
        _flush()
        os._exit(code)


def _prepare_libraries(spawn: Spawn, recipe: Recipe) -> None:
    """What torch's own workers are given: one thread, ``get_worker_info()``, and ``worker_init_fn``."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        from torch.utils.data import _utils

        # An iterable is read by one worker, so it is told that it is the only one.
        count = 1 if recipe.load is None else spawn.workers
        info = _utils.worker.WorkerInfo(id=spawn.worker, num_workers=count, seed=recipe.seed, dataset=recipe.dataset)
        _utils.worker._worker_info = info  # noqa: SLF001  # where get_worker_info() looks
    if recipe.worker_init is not None:
        recipe.worker_init(spawn.worker)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # nobody reads it any more, or there is none


# ── as a program of its own ─────────────────────────────────────────────────────────────────────
class Preparation(NamedTuple):
    """Of a new interpreter: what ``multiprocessing`` would tell it, and the recipe, encoded in a memory."""

    main: dict[str, Any]
    spans: tuple[tuple[int, int], ...]


def main(arguments: list[str], prepare: Callable[[dict[str, Any]], None] | None = None) -> int:
    """CONTROL MEMORY TRIAL: descriptors."""
    from multiprocessing import spawn

    control_descriptor, memory_descriptor, trial = map(int, arguments)
    control = Channel.of_descriptor(control_descriptor)
    received = control.receive()
    if received is None:
        return 0
    preparation: Preparation = received.value
    (prepare or spawn.prepare)(preparation.main)
    memory = SharedMemory.attach(memory_descriptor, private=True)
    recipe = decode(memory.bytes(), preparation.spans)
    memory.close()
    serve(control, recipe, trial)
    return 0
