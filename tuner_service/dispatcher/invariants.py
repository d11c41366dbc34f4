"""What is true of the dispatcher's state after every command. Tests and the simulation ask after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tuner_service.dispatcher.experiments import used_trials
from tuner_service.dispatcher.items import Queue
from tuner_service.dispatcher.ledger import UNITS, Ledger, units
from tuner_service.dispatcher.state import DispatcherState, ExperimentState
from tuner_service.dispatcher.step import report_count
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.resources import ROUNDING, WHOLE
from tuner_service.domain.rungs import RungPhase
from tuner_service.domain.trial import EVALUATOR, Attempt, AttemptStatus, PartState, TrialReason, TrialStatus

LIVE = tuple(status.value for status in TrialStatus if not status.is_final)
WITH_ATTEMPT = frozenset({TrialStatus.RUNNING, TrialStatus.STOPPING})


def violations(state: DispatcherState) -> list[str]:
    """A sentence for everything that is not as it must be; none in a correct program."""
    found: list[str] = []
    nonces: dict[str, str] = {}
    for xs in state.experiments.values():
        found += [f"experiment {xs.id}: {sentence}" for sentence in _of_experiment(xs)]
        for attempt in xs.attempts.values():
            for nonce in [part.nonce for part in attempt.parts] or [attempt.nonce]:
                if nonce in nonces:
                    found.append(f"nonce {nonce} names {attempt.key} and {nonces[nonce]}")
                nonces[nonce] = str(attempt.key)
    return [*found, *_of_holdings(state)]


def _of_holdings(state: DispatcherState) -> Iterator[str]:
    held = [xs.held(attempt) for xs in state.experiments.values() for attempt in xs.attempts.values()]
    held += [one for aside in state.set_aside.values() for one in aside.holding]
    if Ledger.of(held) != state.ledger:
        yield f"the ledger {state.ledger} is not what the attempts hold"
    for (agent_id, uuid), shares in state.ledger.shares.items():
        if shares > units(WHOLE + ROUNDING):
            yield f"device {uuid} of {agent_id} is held {shares / UNITS:g} times"
    for xs in state.experiments.values():
        for attempt in xs.attempts.values():
            agents = [part.agent_id for part in attempt.parts] or [attempt.agent_id] * len(attempt.holdings)
            if [holding.agent_id for holding in attempt.holdings] != agents:
                yield f"attempt {attempt.key} runs on {' and '.join(agents)} and holds something elsewhere"
            yield from _of_parts(attempt)


def _of_parts(attempt: Attempt) -> Iterator[str]:
    parts = attempt.parts
    if not parts:
        return
    if (parts[0].agent_id, parts[0].nonce) != (attempt.agent_id, attempt.nonce):
        yield f"attempt {attempt.key} is not that of its first part"
    if len({part.agent_id for part in parts}) < len(parts) or len(parts) == 1:
        yield f"attempt {attempt.key} has two parts on one node, or one part alone"
    states = {part.state for part in parts}
    if PartState.PREPARING in states and not states <= {PartState.PREPARING, PartState.READY}:
        yield f"attempt {attempt.key} has begun, and a part of it is still prepared"
    if states == {PartState.ENDED}:
        yield f"every part of attempt {attempt.key} has ended, and it is held as alive"
    if any((part.state is PartState.ENDED) is (part.exit is None) for part in parts):
        yield f"a part of attempt {attempt.key} has ended without an exit, or has one and lives"


def _of_experiment(xs: ExperimentState) -> Iterator[str]:
    yield from _of_counts(xs)
    yield from _of_attempts(xs)
    yield from _of_asks(xs)
    yield from _of_rests(xs)
    yield from _of_queues(xs)
    yield from _of_telling(xs)


def _of_counts(xs: ExperimentState) -> Iterator[str]:
    experiment = xs.experiment
    numbers = [*xs.requested_numbers, *experiment.free_numbers]
    if sum(experiment.counts.values()) + len(numbers) != experiment.next_number - 1:
        yield (
            f"counts {experiment.counts}, and the numbers {numbers} asked for or free, do not add up to the "
            f"{experiment.next_number - 1} numbers given out"
        )
    if list(experiment.free_numbers) != sorted(set(numbers) - set(xs.requested_numbers) - xs.trials.keys()):
        yield f"the free numbers {experiment.free_numbers} are in use, doubled or out of order"
    held = Counter([trial.status.value for trial in xs.trials.values()])
    for status in LIVE:
        if experiment.counts.get(status, 0) != held[status]:
            yield f"{experiment.counts.get(status, 0)} trials are counted as {status}"
    if xs.waiting != {trial.number for trial in xs.trials.values() if trial.status is TrialStatus.WAITING}:
        yield f"the trials {sorted(xs.waiting)} are noted as waiting"
    if xs.wanting != {trial.number for trial in xs.trials.values() if trial.waits_for_parameters}:
        yield f"the trials {sorted(xs.wanting)} are noted as waiting for parameters"
    if not 0 <= used_trials(experiment) <= experiment.next_number - 1:
        yield f"{experiment.spared} trials are spared, of {experiment.next_number - 1} numbers"
    if experiment.status is ExperimentStatus.COMPLETED and xs.attempts:
        yield "completed, and attempts are alive"


def _of_attempts(xs: ExperimentState) -> Iterator[str]:
    for number, attempt in xs.attempts.items():
        if number not in xs.trials or xs.trials[number].status not in WITH_ATTEMPT:
            yield f"attempt {attempt.key} is alive and its trial is not"
        if attempt.status.is_final:
            yield f"attempt {attempt.key} is {attempt.status.value} and held as alive"
    for trial in xs.trials.values():
        if trial.running_since is not None and trial.number not in xs.attempts:
            yield f"trial {trial.number} has no attempt, and its running time is counted on"
    for trial in xs.trials_with(*WITH_ATTEMPT):
        if trial.number not in xs.attempts and trial.pending_end is None:
            yield f"trial {trial.number} is {trial.status.value} without an attempt"


def _of_asks(xs: ExperimentState) -> Iterator[str]:
    is_asked_for = xs.experiment.spec.trial.is_asked_for
    for attempt in xs.attempts.values():
        if (attempt.agent_id == EVALUATOR) is not is_asked_for:
            yield f"attempt {attempt.key} is held by {attempt.agent_id or 'an evaluator'!r}"
        if is_asked_for and attempt.status is not AttemptStatus.RUNNING:
            yield f"attempt {attempt.key} was asked for and is {attempt.status.value}"
        if is_asked_for and attempt.holdings:
            yield f"attempt {attempt.key} was asked for and holds something of a node"
    if is_asked_for:
        for trial in xs.trials_with(TrialStatus.STOPPING):
            yield f"trial {trial.number} was asked for, is to stop and was not taken back"


def _of_rests(xs: ExperimentState) -> Iterator[str]:
    for trial in xs.trials.values():
        at_rest = trial.status is TrialStatus.PAUSED and trial.reason is TrialReason.RUNG_REACHED
        if trial.rests and not at_rest:
            yield f"trial {trial.number} is {trial.status.value}, and its advisor was told that it rests"
        if at_rest and not trial.rests and not xs.experiment.spec.deterministic:
            yield f"trial {trial.number} rests, and its advisor was not told"
        if at_rest and trial.rungs.phase is RungPhase.CLIMBING:
            yield f"trial {trial.number} rests without having reached its rung"
        if xs.experiment.status is ExperimentStatus.COMPLETED and xs.experiment.stop_to is None and trial.rests:
            yield f"completed, and trial {trial.number} rests"


def _of_queues(xs: ExperimentState) -> Iterator[str]:
    cursors = {Queue.TUNER: xs.experiment.tuner_cursor, Queue.ASSESSOR: xs.experiment.assessor_cursor}
    for queue, waiting in xs.queues.items():
        lines = [cursors[queue], *(item.line for item in waiting.pending)]
        if any(later <= earlier for earlier, later in pairwise(lines)):
            yield f"the {queue.value} queue is out of order: {lines}"
        if lines[-1] >= xs.experiment.next_line:
            yield f"the {queue.value} queue holds line {lines[-1]}, which is not written"
    if len(xs.openings) > xs.experiment.spec.workers:
        yield f"{len(xs.openings)} suggestions are asked for at a time"
    for queue, waiting in xs.queues.items():
        if waiting.reports != sum(map(report_count, waiting.pending)):
            yield f"the {queue.value} queue counts {waiting.reports} reports, which is wrong"
    if xs.experiment.spec.advisor is not None and xs.queues[Queue.ASSESSOR].pending:
        yield "an advisor has one queue, and the assessor's is used"
    asked = [(item.number, item.index) for item in xs.requests]
    if len(set(asked)) != len(asked):
        yield f"the same parameters are asked for twice: {asked}"
    if any(index and number not in xs.trials for number, index in asked):
        yield f"further parameters are asked for, of trials that are gone: {asked}"


def _of_telling(xs: ExperimentState) -> Iterator[str]:
    for trial in xs.trials.values():
        if trial.told_line is not None:
            yield f"trial {trial.number} was told and is still held"
        waits_to_be_told = xs.experiment.spec.deterministic or xs.is_choosing_for(trial.number)
        if trial.status.is_final and not waits_to_be_told:
            yield f"trial {trial.number} has ended and was not told"
        if trial.pending_end is not None and trial.status.is_final:
            yield f"trial {trial.number} has ended and its end is still pending"
