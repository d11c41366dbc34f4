"""What stands in a frame: commands to the worker and answers from it, in NNI's vocabulary.

    items                                   commands                          answers
    SuggestionRequested                     RequestTrialJobs                  NewTrialJob | NotYet | NoMoreTrialJobs
    the same, advisor                       RequestTrialJobs                  ScheduleTrialJob | NotYet | …
    CustomTrialAdded                        AddCustomizedTrialJob             Acknowledged
    ResultsImported                         ImportData                        Acknowledged
    SearchSpaceUpdated                      UpdateSearchSpace                 Acknowledged
    MetricsReported                         ReportMetricData (periodical)     KillTrialJob | PauseTrialJob | …
    TrialRested                             TrialRested                       Acknowledged
    TrialEnded, tuner, with a value         ReportMetricData (final)          Acknowledged
    TrialEnded otherwise                    TrialEnd                          Acknowledged

Around them: Initialize, LoadSnapshot, HistoryEnd, Ping, Terminate; and Initialized, Folded, Snapshot, Error, Pong.
Items before a queue's HistoryEnd were answered long ago: they are folded, counted by Folded, and not answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner_service.dispatcher.items import (
    AlgorithmFault,
    Answer,
    CustomTrialAdded,
    Decided,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    PauseAdvised,
    Queue,
    QueueItem,
    ResultsImported,
    SearchSpaceUpdated,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    Taken,
    TrialEnded,
    TrialRested,
)
from tuner_service.domain.experiment import AlgorithmSpec, Goal, Objective
from tuner_service.domain.trial import Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.workers.faults import Faulted
from tuner_service.workers.protocol import FrameError, pack
from tuner_service.workers.wire import (
    Wire,
    all_of,
    decision_from_wire,
    decision_to_wire,
    field_of,
    member_of,
    number_of,
)

WORKER_PROTOCOL = 1  # service and worker are of one version: a worker is started from the service's own package


# ── to the worker ───────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class Initialize:
    """What the worker builds its algorithms from. ``code_folder`` is put on its path for classes of users."""

    experiment_id: str
    search_space: dict[str, Any]
    objective: Objective
    seed: int
    tuner: AlgorithmSpec
    assessor: AlgorithmSpec | None = None
    advisor: AlgorithmSpec | None = None  # in place of both
    deterministic: bool = False
    code_folder: str | None = None
    snapshot_every: int = 256
    workers: int = 1  # suggestions computed at a time, by a tuner that can
    checks_space: bool = True  # False: what was suggested outside the space once is suggested there again


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSnapshot:
    queue: Queue
    line: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    queue: Queue
    item: QueueItem


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEnd:
    """The items of ``queue`` from here on want answers."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class Ping:
    pass


@dataclass(frozen=True, slots=True)
class Terminate:
    pass


ToWorker = Initialize | LoadSnapshot | Told | HistoryEnd | Ping | Terminate


# ── from the worker ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class Initialized:
    """Every queue has folded its history and nothing was raised.

    ``asks_ahead``: no suggestion depends on an outcome.
    """

    asks_ahead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    queue: Queue
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """``count`` more items of the history were folded."""

    queue: Queue
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFaulted:
    """The queue answers nothing more."""

    queue: Queue
    faulted: Faulted


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotMade:
    queue: Queue
    line: int
    state: str


@dataclass(frozen=True, slots=True)
class Pong:
    pass


FromWorker = Initialized | Answered | Folded | QueueFaulted | SnapshotMade | Pong


# ── commands ────────────────────────────────────────────────────────────────────────────────────
def command_to_wire(command: ToWorker) -> Wire:
    match command:
        case Initialize():
            return _initialize_to_wire(command)
        case LoadSnapshot():
            return {"command": "LoadSnapshot", "queue": command.queue, "line": command.line, "state": command.state}
        case Told():
            return {"queue": command.queue, **item_to_wire(command.item, command.queue)}
        case HistoryEnd():
            return {"command": "HistoryEnd", "queue": command.queue}
        case Ping():
            return {"command": "Ping"}
        case Terminate():
            return {"command": "Terminate"}


