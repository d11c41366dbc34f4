"""Running a command that nothing outlives: neither itself nor whatever it starts, however that tries to get away.

For code of users that is no trial. A control group holds it where the kernel grants one; besides, this process is the
subreaper of everything below it, and all of that is marked. A keeper that is killed leaves a record with the mark, by
which the next keeper of the same folder ends what is left.
A keeper imports this module when it starts, so the module imports little.
"""
# This module does without pathlib, whose import would add a tenth to the start of a keeper.
# ruff: noqa: PTH103, PTH108, PTH208

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn

from trials.files import create_once, read_json, to_json
from trials.processes.control_groups import ENV_CGROUPS, ControlGroup, group_at, make_group, own_group
from trials.processes.ending import Escalation, kill_tree, kill_until_gone
from trials.processes.family import Family
from trials.processes.identity import Identity, identity, is_alive
from trials.processes.marks import NONCE_VARIABLE, limit_of, put_limit
from trials.processes.parents import Waker, become_subreaper, die_with, end_mask, ending_of, fork, leave_handlers
from trials.processes.usage import memory_of

PROCESSES_LIMIT = 512  # of the command and whatever it started; with more it is killed
LEAVE_S = 2.0  # for a command whose streams' other side is gone: it ends by itself as a rule
SAMPLE_S = 1.0  # memory and processes are looked at this often,
BUSY_SAMPLE_S = 0.1  # and this often with half of the memory or an eighth of the processes in use
SAYS = "the algorithm worker was ended: "  # begins what a keeper writes to the standard error, for the service
PREFIX = "kept-"
EXIT_NOT_STARTED = 127
_OF_TERMINALS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def keep(
    command: list[str], *, records: str, memory_bytes: int, leave_s: float = LEAVE_S, is_bounded: bool = True
) -> NoReturn:
    """Run ``command`` to its end, and end as it did: with its exit code, or by the same signal.

    ``leave_s``: for the command to end by itself once its streams' other side is gone. ``is_bounded``: whether it may
    have so many processes only.
    """

    def execute(nonce: str) -> None:
        try:
            os.execvpe(command[0], command, {**os.environ, NONCE_VARIABLE: nonce})  # noqa: S606  a shell is never wanted
        except OSError as error:
            os.write(2, f"{SAYS}cannot start {command[0]!r}: {error.strerror}\n".encode(errors="replace"))

    keep_forked(execute, records=records, memory_bytes=memory_bytes, leave_s=leave_s, is_bounded=is_bounded)


def keep_forked(
    become: Callable[[str], None],
    *,
    records: str,
    memory_bytes: int,
    leave_s: float = LEAVE_S,
    is_bounded: bool = True,
) -> NoReturn:
    """As ``keep``, of a fork of this process that becomes the command.

    ``become`` is called there with the command's mark, and does not return.
    """
    end_leftovers(records)
    nonce = f"{PREFIX}{os.urandom(8).hex()}"
    keeper = _Keeper(become, nonce=nonce, memory_bytes=memory_bytes)
    keeper.leave_s, keeper.processes = leave_s, PROCESSES_LIMIT if is_bounded else 0
    record = _write_record(records, nonce, keeper.group)
    status = keeper.run()
    if record:
        os.unlink(record)
    _end_as(status)


def end_leftovers(records: str) -> None:
    """End what commands left behind whose keepers were killed; returns when nothing of it lives."""
    try:
        names = [name for name in os.listdir(records) if name.startswith(PREFIX) and not name.endswith(".tmp")]
    except OSError:
        return  # nothing was ever kept here
    for name in names:
        path = f"{records}/{name}"
        found = read_json(path) or {}
        keeper = Identity.read(found)
        if keeper is not None:
            if is_alive(keeper):
                continue
            group = group_at(str(found.get("group", "")))
            kill_tree(None, name, group=group)
            if group is not None:
                group.remove()
        try:
            os.unlink(path)
        except OSError:
            continue  # another keeper was quicker


def _write_record(records: str, nonce: str, group: ControlGroup | None) -> str:
    """The path of it; empty where there is no room: then only the kernel's means are left."""
    path = f"{records}/{nonce}"
    try:
        os.makedirs(records, mode=0o700, exist_ok=True)
        create_once(path, to_json({**identity(os.getpid()), "group": "" if group is None else group.path}))
    except OSError:
        return ""
    return path


