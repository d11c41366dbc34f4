"""Trials that are evaluated from outside: an evaluator asks for one, holds it by a token, and tells what came of it.

What it holds is an attempt like any other, but that no agent runs it: the service launches nothing, and orders nothing.
It is held by a lease, which everything that is told renews, and the trial is given to another that asks when the lease
is over. A trial that is to stop is taken back at once, for nobody has to end it; its evaluator hears of it with the
next word that it says.
"""

from __future__ import annotations

from dataclasses import replace

from trials.wire.attempt import AttemptKey
from trials.wire.limits import STEP_MAX
from trials.wire.records import ExitCause, ExitRecord, MetricRecord
from tuner_service.dispatcher import agents, attempts, endings, exits, launching, reports
from tuner_service.dispatcher.commands import ReportsReceived, TrialAsked, TrialTold
from tuner_service.dispatcher.limits import DETAIL_LIMIT
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep
from tuner_service.domain.errors import ConflictError, Fault, InputError, NotHeldError, UnavailableError
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import EVALUATOR, Attempt, AttemptStatus, Trial, TrialReason, TrialStatus

TOLD = ExitRecord(cause=ExitCause.EXITED, code=0)


# ── asking ──────────────────────────────────────────────────────────────────────────────────────
def asked(step: Step, command: TrialAsked) -> ExperimentState:
    """Give the evaluator a trial that waits; nothing where none does, or where as many are held as may be.

    One that asks again with its token is given nothing new, and its lease is renewed.
    """
    xs = step.find(command.experiment_id)
    if not xs.experiment.spec.trial.is_asked_for:
        raise ConflictError(
            f"the trials of experiment {xs.id} are launched by the service; those of one with trial.lease are asked for"
        )
    held = _held(step, xs, command.token)
    if held is not None:
        _renew(held)
        return xs
    if xs.experiment.status.has_ended:
        raise ConflictError(
            f"experiment {xs.id} is {xs.experiment.status.value}, so there is nothing to ask for", ("resume",)
        )
    waiting = _next_waiting(xs)
    if waiting is not None and xs.experiment.status is ExperimentStatus.RUNNING:
        _give(step.trial(xs, waiting.number), command.token)
    return xs


def _next_waiting(xs: ExperimentState) -> Trial | None:
    if len(xs.attempts) >= xs.experiment.spec.budget.parallel:
        return None
    return next((t for t in xs.trials_with(TrialStatus.WAITING) if t.number not in xs.held_until), None)


def _give(ts: TrialStep, token: str) -> None:
    at = ts.step.at
    attempt = Attempt(
        key=AttemptKey(experiment_id=ts.xs.id, number=ts.number, attempt=ts.trial.attempts + 1),
        nonce=token,
        lineage=ts.step.state.lineage,
        agent_id=EVALUATOR,
        status=AttemptStatus.RUNNING,
        created_at=at,
        started_at=at,
        last_heard_at=at,
    )
    launching.begin_attempt(ts, attempt, TrialReason.ASKED)


def _held(step: Step, xs: ExperimentState, token: str) -> TrialStep | None:
    """The trial that is held by this token."""
    for attempt in xs.attempts.values():
        if attempt.nonce == token and attempt.agent_id == EVALUATOR:
            return step.trial(xs, attempt.key.number)
    return None


def _renew(ts: TrialStep) -> None:
    ts.put_attempt(replace(ts.live, last_heard_at=ts.step.at))


# ── telling ─────────────────────────────────────────────────────────────────────────────────────
def told(step: Step, command: TrialTold) -> ExperimentState:
    """Take what an evaluator says of the trial that it holds. NotHeldError where the token holds none (any more)."""
    xs = step.find(command.experiment_id)
    ts = _held(step, xs, command.token)
    if ts is None:
        raise NotHeldError(xs.id, command.token)
    if command.step is not None:
        _report(ts, command, command.step)
    elif not command.ends:
        _renew(ts)
    elif command.error is not None:
        _fail(ts, command.error)
    else:
        _succeed(ts, command)
    return xs