def command_from_wire(wire: Any) -> ToWorker:
    match field_of(wire, "command", str):
        case "Initialize":
            return _initialize_from_wire(wire)
        case "LoadSnapshot":
            return LoadSnapshot(
                queue=_queue(wire), line=field_of(wire, "line", int), state=field_of(wire, "state", str)
            )
        case "HistoryEnd":
            return HistoryEnd(queue=_queue(wire))
        case "Ping":
            return Ping()
        case "Terminate":
            return Terminate()
        case _:
            return Told(queue=_queue(wire), item=item_from_wire(wire))


def item_to_wire(item: QueueItem, queue: Queue) -> Wire:
    match item:
        case SuggestionRequested():
            recorded = None if item.recorded is None else pack(item.recorded)
            request = {"command": "RequestTrialJobs", "line": item.line, "number": item.number, "recorded": recorded}
            # NNI's multi-phase has no command of its own either: the trial's number and an index.
            further = {"index": item.index} if item.index else {}
            decided = {} if item.decision is None else {"decision": decision_to_wire(item.decision)}
            return request | further | decided
        case MetricsReported():
            return {
                "command": "ReportMetricData",
                "type": "PERIODICAL",
                "line": item.line,
                "number": item.number,
                "steps": [report.step for report in item.reports],
                "values": [report.value for report in item.reports],
                "sequences": list(item.sequences),
            }
        case TrialRested():
            return {"command": "TrialRested", "line": item.line, "number": item.number, "step": item.step}
        case TrialEnded():
            outcome = _outcome_to_wire(item.outcome)
            if queue is Queue.TUNER and item.outcome.value is not None:
                return {"command": "ReportMetricData", "type": "FINAL", "line": item.line, "outcome": outcome}
            return {"command": "TrialEnd", "line": item.line, "outcome": outcome}
        case ResultsImported():
            outcomes = [_outcome_to_wire(outcome) for outcome in item.outcomes]
            return {"command": "ImportData", "line": item.line, "outcomes": outcomes}
        case CustomTrialAdded():
            parameters = pack(item.parameters)
            return {
                "command": "AddCustomizedTrialJob",
                "line": item.line,
                "number": item.number,
                "parameters": parameters,
            }
        case SearchSpaceUpdated():
            return {"command": "UpdateSearchSpace", "line": item.line, "search_space": pack(item.search_space)}


def item_from_wire(wire: Wire) -> QueueItem:
    line = field_of(wire, "line", int)
    match field_of(wire, "command", str), wire.get("type"):
        case "RequestTrialJobs", _:
            recorded = wire.get("recorded")
            return SuggestionRequested(
                line=line,
                number=field_of(wire, "number", int),
                recorded=None if recorded is None else field_of(wire, "recorded", dict),
                index=field_of(wire, "index", int) if "index" in wire else 0,
                decision=decision_from_wire(field_of(wire, "decision", dict)) if "decision" in wire else None,
            )
        case "TrialRested", _:
            return TrialRested(line=line, number=field_of(wire, "number", int), step=field_of(wire, "step", int))
        case "ReportMetricData", "PERIODICAL":
            return _metrics_from_wire(wire, line)
        case ("ReportMetricData", "FINAL") | ("TrialEnd", _):
            return TrialEnded(line=line, outcome=_outcome_from_wire(field_of(wire, "outcome", dict)))
        case "ImportData", _:
            return ResultsImported(line=line, outcomes=tuple(map(_outcome_from_wire, field_of(wire, "outcomes", list))))
        case "AddCustomizedTrialJob", _:
            return CustomTrialAdded(
                line=line, number=field_of(wire, "number", int), parameters=field_of(wire, "parameters", dict)
            )
        case "UpdateSearchSpace", _:
            return SearchSpaceUpdated(line=line, search_space=field_of(wire, "search_space", dict))
        case command, _:
            raise FrameError(f"{command!r} is no command"[:200])


# ── answers ─────────────────────────────────────────────────────────────────────────────────────
def message_to_wire(message: FromWorker) -> list[Wire]:
    """One message may become several objects: lines that were only taken are named together."""
    match message:
        case Initialized():
            return [{"answer": "Initialized", "asks_ahead": message.asks_ahead}]
        case Answered():
            return _answers_to_wire(message.queue, message.answers)
        case Folded():
            return [{"answer": "Folded", "queue": message.queue, "count": message.count}]
        case QueueFaulted():
            faulted = message.faulted
            return [
                {
                    "answer": "Error",
                    "queue": message.queue,
                    "line": faulted.line,
                    "fault": faulted.fault,
                    "message": faulted.message,
                    "traceback": faulted.traceback,
                }
            ]
        case SnapshotMade():
            return [{"answer": "Snapshot", "queue": message.queue, "line": message.line, "state": message.state}]
        case Pong():
            return [{"answer": "Pong"}]


