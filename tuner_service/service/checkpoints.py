"""What a trial may go on from that another trial of its experiment saved."""

from __future__ import annotations

from trials.wire.checkpoints import CheckpointsFound, CheckpointsWanted
from trials.wire.files import BEST_TRIAL
from trials.wire.launch import CheckpointRef
from trials.wire.limits import STEP_MAX
from tuner_service.ports import Queries

STEPS_NAMED = 10  # in the error that names those there are


def blob_for(queries: Queries, digest: str, *, agent_id: str) -> bytes | None:
    """The bytes; None where there are none, or the agent has no attempt that could need them. Any thread."""
    return queries.blob(digest) if queries.is_for_agent(digest, agent_id) else None


def checkpoints_for(queries: Queries, wanted: CheckpointsWanted, *, agent_id: str) -> CheckpointsFound:
    """Newest first; an error that says what there is instead, when nothing fits. Any thread.

    Only for an attempt that runs on that agent.
    """
    number = wanted.number
    live = queries.live_attempts(wanted.experiment_id)
    if not any(attempt.is_held_by(agent_id, wanted.nonce) for attempt in live):
        error = f"agent {agent_id!r} has no such attempt of experiment {wanted.experiment_id}"
        return CheckpointsFound(request_id=wanted.request_id, nonce=wanted.nonce, error=error)
    if not all(0 <= asked <= STEP_MAX for asked in (number, wanted.step or 0)):
        error = f"trial and step are numbers from 0 to {STEP_MAX}"
        return CheckpointsFound(request_id=wanted.request_id, nonce=wanted.nonce, error=error)
    if number == BEST_TRIAL:
        experiment = queries.experiment(wanted.experiment_id)
        best = None if experiment is None else experiment.best_number
        if best is None:
            error = f"experiment {wanted.experiment_id} has no best trial so far: none has ended with a result"
            return CheckpointsFound(request_id=wanted.request_id, nonce=wanted.nonce, error=error)
        number = best
    found, problem = _of_trial(queries, wanted.experiment_id, number, wanted.step)
    return CheckpointsFound(request_id=wanted.request_id, nonce=wanted.nonce, checkpoints=found, error=problem)


def _of_trial(
    queries: Queries, experiment_id: str, number: int, step: int | None
) -> tuple[tuple[CheckpointRef, ...], str | None]:
    """Its checkpoints, or why there are none."""
    place = f"trial {number} of experiment {experiment_id}"
    rows = [c for c in queries.checkpoints(experiment_id, number) if not c.damaged]
    found = [c for c in rows if step in (None, c.step)]
    error = None
    if queries.trial(experiment_id, number) is None:
        error = f"there is no {place}"
    elif not rows:
        error = f"{place} has saved no checkpoint so far"
    elif not found:
        steps = ", ".join(str(c.step) for c in rows[:STEPS_NAMED])
        error = f"{place} keeps no checkpoint of step {step}; it has those of step {steps}"
    return tuple(CheckpointRef(digest=c.digest, step=c.step, size=c.size, path=c.location) for c in found), error
