"""``python -m pytest -p tests.side_by_side``: tests run in forks of the process that has collected them, one a core.

Not pytest-xdist: each of its workers imports and collects everything anew, and has a thread of its own. Here that is
done once, no fork has a thread, and what tests share within a process is shared by all that come to the same fork.

A fork takes one file after the other from a pipe, in the order that was drawn; those in ``LONG`` come first, or one
of them would be alone at the end. What a test comes to goes back through a pipe and is reported as if it had run here.
A fork that ends before its time fails the test that it was at, and names those of its file that are left out.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from os import write  # this one: a test of a full disk has another
from typing import Any, NoReturn

import pytest

from tests.become import UNHEARD, end_like_an_interpreter

NUMBER_BYTES = 4  # of a file in the pipe, or the length of what a fork tells
READ_BYTES = 1 << 20
# Seconds of a processor each: begun first.
LONG = (
    "tests/contract/test_tuner.py",
    "tests/simulation/test_random_histories.py",
    "tests/contract/test_advisor.py",
    "tests/contract/test_every_snapshot.py",
    "tests/unit/benchmarks/test_failing_tasks.py",
    "tests/unit/api/test_every_way_in.py",
    "tests/unit/api/test_signing_in.py",
    "tests/contract/test_extreme_values.py",
    "tests/migrations/test_migrations.py",
    "tests/unit/api/test_every_token.py",
)


@dataclass
class Fork:
    pid: int
    pipe: int
    handle: int  # readable once it has ended, also where what it started holds the pipe
    unread: bytearray = field(default_factory=bytearray)
    begun: pytest.Item | None = None  # the test that it is at
    is_done: bool = False
    code: int | None = None

    def told(self) -> Iterator[tuple[str, Any]]:
        """What has come whole."""
        with suppress(BlockingIOError):
            while data := os.read(self.pipe, READ_BYTES):
                self.unread += data
        while len(self.unread) >= NUMBER_BYTES:
            end = NUMBER_BYTES + int.from_bytes(self.unread[:NUMBER_BYTES], "big")
            if len(self.unread) < end:
                return
            message = pickle.loads(self.unread[NUMBER_BYTES:end])
            del self.unread[:end]
            yield message

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.pipe)
        os.close(self.handle)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forks", type=int, default=len(os.sched_getaffinity(0)), help="in which the tests run; 1: in none"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    option = session.config.option
    files = by_file(session.items)
    if session.testsfailed or option.collectonly or option.usepdb or min(option.forks, len(files)) < 2:
        return None  # as without this plugin
    Forks(session, files, min(option.forks, len(files))).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def by_file(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """In the order of their first tests, but the long ones before."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    first = [name for name in LONG if name in files]
    return [files[name] for name in [*first, *(name for name in files if name not in LONG)]]