def _report(ts: TrialStep, command: TrialTold, at_step: int) -> None:
    """Intermediate metrics. They have the identity (trial, attempt, step): the same step again changes nothing.

    The sequence of a report follows from its step, so that steps of one attempt go up, with gaps where there are some.
    """
    sequence, known = at_step + 1, ts.live.acknowledged
    if not 0 <= at_step < STEP_MAX:
        raise InputError([Fault(pointer="/step", message=f"should be a whole number from 0 to {STEP_MAX - 1}")])
    if not command.values:
        raise InputError([Fault(pointer="/values", message="has no metric; a report of a step holds one at least")])
    if sequence < known:
        message = f"should not go down: step {known - 1} was told before; tell all metrics of a step at once"
        raise InputError([Fault(pointer="/step", message=message)])
    if sequence == known:
        _renew(ts)
        return
    if agents.is_refusing(ts):
        ts.heard()  # it waits for the service
        raise UnavailableError(f"reports of experiment {ts.xs.id} wait for its assessor; tell this one again later")
    _record(ts, MetricRecord(step=at_step, values=command.values, at=ts.step.at), sequence)


def _record(ts: TrialStep, record: MetricRecord, sequence: int) -> None:
    attempt = ts.put_attempt(replace(ts.live, acknowledged=sequence, last_heard_at=ts.step.at))
    reports.take(
        ts,
        ReportsReceived(
            at=ts.step.at,
            agent_id=EVALUATOR,
            key=attempt.key,
            nonce=attempt.nonce,
            first_sequence=sequence,
            records=(record,),
        ),
    )


def _succeed(ts: TrialStep, command: TrialTold) -> None:
    missing = endings.missing_results(ts.trial, ts.spec, command.values)
    if missing and not ts.spec.objective.is_optional:
        raise InputError(
            [
                Fault(pointer=f"/values/{metric}", message="is missing; a trial ends with a value, or with an error")
                for metric in missing
            ]
        )
    if command.values:
        record = MetricRecord(step=None, values=command.values, at=ts.step.at, final=True)
        _record(ts, record, ts.live.acknowledged + 1)
    attempts.attempt_over(ts, AttemptStatus.EXITED, TOLD)


def _fail(ts: TrialStep, error: str) -> None:
    tail = error[-DETAIL_LIMIT:]
    record = ExitRecord(cause=ExitCause.EXITED, code=1, tail=tail)
    last = exits.last_line(tail)
    meaning = exits.Died(
        reason=TrialReason.TOLD_FAILED,
        message=f"its evaluator told that it failed: {last}" if last else "its evaluator told that it failed",
        fingerprint=exits.fingerprint("told", tail),
    )
    attempts.attempt_over(ts, AttemptStatus.EXITED, record, known=meaning)


# ── taking back ─────────────────────────────────────────────────────────────────────────────────
def take_back(step: Step, xs: ExperimentState) -> None:
    """What is to stop is over at once."""
    if not xs.experiment.spec.trial.is_asked_for:
        return
    for ts in step.trials(xs, TrialStatus.STOPPING):
        record = ExitRecord(cause=ExitCause.STOPPED, stop_reason=ts.trial.reason.value)
        attempts.attempt_over(ts, AttemptStatus.EXITED, record)


def time_passed(step: Step, xs: ExperimentState) -> None:
    """Give back what was asked for and of which nothing was told for as long as the lease."""
    lease_s = xs.experiment.spec.trial.lease_s
    if lease_s is None:
        return
    for attempt in list(xs.attempts.values()):
        if step.at - attempt.last_heard_at > lease_s:
            message = f"its evaluator told nothing for {lease_s:g} s; given back"
            meaning = exits.Interrupted(reason=TrialReason.LEASE_EXPIRED, message=message)
            ts = step.trial(xs, attempt.key.number)
            attempts.attempt_over(ts, AttemptStatus.LOST, attempts.LOST, known=meaning)
