"""The algorithm worker: what it answers, how it fails, and how it is replaced.

A worker is a fold over its two queues. Killed, a new generation is started and folds the history up to the cursors;
everything past them is delivered again.
"""

from __future__ import annotations

from dataclasses import replace

from trials.wire.limits import STEP_MAX
from tuner_service.dispatcher import endings, launching, phases, rungs
from tuner_service.dispatcher.changes import SkippedLine, StoredSnapshot
from tuner_service.dispatcher.commands import (
    AlgorithmFaulted,
    QueueAnswered,
    SnapshotTaken,
    WorkerDied,
    WorkerEvent,
    WorkerPonged,
    WorkerProgressed,
    WorkerReady,
)
from tuner_service.dispatcher.effects import PingWorker, StartWorker, StopWorker
from tuner_service.dispatcher.items import (
    AlgorithmFault,
    Answer,
    Decided,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    PauseAdvised,
    Queue,
    QueueItem,
    SearchSpaceUpdated,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    Taken,
)
from tuner_service.dispatcher.limits import (
    ALGORITHM_RETRIES,
    PAUSED_WORKER_S,
    PING_EVERY_S,
    PING_TIMEOUT_S,
    QUEUE_WARNING_LENGTH,
    WORKER_BACKOFF_LIMIT_S,
    WORKER_BACKOFF_S,
    WORKER_DEATHS_LIMIT,
    WORKER_DOUBLINGS_LIMIT,
    WORKER_IDLE_DEATHS_LIMIT,
    WORKER_START_LIMIT_S,
    WORKER_STEADY_S,
)
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ALGORITHM_TROUBLES, ExperimentState, WorkerPhase
from tuner_service.dispatcher.step import Step, Why, report_count
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import Trial, TrialReason, TrialStatus

WHEN_DAMAGED = (
    "its trials run on; stop the service, restore the database from a backup or repair the row (`tuner doctor` names "
    "every such row), start the service again and resume"
)
_SEE_DOCTOR = "; run `tuner doctor`"  # which the sentence above says better
SKIPPABLE = ALGORITHM_TROUBLES | {ExperimentReason.NOT_SUPPORTED}  # why an experiment rests at a line


# ── life of a worker ────────────────────────────────────────────────────────────────────────────
def start_worker(step: Step, xs: ExperimentState) -> None:
    """Start a new generation, and deliver everything that is not answered."""
    worker = xs.worker
    worker.generation += 1
    worker.phase = WorkerPhase.STARTING
    worker.respawn_at = worker.pinged_at = worker.idle_since = None
    worker.heard_at = worker.ready_at = step.at
    step.do(
        StartWorker(
            experiment_id=xs.id,
            generation=worker.generation,
            spec=xs.experiment.spec,
            tuner_cursor=xs.experiment.tuner_cursor,
            assessor_cursor=xs.experiment.assessor_cursor,
        )
    )
    for queue, waiting in xs.queues.items():
        waiting.head_since = None
        for item in waiting.pending:
            step.deliver(xs, queue, item)


def wake_worker(step: Step, xs: ExperimentState) -> None:
    """Of a paused experiment, for what a person does to it: trials, results, another space."""
    if xs.worker.phase is WorkerPhase.ABSENT and xs.worker.respawn_at is None and xs.wants_worker:
        start_worker(step, xs)


def stop_worker(step: Step, xs: ExperimentState) -> None:
    if xs.worker.phase is WorkerPhase.ABSENT and xs.worker.respawn_at is None:
        return
    xs.worker.phase = WorkerPhase.ABSENT
    xs.worker.respawn_at = None
    step.do(StopWorker(experiment_id=xs.id))


def _replace_later(step: Step, xs: ExperimentState, why: str) -> None:
    """Kill the worker and start another after a pause that grows with every death in a row."""
    worker = xs.worker
    stop_worker(step, xs)
    worker.deaths += 1
    step.journal(xs, LineKind.WORKER_REPLACED, {"why": why, "deaths": worker.deaths})
    doublings = min(worker.deaths - 1, WORKER_DOUBLINGS_LIMIT)
    worker.respawn_at = step.at + min(WORKER_BACKOFF_LIMIT_S, WORKER_BACKOFF_S * 2.0**doublings)


