"""Waiting for the RCU grace period of a control group before the next trial's process needs it."""

from __future__ import annotations

import asyncio
import os
import time

from trials.processes.control_groups import ENV_CGROUPS, ControlGroup, own_group

READY_S = 0.005  # for so long at least after one move, another waits for no grace period


class GroupMoves:
    """Moves the agent into the group that it is in already, in a thread, while the next trial is being prepared.

    Moving a process into a control group takes a lock that readers hold without cost, and its writer waits for an RCU
    grace period, until every processor of the machine has passed through the scheduler: 8 to 10 ms, of the time between
    two trials. For some milliseconds after one move the lock stays with its writers, and others move at once. Where
    groups are not granted, nothing is done. docs/speed.md has the figure.
    """

    def __init__(self) -> None:
        own = own_group() if os.environ.get(ENV_CGROUPS) != "off" else None
        self._own = None if own is None else ControlGroup(own)
        self._entering: asyncio.Future[bool] | None = None
        self._began = -READY_S

    def expect(self) -> None:
        """A process is soon to be moved into one."""
        now = time.monotonic()
        if self._own is None or now - self._began < READY_S:
            return
        if self._entering is None or self._entering.done():
            self._began = now
            self._entering = asyncio.get_running_loop().run_in_executor(None, self._own.enter)