class Forks:
    def __init__(self, session: pytest.Session, files: list[list[pytest.Item]], count: int) -> None:
        self._session, self._config, self._files = session, session.config, files
        self._items = {item.nodeid: item for file in files for item in file}
        self._left = dict.fromkeys(self._items)
        self._queue, waiting = os.pipe()
        os.set_blocking(waiting, True)
        self._may_end, self._let_end = os.pipe()
        self._folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self._forks: list[Fork] = []
        try:
            os.write(waiting, b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in range(len(files))))
        finally:
            os.close(waiting)
        self._count = count

    def run(self) -> None:
        try:
            for number in range(self._count):
                self._begin(number)
            self._listen()
            os.close(self._let_end)
            for fork in self._forks:
                self._ended(fork)
        finally:
            for fork in self._forks:
                fork.close()
            os.close(self._queue)
            os.close(self._may_end)
        if self._left and not (self._session.shouldfail or self._session.shouldstop):
            self._fail(next(iter(self._left)), f"{len(self._left)} tests were not run: {', '.join(self._left)}")

    def _begin(self, number: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        mine, its = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(self._let_end)  # or none would ever be let
            self._be(number, its)
        os.close(its)
        os.set_blocking(mine, False)
        self._forks.append(Fork(pid, mine, os.pidfd_open(pid)))

    # ── here ────────────────────────────────────────────────────────────────────────────────────
    def _listen(self) -> None:
        """Until each fork is done, or has ended."""
        with selectors.DefaultSelector() as selector:
            for fork in self._forks:
                for descriptor in (fork.pipe, fork.handle):
                    selector.register(descriptor, selectors.EVENT_READ, fork)
            while selector.get_map():
                for key, _ in selector.select():
                    for kind, told in key.data.told():
                        self._hear(key.data, kind, told)
                    if (key.data.is_done or key.fd == key.data.handle) and key.fd in selector.get_map():
                        for descriptor in (key.data.pipe, key.data.handle):
                            selector.unregister(descriptor)

    def _hear(self, fork: Fork, kind: str, told: Any) -> None:
        hook = self._config.hook
        if kind == "done":
            fork.is_done = True
        elif kind == "begun":
            fork.begun = self._items[told]
            hook.pytest_runtest_logstart(nodeid=told, location=fork.begun.location)
        elif kind == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=told)
        else:
            report = told if kind == "report" else hook.pytest_report_from_serializable(config=self._config, data=told)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                fork.begun = None
                self._left.pop(report.nodeid, None)
                hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
        if self._session.shouldfail or self._session.shouldstop:
            while os.read(self._queue, READ_BYTES):  # nothing that has not begun does
                pass

    def _ended(self, fork: Fork) -> None:
        fork.code = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
        if fork.begun is not None:
            self._fail(fork.begun.nodeid, f"its process ended in it, with code {fork.code}")
        elif fork.code or not fork.is_done:
            self._fail("the end of a fork", f"a process of tests ended with code {fork.code}; it said why on stderr")

    def _fail(self, nodeid: str, why: str) -> None:
        item = self._items.get(nodeid)
        location = (nodeid, None, nodeid) if item is None else item.location
        report = pytest.TestReport(nodeid, location, {}, "failed", why, "call")
        self._config.hook.pytest_runtest_logreport(report=report)

    # ── in a fork ───────────────────────────────────────────────────────────────────────────────
    def _be(self, number: int, said: int) -> NoReturn:
        code = UNHEARD
        try:
            folder = self._folder / f"fork-{number}"
            folder.mkdir(mode=0o700)
            self._config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
            capture = self._config.pluginmanager.getplugin("capturemanager")
            capture.stop_global_capturing()  # whose files are those of all forks
            capture.start_global_capturing()
            capture.suspend_global_capture()
            self._config.pluginmanager.unregister(name="terminalreporter")
            telling = Telling(self._config, said)
            self._config.pluginmanager.register(telling)
            self._run_those_that_come()
            telling.tell("done", None)
            os.read(self._may_end, 1)  # all have: what was made before the forks is theirs, too
            self._config._ensure_unconfigure()  # tells of what nobody closed
            code = 0
        except BaseException:  # noqa: BLE001  # a fork must not go on in this program
            traceback.print_exc()
        finally:
            end_like_an_interpreter(code)

    def _run_those_that_come(self) -> None:
        coming = self._coming()
        item = next(coming, None)
        while item is not None and not (self._session.shouldfail or self._session.shouldstop):
            following = next(coming, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        self._session._setupstate.teardown_exact(None)  # of a run that is to end early

    def _coming(self) -> Iterator[pytest.Item]:
        while number := os.read(self._queue, NUMBER_BYTES):
            yield from self._files[int.from_bytes(number, "big")]


class Telling:
    """In a fork: what the process that reports has to know."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self._config, self._pipe = config, pipe

    def tell(self, kind: str, told: object) -> None:
        message = pickle.dumps((kind, told))
        rest = memoryview(len(message).to_bytes(NUMBER_BYTES, "big") + message)
        while rest:
            rest = rest[write(self._pipe, rest) :]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.tell("begun", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.longrepr is None:
            self.tell("report", report)
        else:
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            self.tell("written report", data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        told = warnings.WarningMessage(
            UserWarning(str(warning_message.message)),
            UserWarning,
            warning_message.filename,
            warning_message.lineno,
        )
        self.tell("warning", {"warning_message": told, "when": when, "nodeid": nodeid, "location": location})