def heard(step: Step, event: WorkerEvent) -> ExperimentState | None:
    """The experiment an event belongs to; None when it comes from a generation that was replaced."""
    xs = step.state.experiments.get(event.experiment_id)
    if xs is None or event.generation != xs.worker.generation or xs.worker.phase is WorkerPhase.ABSENT:
        return None
    xs.worker.heard_at, xs.worker.pinged_at = step.at, None  # whatever it says, it lives
    return xs


def ready(step: Step, event: WorkerReady) -> ExperimentState | None:
    xs = heard(step, event)
    if xs is not None and xs.worker.phase is WorkerPhase.STARTING:
        xs.worker.phase = WorkerPhase.READY
        xs.worker.asks_ahead = event.asks_ahead
        xs.worker.unready_deaths = 0
        xs.worker.ready_at = step.at
        for waiting in xs.queues.values():
            waiting.head_since = step.at if waiting.pending else None
    return xs


def ponged(step: Step, event: WorkerPonged) -> ExperimentState | None:
    return heard(step, event)


def progressed(step: Step, event: WorkerProgressed) -> ExperimentState | None:
    """What it does takes as long as it takes: limits hold for a call of an algorithm, and not for all of them."""
    xs = heard(step, event)
    if xs is not None:
        if xs.worker.phase is WorkerPhase.STARTING:
            xs.worker.ready_at = step.at
        waiting = xs.queues[event.queue]
        waiting.head_since = None if waiting.head_since is None else step.at
    return xs


def died(step: Step, event: WorkerDied) -> ExperimentState | None:
    xs = heard(step, event)
    if xs is None:
        return None
    if event.damage:
        message = f"its rows are damaged: {event.damage.removesuffix(_SEE_DOCTOR)}; {WHEN_DAMAGED}"
        _halt(step, xs, Why(reason=ExperimentReason.ROWS_DAMAGED, message=message, detail=event.detail))
        stop_worker(step, xs)
        return xs
    if xs.worker.phase is WorkerPhase.STARTING:
        xs.worker.unready_deaths += 1
    for waiting in xs.queues.values():
        waiting.deaths += bool(waiting.pending)
    deaths = max(xs.worker.unready_deaths, *(waiting.deaths for waiting in xs.queues.values()))
    xs.worker.idle_deaths += 1
    if deaths >= WORKER_DEATHS_LIMIT or xs.worker.idle_deaths >= WORKER_IDLE_DEATHS_LIMIT:
        often = f"{max(deaths, xs.worker.idle_deaths)} times in a row without an answer{_waiting_lines(xs)}"
        message = f"{event.detail.partition(chr(10))[0]}, {often}; fix the cause, then resume"
        why = Why(reason=ExperimentReason.WORKER_DIES, message=message, detail=event.detail)
        for queue, waiting in xs.queues.items():
            if waiting.pending:
                _note_trouble(step, xs, queue, why)
        _halt(step, xs, why)
        stop_worker(step, xs)
    else:
        _replace_later(step, xs, "died")
    return xs


def _waiting_lines(xs: ExperimentState) -> str:
    heads = [
        f"{queue.value}: line {waiting.pending[0].line}" for queue, waiting in xs.queues.items() if waiting.pending
    ]
    return f" ({', '.join(heads)} of the journal)" if heads else ""


def snapshot_taken(step: Step, event: SnapshotTaken) -> ExperimentState | None:
    """Keep a snapshot that covers no more than what was answered."""
    xs = heard(step, event)
    if xs is not None and event.line <= _cursor(xs, event.queue):
        step.changes.snapshots.append(
            StoredSnapshot(experiment_id=xs.id, queue=event.queue, line=event.line, state=event.state, at=step.at)
        )
    return xs


# ── faults ──────────────────────────────────────────────────────────────────────────────────────
def faulted(step: Step, event: AlgorithmFaulted) -> ExperimentState | None:
    xs = heard(step, event)
    if xs is None:
        return None
    payload = {"queue": event.queue.value, "line": event.line, "fault": event.fault.value, "message": event.message}
    step.journal(xs, LineKind.ALGORITHM_FAULTED, payload)
    match event.fault:
        case AlgorithmFault.TEMPORARY:
            _try_again(step, xs, event.queue, Why(reason=ExperimentReason.ALGORITHM_FAILED, message=event.message))
        case _:
            where = f"{event.queue.value}, journal line {event.line}" if event.line else event.queue.value
            reason = (
                ExperimentReason.NOT_SUPPORTED
                if event.fault is AlgorithmFault.NOT_SUPPORTED
                else ExperimentReason.ALGORITHM_FAILED
            )
            message = f"{where}: {event.message}"
            _halt(step, xs, Why(reason=reason, message=message, detail=event.traceback))
    return xs


