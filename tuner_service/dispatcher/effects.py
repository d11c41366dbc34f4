"""What the dispatcher wants done: orders, in the imperative. Performed after their transaction; each may be repeated.

What is owed after a crash is not stored a second time: it follows from the rows (a launch from a starting attempt,
a delivery from the queue's cursor, a stop from a stopping trial), and ``Dispatcher.recover`` derives it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trials.wire.messages import (
    Acknowledge,
    Busy,
    DeleteCheckpoint,
    Forget,
    FurtherParameters,
    Launch,
    Prepare,
    RemoveExperiment,
    Stop,
)
from tuner_service.dispatcher.items import Queue, QueueItem
from tuner_service.domain.experiment import ExperimentId, ExperimentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """Start the algorithm worker, replacing an older generation, and rebuild it from lines up to the cursors."""

    experiment_id: ExperimentId
    generation: int
    spec: ExperimentSpec
    tuner_cursor: int
    assessor_cursor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorker:
    experiment_id: ExperimentId


@dataclass(frozen=True, slots=True, kw_only=True)
class PingWorker:
    experiment_id: ExperimentId
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Put ``item`` at the end of what the worker's ``queue`` has to answer."""

    experiment_id: ExperimentId
    generation: int
    queue: Queue
    item: QueueItem


@dataclass(frozen=True, slots=True, kw_only=True)
class WelcomeAgent:
    """Answer the agent's hello; nothing else may be sent to it before. What the service adds is not decided here."""

    agent_id: str
    acknowledged: dict[str, int]


ToOneAgent = Launch | Prepare | Stop | FurtherParameters | Acknowledge | Busy | Forget | DeleteCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Send ``message`` to the agent. Where it is away, the message is dropped: what is owed is settled at its hello.

    But for DeleteCheckpoint, of which nothing is left here: as with TellAll, it is said again until it has arrived.
    """

    agent_id: str
    message: ToOneAgent


@dataclass(frozen=True, slots=True, kw_only=True)
class TellAll:
    """Send ``message`` to every agent that is connected."""

    message: RemoveExperiment


@dataclass(frozen=True, slots=True, kw_only=True)
class WarnQueueLength:
    """The algorithm does not keep up: ``depth`` lines wait for it."""

    experiment_id: ExperimentId
    queue: Queue
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarnNoCheckpoint:
    """Trial ``number`` saved no checkpoint: it begins anew when it is promoted or forked, and so do others like it."""

    experiment_id: ExperimentId
    number: int


Effect = (
    StartWorker | StopWorker | PingWorker | Deliver | WelcomeAgent | Tell | TellAll | WarnQueueLength | WarnNoCheckpoint
)  # fmt: skip
