"""A process as the parent of trials: it waits for what happens to any of them.

Imported by the supervisor, so it stays as small as its start is quick.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from trials.agent.supervision.exits import count_memory_kills
from trials.agent.supervision.matching import Matchers
from trials.agent.supervision.starting import Start
from trials.processes.control_groups import ENV_CGROUPS, own_group
from trials.processes.family import Family
from trials.processes.identity import identity
from trials.wire.files import FILES_FORMAT, FORMAT

if TYPE_CHECKING:
    from trials.agent.supervision.supervised import Supervised

POLL_S = 1.0  # a stop is looked for this often even if the signal that announces it was lost
SAMPLE_S = 1.0  # use is looked at this often
HOST_SHUTDOWN = "host_shutdown"

Starter = Callable[[Start], int]


class Parent:
    """This process as the parent of trials. ``start`` makes a process that is a trial."""

    def __init__(self, *, start: Starter, isolation: str, orders: str | None = None) -> None:
        self.attempts: dict[str, Supervised] = {}
        self.base: Mapping[str, str] = os.environ  # what the variables of trials are made from
        self.makes_groups = os.environ.get(ENV_CGROUPS) != "off"
        self.group = own_group()
        self.family = Family()
        self.matchers = Matchers(self.family.helpers)
        self.start = start
        self.isolation = isolation
        # One that lives on can wait for the word that the service has an exit on its disk. One that would live for
        # that alone is better gone.
        self.syncs_later = orders is not None
        self.claim = {FORMAT: FILES_FORMAT, **identity(os.getpid()), **({} if orders is None else {"orders": orders})}
        if self.makes_groups and self.group is not None:
            self.claim["groups"] = self.group
        self.extra: dict[int, Callable[[], None]] = {}  # further descriptors, and what to do when they are readable
        self._memory_kills = count_memory_kills()
        self._memory_killed_at = -1.0
        self._memory_looked_at = time.monotonic()
        self._waker = _catch_signals()
        self._wakes: Any = None  # the socket by which agents are woken
        self._was_woken = False

    def take(self, supervised: Supervised) -> None:
        """Follow an attempt that was claimed, from its start to its end."""
        self.attempts[supervised.nonce] = supervised
        _contained(supervised, supervised.begin)

    def shut_down(self) -> None:
        """The machine is about to stop: every trial is told, within its grace."""
        for supervised in self.attempts.values():
            supervised.order_stop(grace_s=float(supervised.spec.get("stop_grace_s", 30.0)), reason=HOST_SHUTDOWN)

    def turn(self, *, most_s: float = POLL_S) -> None:
        """Do what is due, then wait for something to happen, for ``most_s`` at most."""
        now = time.monotonic()
        for supervised in list(self.attempts.values()):
            if self._was_woken or supervised.due <= now:
                supervised.due = now + _contained(supervised, supervised.step)
                if supervised.is_over:
                    del self.attempts[supervised.nonce]
        self._was_woken = False
        if now - self._memory_looked_at > SAMPLE_S:
            self._memory_looked_at = now
            self.saw_memory_kill(now)
        soonest = min((supervised.due for supervised in self.attempts.values()), default=now + most_s)
        poller = select.poll()
        readers: dict[int, Callable[[], object]] = {self._waker: self._woken, **self.extra}
        for descriptor in readers:
            poller.register(descriptor, select.POLLIN)
        for supervised in self.attempts.values():
            matching = _contained(supervised, supervised.matching, otherwise=None)
            if matching is not None:
                poller.register(matching, select.POLLIN)
                readers[matching] = partial(_contained, supervised, supervised.go_on_matching)
            if supervised.reads_from > now:
                soonest = min(soonest, supervised.reads_from)
                continue
            for descriptor, wanted in _contained(supervised, supervised.descriptors, otherwise=[]):
                poller.register(descriptor, select.POLLIN if wanted else 0)
                readers[descriptor] = lambda d=descriptor, s=supervised: _contained(s, lambda: s.read(d))  # type: ignore[misc]  # mypy cannot infer defaults
        for descriptor, _ in poller.poll(max(0.0, min(most_s, soonest - time.monotonic())) * 1000):
            readers[descriptor]()

    def wake_agent(self, nonce: str, path: str) -> None:
        import socket  # after the trial was started, which does not wait for this import

        if self._wakes is None:
            self._wakes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._wakes.sendto(nonce.encode(), path)
        except OSError:
            return  # no agent, or one that has not read its earlier wakes: it looks by itself

    def saw_memory_kill(self, since: float) -> bool:
        """Whether the kernel has killed for memory since then, on the monotonic clock: perhaps a little earlier."""
        counts = count_memory_kills()
        if any(a > b for a, b in zip(counts, self._memory_kills, strict=False)):
            self._memory_kills, self._memory_killed_at = counts, time.monotonic()
        return self._memory_killed_at >= since

    def _woken(self) -> None:
        self._was_woken = True
        try:
            while os.read(self._waker, 4096):
                pass
        except BlockingIOError:
            return


def _contained(supervised: Supervised, work: Callable[[], Any], *, otherwise: Any = 0.0) -> Any:
    """What ``work`` returns. Whatever goes wrong with one attempt ends that attempt alone."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001  not foreseen: the others go on
        supervised.give_up(error)
        return otherwise


def _catch_signals() -> int:
    """A descriptor that becomes readable with every signal this process gets."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return reading