def _note_trouble(step: Step, xs: ExperimentState, queue: Queue, why: Why[ExperimentReason]) -> None:
    """At which line it hangs, or dies: the line that may be skipped."""
    line = xs.queues[queue].pending[0].line
    payload = {"queue": queue.value, "line": line, "fault": why.reason.value, "message": why.message}
    step.journal(xs, LineKind.ALGORITHM_FAULTED, payload)


def skip_line(step: Step, xs: ExperimentState, queue: Queue, line: int) -> None:
    """Leave out the line at which the algorithm raised, as if it had never stood in its queue.

    Whatever was told before it was answered, so that no answer depends on it. A request is asked again, as another
    line, when the tuner has learned more. ConflictError for any other line.
    """
    experiment, pending = xs.experiment, xs.queues[queue].pending
    if experiment.reason not in SKIPPABLE or not pending or pending[0].line != line:
        raise ConflictError(
            f"line {line} of experiment {xs.id} is not the one at which its {queue.value} raised last; `tuner show "
            f"{xs.id}` names that",
            ("resume",),
        )
    waiting, item = xs.queues[queue], pending.popleft()
    waiting.reports -= report_count(item)
    step.changes.skipped_lines.append(SkippedLine(experiment_id=xs.id, line=line, queue=queue))
    step.journal(xs, LineKind.LINE_SKIPPED, {"queue": queue.value, "line": line})
    _move_cursor(step, xs, queue, line)
    if isinstance(item, SearchSpaceUpdated):
        xs.forget_untold_space()
        return
    _apply(step, xs, item, NoSuggestionYet(line=line) if isinstance(item, SuggestionRequested) else Taken(line=line))


def _halt(step: Step, xs: ExperimentState, why: Why[ExperimentReason]) -> None:
    """Nothing more is asked until a person has looked: pause, or fail where no resume could help."""
    xs.worker.phase, xs.worker.given_up = WorkerPhase.HALTED, True
    if xs.experiment.status is not ExperimentStatus.RUNNING:
        return
    if why.reason is ExperimentReason.NOT_SUPPORTED:
        launching.begin_stop(step, xs, ExperimentStatus.FAILED, why)
    else:
        step.move_experiment(xs, ExperimentStatus.PAUSED, why)


def _try_again(step: Step, xs: ExperimentState, queue: Queue, why: Why[ExperimentReason]) -> None:
    """A new worker gets the same lines; when that did not help several times, the experiment is paused."""
    waiting = xs.queues[queue]
    waiting.retries += 1
    if waiting.retries > ALGORITHM_RETRIES:
        if why.reason is ExperimentReason.ALGORITHM_HANGS and waiting.pending:
            _note_trouble(step, xs, queue, why)
        message = f"{why.message} (tried {waiting.retries} times); fix the cause, then resume"
        _halt(step, xs, Why(reason=why.reason, message=message, detail=why.detail))
        stop_worker(step, xs)
        waiting.retries = 0
    else:
        _replace_later(step, xs, why.message)


# ── time ────────────────────────────────────────────────────────────────────────────────────────
def time_passed(step: Step, xs: ExperimentState) -> None:
    """Respawn what is due, replace what hangs, and ask the silent whether they live."""
    worker = xs.worker
    if worker.respawn_at is not None and worker.respawn_at <= step.at:
        worker.respawn_at = None
        if xs.wants_worker:
            start_worker(step, xs)
            return
    if _rests(step, xs):
        stop_worker(step, xs)
    if not worker.takes_items:
        return
    if worker.phase is WorkerPhase.READY and step.at - worker.ready_at > WORKER_STEADY_S:
        worker.deaths = worker.idle_deaths = 0
    start_limit = max(WORKER_START_LIMIT_S, xs.experiment.spec.algorithm_timeout_s)
    if worker.phase is WorkerPhase.STARTING and step.at - worker.ready_at > start_limit:
        message = f"the algorithms were not built, or not told a line of their history, within {start_limit:g} s"
        _try_again(step, xs, Queue.TUNER, Why(reason=ExperimentReason.ALGORITHM_HANGS, message=message))
        return
    hanging = _hanging_queue(step, xs)
    if hanging is None:
        _ping(step, xs)
        return
    limit, line = xs.experiment.spec.algorithm_timeout_s, xs.queues[hanging].pending[0].line
    message = f"the {hanging.value} did not answer journal line {line} within {limit:g} s"
    _try_again(step, xs, hanging, Why(reason=ExperimentReason.ALGORITHM_HANGS, message=message))


