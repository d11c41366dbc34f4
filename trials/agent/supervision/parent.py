"""The loop of a process that is the parent of trials: it waits for what happens to any of them.

A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from trials.agent.supervision.attempt_life import POLL_S, SAMPLE_S, Supervised
from trials.agent.supervision.means import Means, Starter
from trials.processes.parents import Waker

HOST_SHUTDOWN = "host_shutdown"


class Parent(Means):
    """This process, and the attempts that it follows. ``start`` makes a process that is a trial."""

    def __init__(self, *, start: Starter, isolation: str, orders: str | None = None) -> None:
        super().__init__(start=start, isolation=isolation, orders=orders)
        self.attempts: dict[str, Supervised] = {}
        self.extra: dict[int, Callable[[], None]] = {}  # further descriptors, and what to do when they are readable
        self._memory_looked_at = time.monotonic()
        self._waker = Waker([signal.SIGCHLD, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT])
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
        """Do what is due, then wait for something to happen, for ``most_s`` at most, if anything can."""
        now = time.monotonic()
        for supervised in list(self.attempts.values()):
            if self._was_woken or supervised.due <= now:
                supervised.due = now + _contained(supervised, supervised.step)
                if supervised.is_over:
                    del self.attempts[supervised.nonce]
        self._was_woken = False
        if not self.attempts and not self.extra:
            return
        if now - self._memory_looked_at > SAMPLE_S:
            self._memory_looked_at = now
            self.saw_memory_kill(now)
        soonest = min((supervised.due for supervised in self.attempts.values()), default=now + most_s)
        poller = select.poll()
        readers: dict[int, Callable[[], object]] = {self._waker.descriptor: self._woken, **self.extra}
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

    def _woken(self) -> None:
        self._was_woken = True
        self._waker.drain()


def _contained(supervised: Supervised, work: Callable[[], Any], *, otherwise: Any = 0.0) -> Any:
    """What ``work`` returns. Whatever goes wrong with one attempt ends that attempt alone."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001  not foreseen: the others go on
        supervised.give_up(error)
        return otherwise