def messages_from_wire(objects: Iterable[Any]) -> list[FromWorker]:
    """The messages of a frame; answers of one queue that follow one another become one message."""
    messages: list[FromWorker] = []
    for wire in objects:
        message = _message_from_wire(wire)
        last = messages[-1] if messages else None
        if isinstance(message, Answered) and isinstance(last, Answered) and last.queue is message.queue:
            messages[-1] = Answered(queue=last.queue, answers=last.answers + message.answers)
        else:
            messages.append(message)
    return messages


def _answers_to_wire(queue: Queue, answers: Sequence[Answer]) -> list[Wire]:
    wires: list[Wire] = []
    for answer in answers:
        match answer:
            case Taken():
                if wires and wires[-1]["answer"] == "Acknowledged":
                    wires[-1]["lines"].append(answer.line)
                else:
                    wires.append({"answer": "Acknowledged", "queue": queue, "lines": [answer.line]})
            case Suggested():
                parameters = pack(answer.parameters)
                wires.append({"answer": "NewTrialJob", "queue": queue, "line": answer.line, "parameters": parameters})
            case NoSuggestionYet():
                wires.append({"answer": "NotYet", "queue": queue, "line": answer.line})
            case NoMoreSuggestions():
                wires.append({"answer": "NoMoreTrialJobs", "queue": queue, "line": answer.line})
            case Decided():
                decision = decision_to_wire(answer.decision)
                wires.append({"answer": "ScheduleTrialJob", "queue": queue, "line": answer.line, "decision": decision})
            case StopAdvised() | PauseAdvised():
                wires.append(
                    {
                        "answer": "KillTrialJob" if isinstance(answer, StopAdvised) else "PauseTrialJob",
                        "queue": queue,
                        "line": answer.line,
                        "sequence": answer.sequence,
                        "message": answer.message,
                    }
                )
    return wires


def _message_from_wire(wire: Any) -> FromWorker:
    match field_of(wire, "answer", str):
        case "Initialized":
            return Initialized(asks_ahead=field_of(wire, "asks_ahead", bool))
        case "Pong":
            return Pong()
        case "Folded":
            return Folded(queue=_queue(wire), count=field_of(wire, "count", int))
        case "Snapshot":
            return SnapshotMade(
                queue=_queue(wire), line=field_of(wire, "line", int), state=field_of(wire, "state", str)
            )
        case "Error":
            faulted = Faulted(
                line=field_of(wire, "line", int),
                fault=member_of(AlgorithmFault, field_of(wire, "fault", str)),
                message=field_of(wire, "message", str),
                traceback=field_of(wire, "traceback", str),
            )
            return QueueFaulted(queue=_queue(wire), faulted=faulted)
        case "Acknowledged":
            lines = all_of(field_of(wire, "lines", list), int)
            return Answered(queue=_queue(wire), answers=tuple(Taken(line=line) for line in lines))
        case answer:
            return Answered(queue=_queue(wire), answers=(_answer_from_wire(answer, wire),))


def _answer_from_wire(answer: str, wire: Wire) -> Answer:
    line = field_of(wire, "line", int)
    match answer:
        case "NewTrialJob":
            return Suggested(line=line, parameters=field_of(wire, "parameters", dict))
        case "NotYet":
            return NoSuggestionYet(line=line)
        case "NoMoreTrialJobs":
            return NoMoreSuggestions(line=line)
        case "ScheduleTrialJob":
            return Decided(line=line, decision=decision_from_wire(field_of(wire, "decision", dict)))
        case "PauseTrialJob":
            return PauseAdvised(
                line=line, sequence=field_of(wire, "sequence", int), message=field_of(wire, "message", str)
            )
        case "KillTrialJob":
            return StopAdvised(
                line=line, sequence=field_of(wire, "sequence", int), message=field_of(wire, "message", str)
            )
        case _:
            raise FrameError(f"{answer!r} is no answer"[:200])


# ── their parts ─────────────────────────────────────────────────────────────────────────────────
def _queue(wire: Wire) -> Queue:
    queue: Queue = member_of(Queue, field_of(wire, "queue", str))
    return queue


