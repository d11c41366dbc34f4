"""The process that is the parent of trials, as each attempt that it follows uses it: what one has, all have.

A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from trials.agent.supervision.exits import count_memory_kills
from trials.agent.supervision.matching import Matchers
from trials.agent.supervision.starting import Start
from trials.processes.control_groups import ENV_CGROUPS, own_group
from trials.processes.family import Family
from trials.processes.identity import identity
from trials.wire.files import FILES_FORMAT, FORMAT

Starter = Callable[[Start], int]


class Means:
    """Of this process. ``start`` makes a process that is a trial; ``orders`` is the socket of one that lives on."""

    def __init__(self, *, start: Starter, isolation: str, orders: str | None = None) -> None:
        self.base: Mapping[str, str] = os.environ  # what the variables of trials are made from
        self.makes_groups = os.environ.get(ENV_CGROUPS) != "off"
        self.group = own_group()
        self.family = Family()
        self.matchers = Matchers(self.family.helpers)
        self.start = start
        self.isolation = isolation
        # One that lives on can wait for the word that the service has an exit on its disk. One that would live for
        # that alone is better gone.
        self.lives_on = orders is not None
        self.claim = {FORMAT: FILES_FORMAT, **identity(os.getpid()), **({} if orders is None else {"orders": orders})}
        if self.makes_groups and self.group is not None:
            self.claim["groups"] = self.group
        self._memory_kills = count_memory_kills()
        self._memory_killed_at = -1.0
        self._wakes: Any = None  # the socket by which agents are woken

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
