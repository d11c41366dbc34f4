"""Tricks of reading, writing and computing in one process, by its own processor time: a disk is not waited for.

What is compared is taken from where it is used, private names included: a copy of it would be another trick.
"""
# ruff: noqa: SLF001

from __future__ import annotations

import ctypes
import dataclasses
import json
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path

import numpy as np
from sqlalchemy import bindparam, create_engine, select, update

from benchmarks.speed.processes import asking
from trials.agent.forks.codes import Codes
from trials.agent.forks.seeding import _seed_torch
from trials.agent.supervision.starting import Start
from trials.checkpoints import verified_files
from trials.checkpoints.verified_files import DIRECT_FROM_BYTES
from trials.data.core import randomness
from trials.data.workers.shared_memory import SharedMemory
from trials.files import put_in_place, read_bytes, write_atomically
from trials.wire.plain import read_lines
from tuner_service.dispatcher.changes import Touched
from tuner_service.domain.replacing import replaced
from tuner_service.domain.trial import Trial, TrialStatus
from tuner_service.storage import tables
from tuner_service.storage.prepared import Prepared
from tuner_service.storage.prepared_writes import execute_many

Work = Callable[[], float]
ROOT = Path(__file__).resolve().parents[2]
REPEAT = 100  # of what takes less than the clock tells apart
CHECKPOINT_BYTES = 64 << 20


def cpu_of(work: Callable[[], object], *, times: int = 1) -> Work:
    """Microseconds of this process's processor time for each."""

    def measured() -> float:
        began = time.process_time()
        for _ in range(times):
            work()
        return (time.process_time() - began) * 1e6 / times

    return measured


@contextmanager
def a_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="benchmark-speed-") as folder:
        yield Path(folder)


# ── scripts and generators ──────────────────────────────────────────────────────────────────────
def compiled_once() -> Iterator[tuple[Work, Work]]:
    """A fork server compiles the script of its trials once; each trial's code differs in the path that it names."""
    source = "".join(f"def f{n}(a, b):\n    return [a * {n} + x for x in range(b)]\n" for n in range(100)).encode()
    with a_folder() as folder:
        (folder / "train.py").write_bytes(source)
        start = Start(nonce="n", command=["python", "train.py"], variables={}, folder=str(folder))
        codes = Codes()
        yield cpu_of(lambda: compile(source, "train.py", "exec", dont_inherit=True)), cpu_of(lambda: codes.find(start))


def seeded_without_devices() -> Iterator[tuple[Work, Work]]:
    """``torch.manual_seed`` notes for each kind of device who has called it; a build without devices has none."""
    import torch

    yield cpu_of(lambda: torch.manual_seed(7), times=REPEAT), cpu_of(lambda: _seed_torch(torch, 7), times=REPEAT)


def python_generator() -> Iterator[tuple[Work, Work]]:
    yield cpu_of(random.getstate, times=REPEAT), cpu_of(randomness._python_words, times=REPEAT)


def numpy_generator() -> Iterator[tuple[Work, Work]]:
    def read() -> bytes:
        return ctypes.string_at(randomness._numpy_address(), randomness._MT19937_BYTES)

    yield cpu_of(lambda: np.random.get_state(legacy=False), times=REPEAT), cpu_of(read, times=REPEAT)


def torch_states() -> Iterator[tuple[Work, Work]]:
    """``memcmp`` of the states' bytes, without the dispatcher of torch."""
    import torch

    one, other = torch.default_generator.get_state(), torch.default_generator.get_state()
    yield (
        cpu_of(lambda: torch.equal(one, other), times=REPEAT),
        cpu_of(lambda: randomness._is_same(one, other), times=REPEAT),
    )


# ── the database ────────────────────────────────────────────────────────────────────────────────
def prepared_select() -> Iterator[tuple[Work, Work]]:
    """The text is compiled once and handed to the driver; SQLAlchemy's way makes a result object for each."""
    table = tables.queue_cursors
    query = select(table).where(table.c.experiment_id == bindparam("id"))
    prepared = Prepared(query)
    with create_engine("sqlite://").connect() as connection:
        table.metadata.create_all(connection)
        yield (
            cpu_of(lambda: connection.execute(query, {"id": "e"}).fetchall(), times=REPEAT),
            cpu_of(lambda: prepared.tuples(connection, id="e"), times=REPEAT),
        )


