"""What the dispatcher wants done: orders, in the imperative. Performed after their transaction; each may be repeated.

What is owed after a crash is not stored a second time: it follows from the rows (a launch from a starting attempt,
a delivery from the queue's cursor, a stop from a stopping trial), and ``Dispatcher.recover`` derives it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trials.wire.attempt import AttemptKey
from trials.wire.launch import LaunchSpec
from tuner_service.dispatcher.items import Queue, QueueItem
from tuner_service.domain.experiment import ExperimentId, ExperimentSpec
from tuner_service.domain.trial import Parameters


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
    """Answer the agent's hello; nothing else may be sent to it before."""

    agent_id: str
    acknowledged: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAttempt:
    agent_id: str
    key: AttemptKey
    nonce: str
    lineage: str
    spec: LaunchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    agent_id: str
    key: AttemptKey
    nonce: str
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendParameters:
    """Further parameters for a running script; None: there are none."""

    agent_id: str
    key: AttemptKey
    nonce: str
    index: int
    parameters: Parameters | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeReports:
    agent_id: str
    nonce: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseReports:
    """Back pressure: the agent keeps them and sends them again later."""

    agent_id: str
    nonce: str
    retry_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetAttempt:
    agent_id: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveExperimentFolders:
    """On every agent."""

    experiment_id: ExperimentId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCheckpointFile:
    agent_id: str
    nonce: str
    name: str
    location: str | None = None  # in the checkpoint store


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
    StartWorker | StopWorker | PingWorker | Deliver
    | WelcomeAgent | LaunchAttempt | StopAttempt | SendParameters | AcknowledgeReports | RefuseReports | ForgetAttempt
    | RemoveExperimentFolders | DeleteCheckpointFile | WarnQueueLength | WarnNoCheckpoint
)  # fmt: skip
