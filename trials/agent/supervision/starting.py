"""From a fork to a process that is the trial: its session, streams, marks and folder.

A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trials.processes.control_groups import ControlGroup
from trials.processes.marks import limit_of, put_limit
from trials.processes.parents import die_with, end_mask, fork, leave_handlers

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
        leave_handlers()
        os.setsid()
        die_with(self.parent)
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
        end_mask()


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