def _rests(step: Step, xs: ExperimentState) -> bool:
    """Whether the worker of a paused experiment has had nothing to do for a while: the rows can give another one."""
    worker = xs.worker
    busy = xs.has_work and worker.phase is not WorkerPhase.HALTED
    if xs.experiment.status is not ExperimentStatus.PAUSED or busy or worker.phase is WorkerPhase.ABSENT:
        worker.idle_since = None
        return False
    if worker.idle_since is None:
        worker.idle_since = step.at
    return step.at - worker.idle_since >= PAUSED_WORKER_S


def _hanging_queue(step: Step, xs: ExperimentState) -> Queue | None:
    if xs.worker.phase is not WorkerPhase.READY:
        return None
    limit = xs.experiment.spec.algorithm_timeout_s
    late = (q for q, w in xs.queues.items() if w.head_since is not None and step.at - w.head_since > limit)
    return next(late, None)


def _ping(step: Step, xs: ExperimentState) -> None:
    worker = xs.worker
    if worker.pinged_at is not None and step.at - worker.pinged_at > PING_TIMEOUT_S:
        _replace_silent(step, xs)
    elif worker.pinged_at is None and step.at - worker.heard_at > PING_EVERY_S:
        # Also before it is ready: it answers while it builds and folds, and one that was stopped never would be.
        worker.pinged_at = step.at
        step.do(PingWorker(experiment_id=xs.id, generation=worker.generation))


def _replace_silent(step: Step, xs: ExperimentState) -> None:
    """It answers no ping: it is stopped, or one call of an algorithm lets no other thread run."""
    waiting = next((queue for queue, waiting in xs.queues.items() if waiting.pending), None)
    message = f"the algorithm worker did not answer within {PING_TIMEOUT_S:g} s; is it stopped, or in one endless call?"
    if waiting is None:
        _replace_later(step, xs, "did not answer a ping")
    else:
        _try_again(step, xs, waiting, Why(reason=ExperimentReason.ALGORITHM_HANGS, message=message))


# ── answers ─────────────────────────────────────────────────────────────────────────────────────
def answered(step: Step, event: QueueAnswered) -> ExperimentState | None:
    """Apply the answers in line order. One for a line that was answered before is ignored."""
    xs = heard(step, event)
    if xs is None:
        return None
    waiting = xs.queues[event.queue]
    read = {item.line: item for item in event.read}
    for answer in event.answers:
        if not waiting.pending or answer.line < waiting.pending[0].line:
            continue
        if answer.line > waiting.pending[0].line:
            _replace_later(step, xs, f"answered line {answer.line} before line {waiting.pending[0].line}")
            break
        if fault := _fault_of(answer):
            _refuse(step, xs, event.queue, answer, fault)
            break
        item = waiting.pending.popleft()
        waiting.reports -= report_count(item)
        waiting.head_since = step.at if waiting.pending else None
        waiting.retries = waiting.deaths = xs.worker.idle_deaths = 0
        waiting.warned = waiting.warned and len(waiting.pending) >= QUEUE_WARNING_LENGTH // 2
        _move_cursor(step, xs, event.queue, answer.line)
        _apply(step, xs, read.get(item.line, item), answer)
        if xs.worker.phase is WorkerPhase.ABSENT:
            break  # what it says next follows from something that did not come to be
    return xs


def _fault_of(answer: Answer) -> str:
    """Why it cannot be carried out, of an algorithm that may be anybody's; "" where it can."""
    until_step = answer.decision.until_step if isinstance(answer, Decided) else None
    if until_step is None or abs(until_step) <= STEP_MAX:
        return ""
    return f"until_step should be None, or a whole number up to 2**53, not {until_step!r:.50}"