def prepared_update() -> Iterator[tuple[Work, Work]]:
    table = tables.queue_cursors
    column = next(c for c in table.columns if not c.primary_key)
    statement = update(table).where(table.c.experiment_id == bindparam("id")).values({column: bindparam("value")})
    with create_engine("sqlite://").connect() as connection:
        table.metadata.create_all(connection)
        yield (
            cpu_of(lambda: connection.execute(statement, [{"id": "e", "value": 1}]), times=REPEAT),
            cpu_of(lambda: execute_many(connection, statement, [{"id": "e", "value": 1}]), times=REPEAT),
        )


# ── files ───────────────────────────────────────────────────────────────────────────────────────
def read_by_descriptor() -> Iterator[tuple[Work, Work]]:
    """open(2), read(2), close(2); ``open()`` also asks for the kind, the size and the place of the file."""
    with a_folder() as folder:
        path = folder / "file"
        path.write_bytes(b"x" * 1_000)

        def plainly() -> bytes:
            with open(path, "rb") as file:  # noqa: PTH123  what is compared
                return file.read()

        yield cpu_of(plainly, times=REPEAT), cpu_of(lambda: read_bytes(str(path)), times=REPEAT)


def linked() -> Iterator[tuple[Work, Work]]:
    """A further name of a file that is there, instead of a file of its own that names its folder."""
    with a_folder() as folder:
        (folder / "attempt.json").write_bytes(b"{}")

        def link() -> None:
            os.link(folder / "attempt.json", folder / "live")
            os.unlink(folder / "live")  # noqa: PTH108  as the agent does

        def write() -> None:
            write_atomically(str(folder / "live"), b"attempts/e/1/1-nonce")
            os.unlink(folder / "live")  # noqa: PTH108  as the agent does

        yield cpu_of(write, times=REPEAT), cpu_of(link, times=REPEAT)


def copied_rows() -> Iterator[tuple[Work, Work]]:
    """Assignments to a twin class without a guard, instead of the constructor, of the row of a trial that reported."""
    trial = Trial(experiment_id="e", number=1, status=TrialStatus.RUNNING, parameters={"lr": 0.1})

    def plainly() -> Trial:
        return dataclasses.replace(trial, last_step=7, last_value=0.5, last_metrics={"loss": 0.5})

    def assigned() -> Trial:
        return replaced(trial, last_step=7, last_value=0.5, last_metrics={"loss": 0.5})

    yield cpu_of(plainly, times=REPEAT), cpu_of(assigned, times=REPEAT)


def spool_in_one_go() -> Iterator[tuple[Work, Work]]:
    """All lines are one JSON text, read by one call."""
    record = {"kind": "metric", "step": 1, "values": {"loss": 0.25, "lr": 1e-3}, "at": 1.7e9, "final": False}
    lines = [json.dumps(record | {"step": step}) for step in range(1_000)]
    yield cpu_of(lambda: [json.loads(line) for line in lines]), cpu_of(lambda: read_lines(lines))


# ── memory and checkpoints ──────────────────────────────────────────────────────────────────────
def something() -> bytes:
    """As large as a checkpoint, and written to: pages that nobody has written to are all one page of zeros, which the
    processor has in its cache."""
    return os.urandom(1 << 20) * (CHECKPOINT_BYTES >> 20)


def kept_memory() -> Iterator[tuple[Work, Work]]:
    """Two tricks together: the memory of the last checkpoint's image is used again, so that no page is touched for the
    first time, and it is in large pages."""
    source = something()
    kept = mmap.mmap(-1, CHECKPOINT_BYTES)
    kept.madvise(mmap.MADV_HUGEPAGE)

    def anew() -> None:
        with closing(mmap.mmap(-1, CHECKPOINT_BYTES)) as memory:
            memory[:] = source

    def again() -> None:
        kept[:] = source

    yield cpu_of(anew), cpu_of(again)


def past_the_page_cache() -> Iterator[tuple[Work, Work]]:
    """O_DIRECT: the kernel copies nothing, and others' files stay in the page cache."""
    memory = mmap.mmap(-1, CHECKPOINT_BYTES)
    memory[:] = something()
    assert CHECKPOINT_BYTES >= DIRECT_FROM_BYTES
    with tempfile.TemporaryDirectory(prefix=".benchmark-speed-", dir=ROOT) as name:  # /tmp may be in memory
        folder = Path(name)

        def write(*, direct: bool) -> None:
            descriptor = verified_files._opened(folder / "draft", direct=direct)
            try:
                verified_files._write_all(descriptor, memoryview(memory))
            finally:
                os.close(descriptor)
            put_in_place(f"{folder}/draft", f"{folder}/checkpoint")

        yield cpu_of(lambda: write(direct=False)), cpu_of(lambda: write(direct=True))
        shutil.rmtree(folder)
        folder.mkdir()


