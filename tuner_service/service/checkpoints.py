"""What a trial may go on from that another trial of its experiment saved."""

from __future__ import annotations

from trials.protocol import CheckpointRef, CheckpointsFound, CheckpointsWanted
from tuner_service.ports import Queries

STEPS_NAMED = 10  # in the error that names those there are


def checkpoints_for(queries: Queries, wanted: CheckpointsWanted) -> CheckpointsFound:
    """Newest first; an error that says what there is instead, when nothing fits. Any thread."""
    place = f"trial {wanted.number} of experiment {wanted.experiment_id}"
    rows = [c for c in queries.checkpoints(wanted.experiment_id, wanted.number) if not c.damaged]
    found = [c for c in rows if wanted.step in (None, c.step)]
    error = None
    if queries.trial(wanted.experiment_id, wanted.number) is None:
        error = f"there is no {place}"
    elif not rows:
        error = f"{place} has saved no checkpoint so far"
    elif not found:
        steps = ", ".join(str(c.step) for c in rows[:STEPS_NAMED])
        error = f"{place} keeps no checkpoint of step {wanted.step}; it has those of step {steps}"
    refs = [CheckpointRef(digest=c.digest, step=c.step, size=c.size, path=c.location) for c in found]
    return CheckpointsFound(request_id=wanted.request_id, nonce=wanted.nonce, checkpoints=tuple(refs), error=error)
