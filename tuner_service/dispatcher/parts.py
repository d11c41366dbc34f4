"""Attempts of several nodes: their parts begin together, and end together.

    prepare ─► every part is ready ─► go ─► … ─► the first that fails ends the others ─► all have ended

No part is told to begin before the rows say that all are ready, so up to then nothing runs anywhere: whatever goes
wrong is given back at once, without waiting for an agent that may be away, charged to nobody, and tried again. From
then on the attempt ends only when every part has: a part that nobody hears of may still run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trials.wire.records import ExitCause, ExitRecord, ProcessRecord
from tuner_service.dispatcher import attempts, orders
from tuner_service.dispatcher.commands import PartPrepared
from tuner_service.dispatcher.exits import Interrupted, last_line, meaning
from tuner_service.dispatcher.limits import LAUNCH_REPEAT_S, PREPARE_LIMIT_S
from tuner_service.dispatcher.step import TrialStep
from tuner_service.domain.trial import Attempt, AttemptStatus, Part, PartState, TrialStatus

NEVER_BEGUN = ExitRecord(cause=ExitCause.STOPPED)  # of one that was to stop before its agent had heard of it
# Ends of a part before any was told to begin that say themselves what becomes of the trial.
_TELLING = frozenset({ExitCause.ASSETS_MISSING, ExitCause.NOT_READY})


def as_attempt(attempt: Attempt, node: int) -> Attempt:
    """The part as the agent that has it sees it: an attempt of its own."""
    part = attempt.parts[node]
    begun = part.state is PartState.RUNNING
    return replace(
        attempt,
        nonce=part.nonce,
        agent_id=part.agent_id,
        status=AttemptStatus.RUNNING if begun else AttemptStatus.STARTING,
        acknowledged=acknowledged(attempt, node),
    )


def acknowledged(attempt: Attempt, node: int) -> int:
    """The last sequence of the part's spool that is on the service's disk."""
    return attempt.parts[node].acknowledged if node else attempt.acknowledged


# ── the two phases ──────────────────────────────────────────────────────────────────────────────
def prepared(ts: TrialStep, node: int, command: PartPrepared) -> None:
    """A part is ready; the last of them lets all begin. Said again, or too late, it changes nothing."""
    if not ts.live.is_preparing or ts.trial.status is TrialStatus.STOPPING:
        return
    told = {"address": command.address, "host": command.host, "port": command.port, "world_key": command.world_key}
    _put(ts, node, state=PartState.READY, **told)
    if not ts.live.is_preparing:
        orders.order_parts(ts)


def started(ts: TrialStep, node: int, process: ProcessRecord) -> None:
    part = ts.live.parts[node]
    if ts.live.is_preparing:
        _give_back(ts, f"{_name(node, part)} began before it was told to")
    elif part.state is PartState.READY:
        _put(ts, node, state=PartState.RUNNING, process=process)


def time_passed(ts: TrialStep) -> None:
    """Give back what is not ready in time, and order again what was not confirmed."""
    attempt, at = ts.live, ts.step.at
    if attempt.is_preparing and at - attempt.created_at > PREPARE_LIMIT_S:
        late = [_name(node, p) for node, p in enumerate(attempt.parts) if p.state is PartState.PREPARING]
        _give_back(ts, f"{' and '.join(late)} {'was' if len(late) == 1 else 'were'} not ready in {PREPARE_LIMIT_S:g} s")
        return
    is_stopping = ts.trial.status is TrialStatus.STOPPING or attempt.has_failed_part
    pause_s = LAUNCH_REPEAT_S + (ts.spec.trial.stop_grace_s if is_stopping else 0.0)
    if at - ts.xs.ordered_at.setdefault(ts.number, at) > pause_s and orders.is_owed_anything(ts):
        orders.order_parts(ts)


# ── ends ────────────────────────────────────────────────────────────────────────────────────────
def exited(ts: TrialStep, node: int, record: ExitRecord) -> None:
    """The first part that fails ends the others; the attempt ends when all have."""
    was_preparing = ts.live.is_preparing
    part = _put(ts, node, state=PartState.ENDED, exit=record, ended_at=ts.step.at)
    if was_preparing:
        if record.cause in _TELLING or ts.trial.status is TrialStatus.STOPPING:
            _over(ts, record)
        else:
            what = last_line(record.tail) or record.cause.value.replace("_", " ")
            _give_back(ts, f"{_name(node, part)} could not be made ready: {what}")
    elif all(one.state is PartState.ENDED for one in ts.live.parts):
        verdict = _verdict(ts)
        lost = verdict.cause is ExitCause.ATTEMPT_LOST
        attempts.attempt_over(ts, AttemptStatus.LOST if lost else AttemptStatus.EXITED, verdict)
    elif ts.live.has_failed_part:
        orders.order_parts(ts)


def lose(ts: TrialStep, node: int, *, why: str = "") -> None:
    """Nobody holds this part any more."""
    exited(ts, node, replace(attempts.LOST, tail=why))


def _give_back(ts: TrialStep, why: str) -> None:
    """Of a trial that is to stop it is no failure to begin."""
    cause = ExitCause.STOPPED if ts.trial.status is TrialStatus.STOPPING else ExitCause.NOT_READY
    _over(ts, ExitRecord(cause=cause, tail=why))


def _over(ts: TrialStep, record: ExitRecord) -> None:
    orders.give_back(ts)
    attempts.attempt_over(ts, AttemptStatus.EXITED, record)


def _verdict(ts: TrialStep) -> ExitRecord:
    """How the attempt ended, of all whose parts have.

    A part that was ended from outside is the reason, whoever was told first: the others fail because they do not hear
    from it any more. Else it is the first part that failed by itself; else the first part, which has the result.
    """
    ended = sorted((one for one in ts.live.parts if not one.ended_well), key=lambda one: one.ended_at or 0.0)
    failed = [record for one in ended if (record := one.exit) is not None]
    unasked = [record for record in failed if record.cause is not ExitCause.STOPPED]
    outside = [record for record in unasked if isinstance(meaning(record), Interrupted)]
    asked = [] if ts.trial.status is TrialStatus.STOPPING else failed
    first = ts.live.parts[0].exit
    assert first is not None  # noqa: S101  all have ended
    return next(iter([*outside, *unasked, *asked]), first)


# ── rows ────────────────────────────────────────────────────────────────────────────────────────
def put_acknowledged(ts: TrialStep, node: int, sequence: int) -> None:
    """Of another part than the first."""
    _put(ts, node, acknowledged=sequence)


def _put(ts: TrialStep, node: int, **fields: Any) -> Part:
    parts = ts.live.parts
    part = replace(parts[node], **fields)
    ts.put_attempt(replace(ts.live, parts=(*parts[:node], part, *parts[node + 1 :])))
    return part


def _name(node: int, part: Part) -> str:
    return f"node {node} ({part.agent_id})"
