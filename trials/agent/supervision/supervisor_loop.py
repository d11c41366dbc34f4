"""The work of the parent of one attempt: from the claim of its nonce to the record of its end."""

from __future__ import annotations

import signal

from trials.agent.supervision.attempt_life import Supervised
from trials.agent.supervision.parent import Parent
from trials.agent.supervision.starting import execute
from trials.files import ATTEMPT_BYTES, may_pass, read_record
from trials.processes.parents import become_subreaper, end_mask
from trials.wire.files import FILE_ATTEMPT
from trials.wire.log_lines import LogForm, write_line

EXIT_NO_ROOM = 75  # it could not claim the nonce: nothing was started, and it may be tried again
SUPERVISOR_LOG = "supervisor.log"  # in the attempt's folder: what a supervisor says


def supervise(folder: str, *, why: str | None = None) -> int:
    """Run the attempt to its end; returns at once if its nonce is spent already. ``why`` it has its own supervisor."""
    path = f"{folder}/{FILE_ATTEMPT}"
    try:
        attempt = read_record(path, limit=ATTEMPT_BYTES)
        parent = Parent(start=execute, isolation="spawn")  # catches signals before the claim: then some may be sent
        supervised = Supervised(folder, attempt, parent=parent, why_spawned=why)
        if not supervised.claim():
            return 0
    except (OSError, ValueError, MemoryError) as error:
        if may_pass(error):
            return EXIT_NO_ROOM
        logger = "trials.agent.supervision"
        write_line(LogForm.AUTO, logger=logger, event="attempt_not_started", path=path, error=repr(error))
        return 1
    become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: parent.shut_down())
    end_mask()  # of a fork: now whatever was sent to it meanwhile is taken by its own handlers
    parent.take(supervised)
    while parent.attempts:
        parent.turn()
    parent.matchers.close()
    return 0
