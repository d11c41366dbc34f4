"""Tricks of starting processes. Where a child does the work, its own processor time counts, as the kernel tells it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # no stubs: it is private
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trials.processes.control_groups import ControlGroup, make_group, own_group
from trials.processes.parents import DEFAULT, HANDLED

Work = Callable[[], float]
ROOT = Path(__file__).resolve().parents[2]
SUPERVISING = "trials.agent.supervision.supervisor_loop"
IDLE_S = 0.1  # between two entries: so long a group was left alone
# Forks again and again, as a fork server with torch does: prints the microseconds of each fork, and of each child.
FORKING = """
import gc, json, os, sys, time
import torch
from trials.agent.forks import memory
if "collapsed" not in sys.argv: memory.mappings = lambda: []
if "frozen" in sys.argv: memory.settle()
def once():
    began = time.process_time()
    pid = os.fork()
    if pid == 0:
        gc.enable(); gc.collect(); os._exit(0)
    forked = time.process_time() - began
    used = os.wait4(pid, 0)[2]
    return forked * 1e6, (used.ru_utime + used.ru_stime) * 1e6
for _ in sys.stdin:
    print(json.dumps(once()), flush=True)
"""


def collapsed_memory() -> Iterator[tuple[Work, Work]]:
    """MADV_COLLAPSE: the table of pages that a fork copies is 512 times as short for large pages."""
    with forking("frozen") as plain, forking("frozen", "collapsed") as collapsed:
        yield lambda: plain()[0], lambda: collapsed()[0]


def frozen_garbage() -> Iterator[tuple[Work, Work]]:
    """gc.freeze: a collection writes into the head of every object it looks at, and each page of them is copied."""
    with forking() as plain, forking("frozen") as frozen:
        yield lambda: plain()[1], lambda: frozen()[1]


@contextmanager
def forking(*words: str) -> Iterator[Callable[[], tuple[float, float]]]:
    with asking(FORKING, *words) as ask:

        def once() -> tuple[float, float]:
            forked, child = json.loads(ask())
            return forked, child

        yield once


@contextmanager
def asking(code: str, *words: str) -> Iterator[Callable[[], str]]:
    """The answer of a process that runs ``code`` and measures once for each line it is given."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asks, answers = process.stdin, process.stdout

    def ask() -> str:
        asks.write("\n")
        asks.flush()
        return answers.readline()

    try:
        yield ask
    finally:
        asks.close()
        process.wait()
        answers.close()


def entered_ahead() -> Iterator[tuple[Work, Work]]:
    """The agent's own entry, 2 ms before: an RCU grace period has passed, and a second is not waited for."""
    own = own_group()
    group = make_group("benchmark", parent=own)
    if own is None or group is None:
        return
    try:
        yield lambda: _enter_after(None, group), lambda: _enter_after(ControlGroup(own), group)
    finally:
        group.remove()


def _enter_after(first: ControlGroup | None, group: ControlGroup) -> float:
    time.sleep(IDLE_S)
    if first is not None:
        first.enter()
        time.sleep(0.002)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        began = time.perf_counter()
        group.enter()
        os.write(writing, str((time.perf_counter() - began) * 1e6).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    taken = float(os.read(reading, 100))
    os.close(reading)
    os.close(writing)
    return taken


def plain_signals() -> Iterator[tuple[Work, Work]]:
    """``_signal.signal``: ``signal.signal`` makes members of enumerations of its arguments and its result."""

    def by_enumerations() -> None:
        for number in HANDLED:
            signal.signal(number, signal.SIG_DFL)

    def by_numbers() -> None:
        for number in HANDLED:
            _signal.signal(number, DEFAULT)

    yield lambda: of_child(by_enumerations), lambda: of_child(by_numbers)


def of_child(work: Callable[[], None]) -> float:
    """Processor time of a forked child that does the work."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    used = os.wait4(pid, 0)[2]
    return (used.ru_utime + used.ru_stime) * 1e6


def without_pathlib() -> Iterator[tuple[Work, Work]]:
    """Neither pathlib nor what it imports."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {SUPERVISING}"
    yield lambda: of_interpreter("-I", "-S", "-c", f"{code}, pathlib"), lambda: of_interpreter("-I", "-S", "-c", code)


def isolated_start() -> Iterator[tuple[Work, Work]]:
    """-I -S: no site-packages, whose .pth files are read and run at every start."""
    yield lambda: of_interpreter("-c", "pass"), lambda: of_interpreter("-I", "-S", "-c", "pass")


def of_interpreter(*words: str) -> float:
    pid = os.posix_spawn(sys.executable, [sys.executable, *words], os.environ)
    used = os.wait4(pid, 0)[2]
    return (used.ru_utime + used.ru_stime) * 1e6
