"""What stands in a frame: commands to the worker and answers from it, in NNI's vocabulary.

    items                                   commands                          answers
    SuggestionRequested                     RequestTrialJobs                  NewTrialJob | NotYet | NoMoreTrialJobs
    the same, advisor                       RequestTrialJobs                  ScheduleTrialJob | NotYet | …
    CustomTrialAdded                        AddCustomizedTrialJob             Acknowledged
    ResultsImported                         ImportData                        Acknowledged
    SearchSpaceUpdated                      UpdateSearchSpace                 Acknowledged
    MetricsReported                         ReportMetricData                  KillTrialJob | PauseTrialJob | …
    TrialRested                             TrialRested                       Acknowledged
    TrialEnded                              TrialEnd                          Acknowledged

Around them: Initialize, LoadSnapshot, HistoryEnd, Ping, Terminate; and Initialized, Folded, Snapshot, SnapshotRefused,
Error, Pong.
Items before a queue's HistoryEnd were answered long ago: they are folded, counted by Folded, and not answered.

Each of these names is the ``kind`` of an object whose fields ``trials.wire.plain`` derives from a dataclass. What
parameters, search spaces and arguments hold is marked by ``pack``, so that it comes back exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trials.wire.plain import ProtocolError, from_plain, to_plain
from tuner_service.dispatcher.items import (
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
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentSpec, Objective
from tuner_service.domain.trial import Report
from tuner_service.workers.faults import Faulted
from tuner_service.workers.protocol import FrameError, pack

WORKER_PROTOCOL = 2  # service and worker are of one version: a worker is started from the service's own package
PROGRESS_S = 1.0  # between two words that what takes long comes on; less where an answer is waited for not much longer
PROGRESS_LEAST_S = 0.05
WORDS_PER_TIMEOUT = 4

Wire = dict[str, Any]


# ── to the worker ───────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class Initialize:
    """What the worker builds its algorithms from. ``code_folder`` is put on its path for classes of users."""

    protocol: int = WORKER_PROTOCOL
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
    progress_every_s: float = PROGRESS_S
    checks_space: bool = True  # False: what was suggested outside the space once is suggested there again


def initialize(experiment_id: str, spec: ExperimentSpec, *, code_folder: str | None, **options: Any) -> Initialize:
    """What an experiment asks for; ``options`` are what the experiment does not decide."""
    return Initialize(
        experiment_id=experiment_id,
        search_space=spec.search_space,
        objective=spec.objective,
        seed=spec.seed,
        tuner=spec.tuner,
        assessor=spec.assessor,
        advisor=spec.advisor,
        deterministic=spec.deterministic,
        code_folder=code_folder,
        progress_every_s=max(PROGRESS_LEAST_S, min(PROGRESS_S, spec.algorithm_timeout_s / WORDS_PER_TIMEOUT)),
        **options,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSnapshot:
    queue: Queue
    line: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Travels as its item does, with ``queue`` beside the item's fields."""

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
    """Travels as its answers do, each with ``queue`` beside its fields; lines that were only taken go together."""

    queue: Queue
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """``count`` more items of the history were folded; 0: some more reports of one item were."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRefused:
    """The one of ``line`` could not be loaded. The queue answers nothing: without it, another worker will."""

    queue: Queue
    line: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """What ``auto`` does from here on, and why; for people. Nothing follows from it."""

    text: str


@dataclass(frozen=True, slots=True)
class Pong:
    pass


FromWorker = Initialized | Answered | Folded | QueueFaulted | SnapshotMade | SnapshotRefused | Choosing | Pong


# ── as they travel ──────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)  # not frozen: that takes three times as long to make, and one is made for every report
class _Columns:
    """MetricsReported, whose reports come in thousands: three lists are read ten times as fast as a list of objects.

    The worker is not sent the other metrics.
    """

    line: int
    number: int
    steps: list[int]
    values: list[float]
    sequences: tuple[int, ...]

    @staticmethod
    def of(item: MetricsReported) -> _Columns:
        steps, values = [report.step for report in item.reports], [report.value for report in item.reports]
        return _Columns(item.line, item.number, steps, values, item.sequences)

    def item(self) -> MetricsReported:
        if not len(self.steps) == len(self.values) == len(self.sequences):
            raise FrameError("steps, values and sequences are not of one length")
        reports = tuple(Report(step=step, value=value) for step, value in zip(self.steps, self.values, strict=True))
        return MetricsReported(line=self.line, number=self.number, reports=reports, sequences=self.sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TakenLines:
    """Taken, of lines that follow one another."""

    queue: Queue
    lines: tuple[int, ...]


_COMMANDS: dict[str, type[Any]] = {cls.__name__: cls for cls in (Initialize, LoadSnapshot, HistoryEnd, Ping, Terminate)}
_ITEMS: dict[str, type[Any]] = {
    "RequestTrialJobs": SuggestionRequested,
    "ReportMetricData": _Columns,
    "TrialRested": TrialRested,
    "TrialEnd": TrialEnded,
    "ImportData": ResultsImported,
    "AddCustomizedTrialJob": CustomTrialAdded,
    "UpdateSearchSpace": SearchSpaceUpdated,
}
_MESSAGES: dict[str, type[Any]] = {
    "Initialized": Initialized,
    "Acknowledged": _TakenLines,
    "Folded": Folded,
    "Error": QueueFaulted,
    "Snapshot": SnapshotMade,
    "SnapshotRefused": SnapshotRefused,
    "Choosing": Choosing,
    "Pong": Pong,
}
_ANSWERS: dict[str, type[Any]] = {
    "NewTrialJob": Suggested,
    "ScheduleTrialJob": Decided,
    "NotYet": NoSuggestionYet,
    "NoMoreTrialJobs": NoMoreSuggestions,
    "KillTrialJob": StopAdvised,
    "PauseTrialJob": PauseAdvised,
}
_KINDS = {cls: kind for table in (_COMMANDS, _ITEMS, _MESSAGES, _ANSWERS) for kind, cls in table.items()}


def _to_wire(value: Any) -> Wire:
    wire: Wire = to_plain(value, free=pack, brief=True)
    wire["kind"] = _KINDS[type(value)]
    return wire


def _to_queue(value: Any, queue: Queue) -> Wire:
    wire = _to_wire(value)
    wire["queue"] = queue
    return wire


def _from_wire(cls: type[Any], wire: Any) -> Any:
    try:
        return from_plain(cls, wire, where=str(wire["kind"]))
    except ProtocolError as error:
        raise FrameError(str(error)[:200]) from error


def _kind_of(wire: Any) -> str:
    kind = wire.get("kind") if isinstance(wire, dict) else None
    if not isinstance(kind, str):
        raise FrameError("what has no kind is no command and no answer")
    return kind


def _queue_of(wire: Wire) -> Queue:
    try:
        return Queue(str(wire.get("queue")))
    except ValueError as error:
        raise FrameError(f"queue: {error}"[:200]) from error


# ── commands ────────────────────────────────────────────────────────────────────────────────────
def command_to_wire(command: ToWorker) -> Wire:
    if isinstance(command, Told):
        item = command.item
        return _to_queue(_Columns.of(item) if isinstance(item, MetricsReported) else item, command.queue)
    return _to_wire(command)


def command_from_wire(wire: Any) -> ToWorker:
    """FrameError, and nothing else, for what is no command."""
    kind = _kind_of(wire)
    if kind in _ITEMS:
        item = _from_wire(_ITEMS[kind], wire)
        return Told(queue=_queue_of(wire), item=item.item() if isinstance(item, _Columns) else item)
    if kind not in _COMMANDS:
        raise FrameError(f"{kind!r} is no command"[:200])
    if kind == "Initialize" and wire.get("protocol") != WORKER_PROTOCOL:
        raise FrameError(f"the worker speaks protocol {WORKER_PROTOCOL}, not {wire.get('protocol')!r}"[:200])
    command: ToWorker = _from_wire(_COMMANDS[kind], wire)
    return command


# ── answers ─────────────────────────────────────────────────────────────────────────────────────
def message_to_wire(message: FromWorker) -> list[Wire]:
    """One message may become several objects: lines that were only taken are named together."""
    if not isinstance(message, Answered):
        return [_to_wire(message)]
    wires: list[Wire] = []
    for answer in message.answers:
        if not isinstance(answer, Taken):
            wires.append(_to_queue(answer, message.queue))
        elif wires and wires[-1]["kind"] == "Acknowledged":
            wires[-1]["lines"].append(answer.line)
        else:
            wires.append(_to_wire(_TakenLines(queue=message.queue, lines=(answer.line,))))
    return wires


def messages_from_wire(objects: Iterable[Any]) -> list[FromWorker]:
    """The messages of a frame; answers of one queue that follow one another become one message.

    FrameError, and nothing else, for what is no answer.
    """
    messages: list[FromWorker] = []
    answers: list[Answer] = []
    answering: Queue | None = None

    def close() -> None:
        if answering is not None and answers:
            messages.append(Answered(queue=answering, answers=tuple(answers)))
            answers.clear()

    for wire in objects:
        kind = _kind_of(wire)
        found: tuple[Answer, ...]
        if kind in _ANSWERS:
            queue, found = _queue_of(wire), (_from_wire(_ANSWERS[kind], wire),)
        elif kind in _MESSAGES:
            message = _from_wire(_MESSAGES[kind], wire)
            if not isinstance(message, _TakenLines):
                close()
                messages.append(message)
                continue
            queue, found = message.queue, tuple(Taken(line=line) for line in message.lines)
        else:
            raise FrameError(f"{kind!r} is no answer"[:200])
        if queue is not answering:
            close()
            answering = queue
        answers.extend(found)
    close()
    return messages
