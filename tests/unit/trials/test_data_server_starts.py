"""A fork server or a worker of a loader that cannot be started leaves no descriptor and no process behind."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trials.data.workers import worker_pool
from trials.data.workers.record_channel import Channel
from trials.data.workers.sample_maker import Recipe
from trials.data.workers.worker_pool import ProcessPool


def descriptors() -> int:
    gc.collect()  # a mapping that an error still refers to has one
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(scope="module", autouse=True)
def only_what_comes() -> None:
    """What is there before, all libraries among it, would be looked through each time."""
    gc.collect()
    gc.freeze()


def raising(number: int) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ProcessPool:
    """Of a process that cannot be forked: its server is a new interpreter, which is started when it is wanted."""
    monkeypatch.setattr(worker_pool, "fork_if_safe", lambda: (None, "it has threads"))
    return ProcessPool(Recipe(load=abs, collate=list))


class Started:
    """A process that was started."""

    pid = 1

    def __init__(self, happened: list[str]) -> None:
        self.kill = lambda: happened.append("killed")
        self.wait = lambda: happened.append("reaped")


@pytest.mark.parametrize(
    ("what", "number"), [((subprocess, "Popen"), errno.EAGAIN), ((worker_pool.Channel, "pair"), errno.EMFILE)]
)
def test_a_server_that_cannot_be_started_leaves_no_descriptor(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch, what: tuple[Any, str], number: int
) -> None:
    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(*what, raising(number))
        with pytest.raises(OSError, match=os.strerror(number)):
            pool.start()

    assert descriptors() == before


def test_a_server_that_cannot_be_told_what_to_do_is_ended(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", lambda *_, **__: Started(happened))
        patched.setattr(Channel, "send", raising(errno.EMFILE))
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            pool.start()

    assert happened == ["killed", "reaped"]
    assert descriptors() == before


def test_a_worker_for_whose_stack_there_is_no_descriptor_leaves_none(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe2", raising(errno.EMFILE))
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            pool.spawn(0, 1)

    assert descriptors() == before
