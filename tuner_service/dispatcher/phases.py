"""Further parameters for a running trial: its script asks, the tuner is asked, the answer is kept and sent.

Parameters have the identity (trial, index): what was chosen once is given to every attempt that asks for the index.
In a deterministic experiment a trial is served in its turn only, when it is the next whose outcome is told and its
reports are judged: so what the tuner knows then does not depend on which trial asked first.
"""

from __future__ import annotations

from dataclasses import replace

from trials.wire.messages import FurtherParameters
from trials.wire.records import ParametersWantedRecord
from tuner_service.dispatcher import endings, launching
from tuner_service.dispatcher.items import Answer, NoSuggestionYet, Suggested, SuggestionRequested
from tuner_service.dispatcher.limits import FURTHER_PARAMETERS_LIMIT
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import Trial, TrialReason, TrialStatus

SERVED = frozenset({ExperimentStatus.RUNNING, ExperimentStatus.PAUSED})  # running trials of a paused one go on


# ── asked by scripts ────────────────────────────────────────────────────────────────────────────
def wanted(ts: TrialStep, record: ParametersWantedRecord) -> None:
    """A script waits for parameters ``index``: sent at once where they are known, or where there are none."""
    trial = ts.put(replace(ts.trial, wanted_index=max(ts.trial.wanted_index, record.index)))
    if trial.further_ended or record.index <= len(trial.further_parameters):
        _send(ts, record.index)
    elif ts.spec.advisor is not None:
        _end(ts)  # its trials have one set of parameters each


def send_wanted(ts: TrialStep) -> None:
    """Repeat the newest answer to an attempt that may not have heard it."""
    trial = ts.trial
    if trial.wanted_index and not trial.waits_for_parameters:
        _send(ts, trial.wanted_index)


def _send(ts: TrialStep, index: int) -> None:
    """The script was silent while it waited, which is not held against it."""
    trial, attempt = ts.trial, ts.put_attempt(replace(ts.live, last_heard_at=ts.step.at))
    known = index <= len(trial.further_parameters)
    parameters = trial.parameters_of(index) if known else None
    told = FurtherParameters(key=attempt.key, nonce=attempt.nonce, index=index, parameters=parameters)
    ts.tell(told)
    for part in attempt.parts[1:]:  # every process waits for them
        ts.step.tell(part.agent_id, replace(told, nonce=part.nonce))


def _end(ts: TrialStep) -> None:
    """There are no further parameters for this trial, whoever asks."""
    trial = ts.put(replace(ts.trial, further_ended=True))
    if ts.attempt is not None:
        _send(ts, trial.wanted_index)


# ── asking the tuner ────────────────────────────────────────────────────────────────────────────
def request_all(step: Step, xs: ExperimentState) -> None:
    """Ask for every running trial that waits, unless the tuner itself waits for an outcome."""
    if xs.experiment.status in SERVED and not xs.experiment.tuner_waits:
        for trial in _waiting(xs):
            if not xs.is_choosing_for(trial.number):
                _request(step.trial(xs, trial.number))


def release(step: Step, xs: ExperimentState) -> None:
    """Where the tuner waits for an outcome and every trial that runs waits for the tuner, one goes on without."""
    waiting = _waiting(xs)
    if waiting and xs.experiment.tuner_waits and not xs.requests and len(waiting) == len(xs.attempts):
        _end(step.trial(xs, waiting[0].number))


def request_in_turn(ts: TrialStep) -> None:
    """Deterministic: ask for the trial whose outcome is told next, once everything it reported is judged."""
    if ts.xs.experiment.status in SERVED and endings.is_judged(ts.xs, ts.trial) and ts.trial in _waiting(ts.xs):
        _request(ts)


def make_room(step: Step, xs: ExperimentState) -> None:
    """Deterministic: trials wait for parameters until those before them have ended.

    Where the first of these waits for room itself (its device was lost, or it was interrupted) and all that runs waits
    for it, the last one gives up its place. It loses nothing but time: it goes on from its checkpoint.
    """
    first = xs.untold[0] if xs.untold else None
    if first is None or first.status is not TrialStatus.WAITING or not step.state.agents:
        return
    if first.number in xs.held_until:
        return  # it needs no room before its pause is over
    waiting = _waiting(xs)
    if waiting and len(waiting) == len(xs.attempts) and xs.experiment.status is ExperimentStatus.RUNNING:
        message = f"makes room for trial {first.number}, whose end comes before its next parameters"
        last = step.trial(xs, waiting[-1].number)
        launching.ask_to_stop(last, Why(reason=TrialReason.PREEMPTED, message=message))


def rest(step: Step, xs: ExperimentState) -> None:
    """Deterministic: trials whose turn comes only when the experiment is resumed rest until then.

    They were added to an experiment that has ended, and could wait for ever for their next parameters.
    """
    message = "its next parameters are chosen in its turn, which comes when the experiment is resumed"
    for trial in _waiting(xs):
        why = Why(reason=TrialReason.EXPERIMENT_STOPPED, message=message)
        launching.stop_trial(step.trial(xs, trial.number), TrialStatus.PAUSED, why)


def _waiting(xs: ExperimentState) -> list[Trial]:
    wanting = (xs.trials[number] for number in sorted(xs.wanting))
    return [trial for trial in wanting if trial.status is TrialStatus.RUNNING and trial.pending_end is None]


def _request(ts: TrialStep) -> None:
    index = len(ts.trial.further_parameters) + 1
    if index > FURTHER_PARAMETERS_LIMIT:
        _end(ts)
        return
    line = ts.journal(LineKind.SUGGESTION_REQUESTED, {"index": index})
    item = SuggestionRequested(line=line, number=ts.number, index=index)
    ts.step.enqueue(ts.xs, LineKind.SUGGESTION_REQUESTED, item)


# ── answered by the tuner ───────────────────────────────────────────────────────────────────────
def answered(ts: TrialStep, item: SuggestionRequested, answer: Answer) -> None:
    """Keep the answer, also where the trial has ended meanwhile: the tuner counts it as given."""
    trial, xs, deterministic = ts.trial, ts.xs, ts.spec.deterministic
    match answer:
        case Suggested():
            further, lines = (*trial.further_parameters, answer.parameters), (*trial.further_lines, item.line)
            ts.put(replace(trial, further_parameters=further, further_lines=lines))
            if ts.attempt is not None:
                _send(ts, item.index)
        case NoSuggestionYet() if not deterministic:
            ts.step.put_experiment(xs, replace(xs.experiment, tuner_waits=not xs.tells_more))
        case _:
            # Deterministic and not yet: no outcome is told before this trial's own, so that it cannot wait for one.
            _end(ts)
    if trial.status.is_final and not deterministic:
        endings.tell(ts)
