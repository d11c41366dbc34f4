"""Having the kernel ready for the next trial's process to enter its control group."""

from __future__ import annotations

import asyncio
import os
import time

from trials.processes.control_groups import ENV_CGROUPS, ControlGroup, own_group

READY_S = 0.005  # after an entering the kernel is ready for so long at least


class GroupMoves:
    """The first process in a while that enters a group waits there for every processor of the machine to take note:

    8 ms on an idle one, longer on a busy one, of the time between two trials. For some milliseconds after it, others
    enter at once. So the agent enters the group that it is in, in a thread, while the trial is being prepared. Where
    groups are not granted, nothing is done.
    """

    def __init__(self) -> None:
        own = own_group() if os.environ.get(ENV_CGROUPS) != "off" else None
        self._own = None if own is None else ControlGroup(own)
        self._entering: asyncio.Future[bool] | None = None
        self._began = -READY_S

    def expect(self) -> None:
        """A process is soon to enter one."""
        now = time.monotonic()
        if self._own is None or now - self._began < READY_S:
            return
        if self._entering is None or self._entering.done():
            self._began = now
            self._entering = asyncio.get_running_loop().run_in_executor(None, self._own.enter)