READING = """
import gc, json, sys, time
import tuner_service.api.app, tuner_service.storage.sql_store
from tuner_service.wiring import COLLECT_AFTER
if "frozen" in sys.argv: gc.collect(); gc.freeze()
if "seldom" in sys.argv: gc.set_threshold(COLLECT_AFTER)
began, longest = 0.0, 0.0
def note(phase, info):
    global began, longest
    if phase == "start": began = time.process_time()
    else: longest = max(longest, time.process_time() - began)
gc.callbacks.append(note)
line = json.dumps({"kind": "metric", "step": 1, "values": {"loss": 0.25}, "at": 1.7e9, "final": False})
batches, since = [], time.process_time()
for _ in range(30):
    batches = [*batches[-5:], [json.loads(line) for _ in range(2_000)]]
print(json.dumps([(time.process_time() - since) * 1e6, longest * 1e6]))
"""


def frozen_imports() -> Iterator[tuple[Work, Work]]:
    """gc.freeze: full collections, which many new objects bring about, need not look at what was imported."""
    yield lambda: _read_records()[1], lambda: _read_records("frozen")[1]


def collected_seldom() -> Iterator[tuple[Work, Work]]:
    """gc.set_threshold: a batch of reports is many new objects, all of which are soon gone by themselves."""
    yield lambda: _read_records("frozen")[0], lambda: _read_records("frozen", "seldom")[0]


def _read_records(*words: str) -> tuple[float, float]:
    """Processor time of it, and of the longest collection, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", READING, *words], stdout=subprocess.PIPE, cwd=ROOT, check=True)
    used, longest = json.loads(done.stdout)
    return used, longest


def populated() -> Iterator[tuple[Work, Work]]:
    """MADV_POPULATE_WRITE: one call makes all pages, instead of a page fault for each."""
    source = np.frombuffer(something(), dtype=np.uint8)

    def fill(*, at_once: bool) -> None:
        memory = SharedMemory.create(CHECKPOINT_BYTES, name="benchmark-speed")
        if at_once:
            memory.populate(0, CHECKPOINT_BYTES)
        memory.bytes()[:] = source
        memory.close()

    yield cpu_of(lambda: fill(at_once=False)), cpu_of(lambda: fill(at_once=True))


MAKING = """
import sys, time
import numpy as np
from trials.data.workers.shared_memory import keep_freed_memory
if "kept" in sys.argv: keep_freed_memory()
photograph = np.ones((375, 500, 3), dtype=np.uint8)
for _ in sys.stdin:
    began = time.process_time()
    for _ in range(10): ((photograph.astype(np.float32) / 255 - 0.5) / 0.25).transpose(2, 0, 1).copy()
    print((time.process_time() - began) * 1e6 / 10, flush=True)
"""


def kept_freed_memory() -> Iterator[tuple[Work, Work]]:
    """mallopt: what is freed stays in the process, and its pages are not made zero again by the kernel."""
    with answering(MAKING) as plain, answering(MAKING, "kept") as kept:
        yield plain, kept


@contextmanager
def answering(code: str, *words: str) -> Iterator[Work]:
    with asking(code, *words) as ask:
        yield lambda: float(ask())


# ── the API ─────────────────────────────────────────────────────────────────────────────────────
def cached_read() -> Iterator[tuple[Work, Work]]:
    """Equal reads between two commits share an answer. The rest of both times is the client's, in the same process."""
    import asyncio

    import httpx

    from tests.api_service import an_api_service

    service = an_api_service()
    path = f"/api/v1/experiments/{service.create()}/trials"
    loop = asyncio.new_event_loop()
    transport = httpx.ASGITransport(app=service.client.app)
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=service.client.headers)

    def get(path: str) -> None:
        assert loop.run_until_complete(client.get(path)).status_code == HTTPStatus.OK

    def get_after_a_commit() -> None:
        service.queries.commits.append(Touched())
        get(f"{path}?limit=100")

    yield cpu_of(get_after_a_commit, times=10), cpu_of(lambda: get(path), times=10)
    loop.run_until_complete(client.aclose())
    loop.close()
