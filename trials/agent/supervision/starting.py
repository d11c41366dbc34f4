"""From a fork to a process that is the trial: its session, streams, marks and folder.

Imported by the supervisor, so it stays as small as its start is quick.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what signal is made of, without its enumerations: they cost a child more
import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trials.processes.control_groups import ControlGroup
from trials.processes.identity import set_death_signal
from trials.processes.marks import limit_of, put_limit

# Those a parent of trials has handlers for.
HANDLED = tuple(map(int, (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1)))
_DEFAULT, _BLOCK, _SET_MASK, _DEATH = map(int, (signal.SIG_DFL, signal.SIG_BLOCK, signal.SIG_SETMASK, signal.SIGKILL))

if TYPE_CHECKING:
    from types import CodeType


class LaunchFailedError(Exception):
    """The command could not be executed; the text says why."""


class Start:
    """What a new process needs to become the trial. ``out`` and ``err`` are the writing ends of its streams."""

    __slots__ = (
        "changed",
        "code",
        "command",
        "err",
        "folder",
        "group",
        "kept",
        "learn",
        "mark",
        "nonce",
        "out",
        "parent",
        "removed",
        "restore",
        "seed",
        "umask",
        "variables",
        "work",
    )

    def __init__(self, *, nonce: str, command: list[str], variables: dict[str, str], folder: str) -> None:
        self.nonce = nonce
        self.command = command
        self.variables = variables
        self.changed: dict[str, str] = {}  # of a fork server's own variables: to be set
        self.removed: list[str] = []  # and those that the trial does not have
        self.kept: object = None  # what is not to be taken apart in the new process
        self.folder = folder
        self.work = folder
        self.seed = 0
        self.umask: int | None = None  # of the script; None: its parent's
        self.restore: Callable[[Mapping[str, str]], None] = lambda _: None  # what a fork server has held back
        self.learn = False  # write down what it imported
        self.group: ControlGroup | None = None
        self.out = -1
        self.err = -1
        self.parent = os.getpid()
        self.mark = limit_of(nonce)
        self.code: CodeType | None = None  # of the script, where it is known before the fork

    def enter(self) -> None:
        """In the new process: a session of its own that dies with its parent, in its folder, with its streams.

        From here on a signal does to it what it does to any process.
        """
        _signal.set_wakeup_fd(-1)
        for handled in HANDLED:
            _signal.signal(handled, _DEFAULT)
        os.setsid()
        set_death_signal(_DEATH)
        if os.getppid() != self.parent:
            os._exit(1)  # the parent ended before its death could be noticed
        if self.group is not None:
            self.group.enter()
        put_limit(self.mark)
        null = os.open(os.devnull, os.O_RDONLY)
        for descriptor, number in ((null, 0), (self.out, 1), (self.err, 2)):
            os.dup2(descriptor, number)
        os.close(null)
        os.chdir(self.work)
        if self.umask is not None:
            os.umask(self.umask)
        _signal.pthread_sigmask(_SET_MASK, ())


def fork() -> int:
    """As os.fork(); the child gets no signal before it has entered, when none is lost on its parent's handlers."""
    before = _signal.pthread_sigmask(_BLOCK, HANDLED)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid:
            _signal.pthread_sigmask(_SET_MASK, before)
    return pid


def execute(start: Start) -> int:
    """Fork and execute the command; the pid of the new process. LaunchFailedError where it cannot be executed."""
    reading, failure = os.pipe2(os.O_CLOEXEC)
    try:
        pid = fork()
    except OSError:
        os.close(reading)
        os.close(failure)
        raise
    if pid == 0:
        _become(start, failure)
    os.close(failure)
    problem = _read_to_end(reading)
    if problem:
        os.waitpid(pid, 0)
        raise LaunchFailedError(problem)
    return pid


def _become(start: Start, failure: int) -> None:
    command = start.command
    try:
        start.enter()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvpe(command[0], command, start.variables)  # noqa: S606  a shell is never wanted
    except (OSError, ValueError, IndexError) as error:
        name = command[0] if command else "(no command)"
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        os.write(failure, f"cannot start {name!r}: {reason}".encode(errors="replace")[:4000])
    finally:
        os._exit(127)


def _read_to_end(descriptor: int) -> str:
    parts = []
    while part := os.read(descriptor, 4096):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode(errors="replace")
