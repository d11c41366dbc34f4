"""Further parameters for a running trial: its script asks, the tuner is asked, the answer is kept and sent.

Parameters have the identity (trial, index): what was chosen once is given to every attempt that asks for the index.
In a deterministic experiment a trial is served in its turn only, when it is the next whose outcome is told and its
reports are judged: so what the tuner knows then does not depend on which trial asked first.
"""

from __future__ import annotations

from trials.wire.messages import FurtherParameters
from trials.wire.records import ParametersWantedRecord
from tuner_service.dispatcher import endings, launching
from tuner_service.dispatcher.items import Answer, NoSuggestionYet, Suggested, SuggestionRequested
from tuner_service.dispatcher.limits import FURTHER_PARAMETERS_LIMIT
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import Attempt, Trial, TrialReason, TrialStatus

SERVED = frozenset({ExperimentStatus.RUNNING, ExperimentStatus.PAUSED})  # running trials of a paused one go on


# ── asked by scripts ────────────────────────────────────────────────────────────────────────────
def wanted(step: Step, xs: ExperimentState, attempt: Attempt, record: ParametersWantedRecord) -> None:
    """A script waits for parameters ``index``: sent at once where they are known, or where there are none."""
    number = attempt.key.number
    trial = step.put_trial(xs, number, wanted_index=max(xs.trials[number].wanted_index, record.index))
    if trial.further_ended or record.index <= len(trial.further_parameters):
        _send(step, xs, record.index, trial)
    elif xs.experiment.spec.advisor is not None:
        _end(step, xs, trial)  # its trials have one set of parameters each


def send_wanted(step: Step, xs: ExperimentState, attempt: Attempt) -> None:
    """Repeat the newest answer to an attempt that may not have heard it."""
    trial = xs.trials[attempt.key.number]
    if trial.wanted_index and not trial.waits_for_parameters:
        _send(step, xs, trial.wanted_index, trial)


def _send(step: Step, xs: ExperimentState, index: int, trial: Trial) -> None:
    """The script was silent while it waited, which is not held against it."""
    attempt = step.put_attempt(xs, trial.number, last_heard_at=step.at)
    known = index <= len(trial.further_parameters)
    parameters = trial.parameters_of(index) if known else None
    answer = FurtherParameters(key=attempt.key, nonce=attempt.nonce, index=index, parameters=parameters)
    step.tell(attempt.agent_id, answer)


def _end(step: Step, xs: ExperimentState, trial: Trial) -> None:
    """There are no further parameters for this trial, whoever asks."""
    trial = step.put_trial(xs, trial.number, further_ended=True)
    if trial.number in xs.attempts:
        _send(step, xs, trial.wanted_index, trial)


# ── asking the tuner ────────────────────────────────────────────────────────────────────────────
def request_all(step: Step, xs: ExperimentState) -> None:
    """Ask for every running trial that waits, unless the tuner itself waits for an outcome."""
    if xs.experiment.status in SERVED and not xs.experiment.tuner_waits:
        for trial in _waiting(xs):
            if not xs.is_choosing_for(trial.number):
                _request(step, xs, trial)


def release(step: Step, xs: ExperimentState) -> None:
    """Where the tuner waits for an outcome and every trial that runs waits for the tuner, one goes on without."""
    waiting = _waiting(xs)
    if waiting and xs.experiment.tuner_waits and not xs.requests and len(waiting) == len(xs.attempts):
        _end(step, xs, waiting[0])


def request_in_turn(step: Step, xs: ExperimentState, trial: Trial) -> None:
    """Deterministic: ask for the trial whose outcome is told next, once everything it reported is judged."""
    if xs.experiment.status in SERVED and endings.is_judged(xs, trial) and trial in _waiting(xs):
        _request(step, xs, trial)


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
        why = Why(reason=TrialReason.PREEMPTED, message=message)
        trial = step.move_trial(xs, waiting[-1].number, TrialStatus.STOPPING, why)
        launching.order_stop(step, xs, xs.attempts[trial.number], why.reason.value)


def _waiting(xs: ExperimentState) -> list[Trial]:
    running = xs.trials_with(TrialStatus.RUNNING)
    return [trial for trial in running if trial.waits_for_parameters and trial.pending_end is None]


def _request(step: Step, xs: ExperimentState, trial: Trial) -> None:
    number, index = trial.number, len(trial.further_parameters) + 1
    if index > FURTHER_PARAMETERS_LIMIT:
        _end(step, xs, trial)
        return
    line = step.journal(xs, LineKind.SUGGESTION_REQUESTED, {"number": number, "index": index})
    item = SuggestionRequested(line=line, number=number, index=index)
    step.enqueue(xs, LineKind.SUGGESTION_REQUESTED, item)


# ── answered by the tuner ───────────────────────────────────────────────────────────────────────
def answered(step: Step, xs: ExperimentState, item: SuggestionRequested, answer: Answer) -> None:
    """Keep the answer, also where the trial has ended meanwhile: the tuner counts it as given."""
    number = item.number
    trial = xs.trials[number]
    deterministic = xs.experiment.spec.deterministic
    match answer:
        case Suggested():
            further, lines = (*trial.further_parameters, answer.parameters), (*trial.further_lines, item.line)
            trial = step.put_trial(xs, number, further_parameters=further, further_lines=lines)
            if number in xs.attempts:
                _send(step, xs, item.index, trial)
        case NoSuggestionYet() if not deterministic:
            step.put_experiment(xs, tuner_waits=not xs.tells_more)
        case _:
            # Deterministic and not yet: no outcome is told before this trial's own, so that it cannot wait for one.
            _end(step, xs, trial)
    if trial.status.is_final and not deterministic:
        endings.tell(step, xs, number)