class _Keeper:
    """One command, from its start to the end of everything it started."""

    def __init__(self, become: Callable[[str], None], *, nonce: str, memory_bytes: int) -> None:
        self._become, self._nonce, self._memory_bytes = become, nonce, memory_bytes
        self.leave_s, self.processes = LEAVE_S, PROCESSES_LIMIT
        makes_groups = os.environ.get(ENV_CGROUPS) != "off"
        self.group = make_group(nonce, parent=own_group()) if makes_groups else None
        self._kernel_keeps_limit = bool(
            memory_bytes and self.group is not None and self.group.limit_memory(memory_bytes)
        )
        self._family = Family()
        self._pid = 0
        self._told_to_end = False
        self._leaving: Escalation | None = None  # once the streams' other side was found gone
        self._sampled_at = time.monotonic()
        self._sample_every = SAMPLE_S

    def run(self) -> int:
        """The status of the command as ``waitpid`` gives it; nothing that it started lives when this returns."""
        become_subreaper()
        # Signals that reach a whole terminal are ignored: the service decides when a worker ends.
        waker = Waker([signal.SIGCHLD], ignored=_OF_TERMINALS)
        signal.signal(signal.SIGTERM, self._tell_to_end)
        keeper = os.getpid()
        self._pid = fork()
        if self._pid == 0:
            self._enter_command(keeper)
        self._family.add(self._nonce, self._pid)
        leash = self._let_go_of_streams()
        while ending_of(self._pid) is None:
            self._wait(waker, leash)
            if self._told_to_end or (self._leaving is not None and self._leaving.due(time.monotonic())[0] is not None):
                self._kill_all()
            else:
                self._keep_limits()
        self._kill_all()
        _, status = os.waitpid(self._pid, 0)
        if self._kernel_keeps_limit and self.group is not None and self.group.memory_kills():
            self._say(f"it and what it started used more than {_gib(self._memory_bytes)} of memory")
        if self.group is not None:
            self.group.remove()
        return status

    # ── starting ──────────────────────────────────────────────────────────────────────────────
    def _tell_to_end(self, *_: object) -> None:
        self._told_to_end = True

    def _enter_command(self, keeper: int) -> NoReturn:
        try:
            leave_handlers()
            for number in (*_OF_TERMINALS, signal.SIGPIPE):  # what is ignored would stay so in the command
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            die_with(keeper, code=EXIT_NOT_STARTED)
            if self.group is not None:
                self.group.enter()
            put_limit(limit_of(self._nonce))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if self._memory_bytes:
                # Of each process: so the one that asks for too much is refused, and can say where it did.
                _lower(resource.RLIMIT_DATA, self._memory_bytes)
            end_mask()
            self._become(self._nonce)
        except OSError as error:
            os.write(2, f"{SAYS}cannot be started: {error.strerror}\n".encode(errors="replace"))
        finally:
            os._exit(EXIT_NOT_STARTED)

    def _let_go_of_streams(self) -> int:
        """Keep of the streams only what tells that their other side is gone; a descriptor to be looked at."""
        leash = os.dup(0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        return leash

    # ── following ─────────────────────────────────────────────────────────────────────────────
    def _wait(self, waker: Waker, leash: int) -> None:
        poller = select.poll()
        poller.register(waker.descriptor, select.POLLIN)
        if self._leaving is None:
            poller.register(leash, 0)  # what comes is not for this process; only that nothing can come any more
        for descriptor, _ in poller.poll(self._sample_every * 1000):
            if descriptor == leash:
                # The end of its streams has told the command to end. It gets no SIGTERM, which would only cut it short.
                self._leaving = Escalation(now=time.monotonic(), told_s=self.leave_s, grace_s=LEAVE_S)
        waker.drain()

    def _keep_limits(self) -> None:
        now = time.monotonic()
        if now - self._sampled_at < self._sample_every:
            return
        self._sampled_at = now
        everyone = set(self._everyone())
        used = sum(map(memory_of, everyone)) if self._memory_bytes and not self._kernel_keeps_limit else 0
        if self.processes and len(everyone) > self.processes:
            self._say(f"it had started {len(everyone)} processes, and may have {self.processes} at a time")
            self._kill_all()
        elif self._memory_bytes and used > self._memory_bytes:
            limit = f"more than {_gib(self._memory_bytes)} (setting worker_memory)"
            self._say(f"it and what it started used {_gib(used)} of memory, {limit}")
            self._kill_all()
        near = (self.processes and len(everyone) > self.processes / 8) or (
            self._memory_bytes and used > self._memory_bytes / 2
        )
        self._sample_every = BUSY_SAMPLE_S if near else SAMPLE_S

    # ── ending ────────────────────────────────────────────────────────────────────────────────
    def _everyone(self) -> list[int]:
        return [*self._family.everyone(self._nonce), *(() if self.group is None else self.group.pids())]

    def _kill_all(self) -> None:
        """Until nothing is left but the command itself, which is reaped when its end was looked at."""
        kill_until_gone(self._left, group=self.group)

    def _left(self) -> set[int]:
        ended = ending_of(self._pid) is not None
        return {pid for pid in self._everyone() if not (ended and pid == self._pid)} - {os.getpid()}

    def _say(self, what: str) -> None:
        try:
            os.write(2, f"{SAYS}{what}\n".encode())
        except OSError:
            return  # nobody listens any more


def _lower(which: int, limit: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard == resource.RLIM_INFINITY or hard >= limit:
        resource.setrlimit(which, (limit, limit))


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB"


def _end_as(status: int) -> NoReturn:
    """Whoever waits for this process learns how the command ended."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)