def _metrics_from_wire(wire: Wire, line: int) -> MetricsReported:
    steps, sequences = all_of(field_of(wire, "steps", list), int), all_of(field_of(wire, "sequences", list), int)
    values = [number_of(value) for value in field_of(wire, "values", list)]
    if not len(steps) == len(values) == len(sequences):
        raise FrameError("steps, values and sequences are not of one length")
    reports = tuple(Report(step=step, value=value) for step, value in zip(steps, values, strict=True))
    return MetricsReported(line=line, number=field_of(wire, "number", int), reports=reports, sequences=tuple(sequences))


def _outcome_to_wire(outcome: TrialOutcome) -> Wire:
    return {
        "number": outcome.number,
        "status": outcome.status,
        "parameters": pack(outcome.parameters),
        "value": outcome.value,
        "step": outcome.step,
        "source": outcome.source,
        "further_values": list(outcome.further_values),
        "own_failure": outcome.own_failure,
    }


def _outcome_from_wire(wire: Any) -> TrialOutcome:
    value, step = wire.get("value"), wire.get("step")
    parameters: Parameters = field_of(wire, "parameters", dict)
    return TrialOutcome(
        number=field_of(wire, "number", int),
        status=member_of(TrialStatus, field_of(wire, "status", str)),
        parameters=parameters,
        value=None if value is None else number_of(value),
        step=None if step is None else field_of(wire, "step", int),
        source=field_of(wire, "source", str),
        further_values=tuple(None if v is None else number_of(v) for v in field_of(wire, "further_values", list)),
        own_failure=field_of(wire, "own_failure", bool),
    )


def _algorithm_to_wire(spec: AlgorithmSpec | None) -> Wire | None:
    return None if spec is None else {"name": spec.name, "class_name": spec.class_name, "args": pack(spec.args)}


def _algorithm_from_wire(wire: Wire | None) -> AlgorithmSpec | None:
    if wire is None:
        return None
    return AlgorithmSpec(name=wire.get("name"), class_name=wire.get("class_name"), args=field_of(wire, "args", dict))


def _objective_from_wire(wires: list[Any]) -> Objective:
    if not wires:
        raise FrameError("there must be an objective")
    every = [
        Objective(metric=field_of(w, "metric", str), goal=member_of(Goal, field_of(w, "goal", str))) for w in wires
    ]
    return replace(every[0], further=tuple(every[1:]))


def _initialize_to_wire(command: Initialize) -> Wire:
    return {
        "command": "Initialize",
        "protocol": WORKER_PROTOCOL,
        "experiment_id": command.experiment_id,
        "search_space": pack(command.search_space),
        "objectives": [{"metric": one.metric, "goal": one.goal} for one in command.objective.every],
        "seed": command.seed,
        "tuner": _algorithm_to_wire(command.tuner),
        "assessor": _algorithm_to_wire(command.assessor),
        "advisor": _algorithm_to_wire(command.advisor),
        "deterministic": command.deterministic,
        "code_folder": command.code_folder,
        "snapshot_every": command.snapshot_every,
        "workers": command.workers,
        "checks_space": command.checks_space,
    }


def _initialize_from_wire(wire: Wire) -> Initialize:
    if wire.get("protocol") != WORKER_PROTOCOL:
        raise FrameError(f"the worker speaks protocol {WORKER_PROTOCOL}, not {wire.get('protocol')!r}")
    tuner = _algorithm_from_wire(field_of(wire, "tuner", dict))
    if tuner is None:
        raise FrameError("tuner must be of type dict")
    return Initialize(
        experiment_id=field_of(wire, "experiment_id", str),
        search_space=field_of(wire, "search_space", dict),
        objective=_objective_from_wire(field_of(wire, "objectives", list)),
        seed=field_of(wire, "seed", int),
        tuner=tuner,
        assessor=_algorithm_from_wire(wire.get("assessor")),
        advisor=_algorithm_from_wire(wire.get("advisor")),
        deterministic=field_of(wire, "deterministic", bool),
        code_folder=wire.get("code_folder"),
        snapshot_every=field_of(wire, "snapshot_every", int),
        workers=field_of(wire, "workers", int),
        checks_space=field_of(wire, "checks_space", bool),
    )