def _refuse(step: Step, xs: ExperimentState, queue: Queue, answer: Answer, fault: str) -> None:
    """As if the algorithm had raised there: no row holds what it says, and what it says next would follow from it."""
    payload = {"queue": queue.value, "line": answer.line, "fault": AlgorithmFault.RAISED.value, "message": fault}
    step.journal(xs, LineKind.ALGORITHM_FAULTED, payload)
    message = f"{queue.value}, journal line {answer.line}: {fault}"
    _halt(step, xs, Why(reason=ExperimentReason.ALGORITHM_FAILED, message=message))
    stop_worker(step, xs)


def _apply(step: Step, xs: ExperimentState, item: QueueItem, answer: Answer) -> None:
    match item, answer:
        case SuggestionRequested(index=0), Suggested():
            step.add_trial(
                xs,
                Trial(
                    experiment_id=xs.id,
                    number=item.number,
                    status=TrialStatus.WAITING,
                    parameters=answer.parameters,
                    reason=TrialReason.SUGGESTED,
                    decided_line=item.line,
                    created_at=step.at,
                ),
            )
        case SuggestionRequested(index=0), Decided():
            if not rungs.decided(step, xs, item, answer.decision):
                # A person ended that trial meanwhile. A new worker knows, and knows of no such decision.
                _replace_later(step, xs, f"decided about trial {answer.decision.number}, which had ended")
        case SuggestionRequested(index=0), NoMoreSuggestions() | NoSuggestionYet():
            if item.number:
                step.give_back_number(xs, item.number)
            _mind_nothing(step, xs, answer)
        case SuggestionRequested(), Suggested() | NoMoreSuggestions() | NoSuggestionYet():
            phases.answered(step.trial(xs, item.number), item, answer)
        case MetricsReported(), _:
            _apply_judgement(step, xs, item, answer)
        case SearchSpaceUpdated(), Taken():
            xs.told_space = item.search_space
        case _:
            assert isinstance(answer, Taken)  # noqa: S101  # the worker's frames allow nothing else


def _mind_nothing(step: Step, xs: ExperimentState, answer: Answer) -> None:
    """No parameters: for ever, or until the tuner learns more; unless what changes that is in its queue already."""
    pending = xs.queues[Queue.TUNER].pending
    if not isinstance(answer, NoMoreSuggestions):
        step.put_experiment(xs, replace(xs.experiment, tuner_waits=not xs.tells_more))
    elif not any(isinstance(item, SearchSpaceUpdated) for item in pending):
        step.put_experiment(xs, replace(xs.experiment, exhausted=True))


def _apply_judgement(step: Step, xs: ExperimentState, item: MetricsReported, answer: Answer) -> None:
    trial = xs.trials.get(item.number)
    if trial is None or trial.status.is_final:
        return  # it ended while the assessor was thinking
    ts, given_up = step.trial(xs, item.number), trial.reason is TrialReason.STOPPED_BY_USER
    # Deterministic: it may have come to a later rung meanwhile, and then rests here all the same.
    may_pause = not given_up and (xs.experiment.spec.deterministic or not trial.rungs.rung_reached)
    if isinstance(answer, PauseAdvised) and may_pause:
        ts.journal(LineKind.PAUSE_ADVISED, {"message": answer.message})
        rungs.pause_judged_trial(ts, item, answer)
    elif isinstance(answer, StopAdvised) and trial.stopped_at_line is None and not given_up:
        why = endings.stop_judged_trial(ts, item, answer)
        launching.stop_trial(ts, TrialStatus.EARLY_STOPPED, why)
    else:
        endings.finish_if_judged(ts)


def _cursor(xs: ExperimentState, queue: Queue) -> int:
    return xs.experiment.tuner_cursor if queue is Queue.TUNER else xs.experiment.assessor_cursor


def _move_cursor(step: Step, xs: ExperimentState, queue: Queue, line: int) -> None:
    experiment = xs.experiment
    is_tuner = queue is Queue.TUNER
    moved = replace(experiment, tuner_cursor=line) if is_tuner else replace(experiment, assessor_cursor=line)
    step.put_experiment(xs, moved)
