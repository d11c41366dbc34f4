"""A decoding process of a shared data server: told which samples, it writes them into their slots.

What crosses the socket are arrays of numbers. A worker that is killed while it writes leaves slots without a key.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from trials.data.core.sample_layout import Layout
from trials.data.sharing.group_order import GroupSamples
from trials.data.sharing.ring import EMPTY, Ring, cache_key, fence, window_key
from trials.data.workers.shared_memory import keep_freed_memory
from trials.processes.parents import Child, die_with

# Of each sample: stream position, slot, epoch, index, slot of the cache to copy from or -1, whether to write that one.
COLUMNS = 6
CHUNK_MAX = 64
TIMES_BYTES = 16
MESSAGE_BYTES = CHUNK_MAX * COLUMNS * 8
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a worker inherits from the server."""

    ring: Ring
    layout: Layout
    samples: GroupSamples


@dataclass(slots=True, kw_only=True)
class Process:
    """A worker as the server sees it."""

    child: Child
    socket: socket.socket


def start(tools: Tools, *, in_child: Callable[[], None]) -> Process:
    """Fork one; ``in_child`` closes what it must not hold. The server has one thread, so a fork is safe."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _become_worker(tools, theirs, server, in_child)
    theirs.close()
    ours.setblocking(False)  # noqa: FBT003  the standard library takes it by position only
    return Process(child=Child(pid), socket=ours)


def _become_worker(tools: Tools, orders: socket.socket, server: int, in_child: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        die_with(server, code=code)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        in_child()
        keep_freed_memory()
        gc.freeze()  # so that a collection does not copy every page that holds an object of the server's
        _single_threaded()
        _serve(tools, orders)
        code = 0
    except (OSError, ValueError, MemoryError):
        logger.exception("worker_failed", extra={"pid": os.getpid()})
    finally:
        os._exit(code)


def _single_threaded() -> None:
    """As torch's own workers are: several of them share the cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _serve(tools: Tools, orders: socket.socket) -> None:
    while data := orders.recv(MESSAGE_BYTES):
        began, worked = time.perf_counter(), time.process_time()
        rows = np.frombuffer(data, dtype=np.int64).reshape(-1, COLUMNS)
        made = bytes(_fill(tools, row) for row in rows)
        spent = np.array([time.perf_counter() - began, time.process_time() - worked])
        orders.send(spent.tobytes() + made)


def read_answer(data: bytes) -> tuple[float, float, bytes]:
    """Seconds it took, and of a processor; for each sample 1 (decoded), 2 (from the cache) or 0 (left to others)."""
    seconds, worked = np.frombuffer(data[:TIMES_BYTES], dtype=np.float64).tolist()
    return seconds, worked, data[TIMES_BYTES:]


def _fill(tools: Tools, row: NDArray[np.int64]) -> int:
    position, slot, epoch, index, cache_slot, writes_cache = row.tolist()
    ring = tools.ring
    tag = cache_key(epoch if tools.samples.per_epoch else 0)
    if cache_slot >= 0 and _copy_cached(ring, cache_slot, slot, tag):
        fence()
        ring.keys[slot] = window_key(position)
        return 2
    values = _decode(tools, epoch, index)
    if values is None:
        return 0
    ring.write(slot, tools.layout, values)
    fence()
    ring.keys[slot] = window_key(position)
    if writes_cache:
        ring.keys[cache_slot] = EMPTY
        fence()
        ring.write(cache_slot, tools.layout, values)
        fence()
        ring.keys[cache_slot] = tag
    return 1


def _copy_cached(ring: Ring, source: int, target: int, tag: int) -> bool:
    if int(ring.keys[source]) != tag:
        return False
    fence()
    ring.copy(source, target)
    fence()
    return int(ring.keys[source]) == tag


def _decode(tools: Tools, epoch: int, index: int) -> list[Any] | None:
    """None where it raises or is of another form: each trial decodes it for itself, and has the error itself."""
    try:
        return tools.layout.values(tools.samples.load(epoch, index))
    except Exception:
        logger.warning("sample_failed", extra={"index": index}, exc_info=True)
        return None
