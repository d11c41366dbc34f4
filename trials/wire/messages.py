"""What agent and service say to each other.

Three parties meet in ``trials.wire``:

* a **trial** appends records to its spool file, one JSON object a line; the number of a line,
  counted from 1, is the record's *sequence*;
* the **agent** sends spool lines to the service in order and deletes nothing the service has not acknowledged;
* the **service** launches, stops, acknowledges, and forgets.

Every message is a frozen dataclass with a ``kind``. Standard library only, as all of ``trials.wire``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from trials.wire.attempt import AttemptKey
from trials.wire.checkpoints import CheckpointsFound, CheckpointsWanted
from trials.wire.devices import DevicesChanged, NodeDevice
from trials.wire.handshake import Leave
from trials.wire.launch import LaunchSpec
from trials.wire.nodes import Drain, NodeChanged, NodeFacts
from trials.wire.outputs import OutputOffered, OutputStored
from trials.wire.records import ExitRecord, ProcessRecord

# Agent and service speak the same one, or not at all: an agent of another version is ordered to leave, and one of the
# service's own takes its trials over. Every change of a message is a new version.
PROTOCOL_VERSION = 9


# ── agent → service ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResources:
    cpus: int
    memory_bytes: int
    devices: tuple[NodeDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAttempt:
    """One attempt the agent holds. ``exit`` is None while it lives.

    ``unreadable``: why the agent cannot follow it, as where its files are of a format of another version. Its trial is
    left alone, and nothing is known of it until an agent comes that can read them.
    """

    key: AttemptKey
    nonce: str
    lineage: str
    process: ProcessRecord | None
    exit: ExitRecord | None
    spooled: int  # sequence of the last complete line in the spool
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message on a channel: what the node has and what it observes. Its first fields are those of a Greeting."""

    kind: ClassVar[str] = "hello"
    version: int
    agent_id: str
    boot_id: str
    host: str
    pid: int
    resources: NodeResources
    attempts: tuple[ObservedAttempt, ...] = ()
    node: NodeFacts = field(default_factory=NodeFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    kind: ClassVar[str] = "started"
    key: AttemptKey
    nonce: str
    process: ProcessRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Answer to Prepare: the part could start at once. ``address`` is where its node is reached, ``port`` a free one.

    Said again, perhaps with another port, whenever Prepare is.
    """

    kind: ClassVar[str] = "prepared"
    key: AttemptKey
    nonce: str
    address: str
    host: str  # the name of its machine
    port: int
    world_key: str = ""  # of the first node: a secret that it has just made up for the processes of this attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Spool lines ``first_sequence`` and on, untouched. At most one of an attempt is unanswered.

    ``locations``: of checkpoints that the lines name, by digest, where the agent has put their bytes; a path or a URL.
    """

    kind: ClassVar[str] = "reports"
    key: AttemptKey
    nonce: str
    first_sequence: int
    lines: tuple[str, ...]
    locations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """Sent after every report up to ``last_sequence``; believed once the service has all of these.

    ``logs``: of an agent that shares no folder with the service, what the attempt wrote, in base64, by stream: "" where
    it wrote nothing; with "resources" where there are any. Those over LOG_INLINE_BYTES are left out: they were sent
    before. On the disk before the exit is.
    """

    kind: ClassVar[str] = "exited"
    key: AttemptKey
    nonce: str
    exit: ExitRecord
    last_sequence: int
    logs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobOffered:
    """The bytes of ``digest`` follow as binary frames of BLOB_CHUNK_BYTES at most, ``size`` in all.

    Sent before the report line that names the digest, so the row never knows a checkpoint the store has not.
    """

    kind: ClassVar[str] = "blob"
    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobWanted:
    """The agent needs the bytes of ``digest`` (code, or a checkpoint to restore)."""

    kind: ClassVar[str] = "blob_wanted"
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """Answer to ReadLog. ``data`` is UTF-8 with replacement, of the bytes from ``begin`` to ``end`` of ``size``."""

    kind: ClassVar[str] = "log_chunk"
    request_id: str
    data: str
    end: int
    size: int
    error: str | None = None
    begin: int | None = None  # later than asked for where what was before is not kept; None: of who does not say it


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    kind: ClassVar[str] = "pong"


# ── both ways ───────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """A message was passed over: its kind is unknown or not for the receiver, or a field is wrong. Never answered."""

    kind: ClassVar[str] = "not_understood"
    about: str  # the kind of that message; "" where it had none
    reason: str  # what is wrong, with the known kinds or the field; for people


# ── service → agent ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Answer to Hello. ``acknowledged`` maps nonce → last sequence on the service's disk.

    ``checkpoint_store`` is a folder or a URL for checkpoints over the inline limit; empty: the agent's own folder.
    ``asset_store`` is where the files of assets lie; ``asset_staging`` the folder in which the service takes them in.
    ``service_lost_s``: trials that were without a service for so long are to be stopped; None: they run on.
    """

    kind: ClassVar[str] = "welcome"
    version: int
    lineage: str
    acknowledged: dict[str, int] = field(default_factory=dict)
    checkpoint_store: str = ""
    asset_store: str = ""
    asset_staging: str = ""
    asset_cache_bytes: int = 64 << 30  # of what a node keeps of assets
    service_lost_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The service will not talk; ``reason`` is for people. The channel closes after it."""

    kind: ClassVar[str] = "refused"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start this attempt unless its nonce is spent already. Repeating it is harmless."""

    kind: ClassVar[str] = "launch"
    key: AttemptKey
    nonce: str
    lineage: str
    spec: LaunchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Make one part of an attempt of several nodes ready, without starting it. Repeating it is harmless.

    Its Launch follows once all parts are ready. A part that hears neither for ``limit_s`` gives itself back: it exits
    with the cause ``not_ready``.
    """

    kind: ClassVar[str] = "prepare"
    key: AttemptKey
    nonce: str
    lineage: str
    spec: LaunchSpec
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop the whole tree of this attempt: told, SIGTERM, SIGKILL within ``grace_s``. Repeating it is harmless."""

    kind: ClassVar[str] = "stop"
    key: AttemptKey
    nonce: str
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherParameters:
    """What the script asked for; ``parameters`` None: there are none. Repeating it is harmless."""

    kind: ClassVar[str] = "further_parameters"
    key: AttemptKey
    nonce: str
    index: int
    parameters: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """Every line of the attempt up to ``sequence`` is on the service's disk."""

    kind: ClassVar[str] = "acknowledge"
    nonce: str
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """The last Reports were not taken: send them again after ``retry_after_s``."""

    kind: ClassVar[str] = "busy"
    nonce: str
    retry_after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The exit is on the service's disk, and every report before it: drop the spool, keep the logs."""

    kind: ClassVar[str] = "forget"
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveExperiment:
    """The experiment was deleted: remove all its folders."""

    kind: ClassVar[str] = "remove_experiment"
    experiment_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCheckpoint:
    """Retention decided that this checkpoint file is no longer wanted, nor what was put at ``location``.

    Unless the attempt has written the file anew since ``saved_at``: then it has saved the very same again, and will
    report that.
    """

    kind: ClassVar[str] = "delete_checkpoint"
    nonce: str
    name: str
    location: str | None = None
    saved_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobSent:
    """The bytes asked for follow as binary frames, ``size`` in all; ``size`` -1: the service has no such blob."""

    kind: ClassVar[str] = "blob_sent"
    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobStored:
    """The bytes of ``digest`` are on the service's disk."""

    kind: ClassVar[str] = "blob_stored"
    digest: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """Read ``stream`` ("stdout", "stderr", "resources"; "stdout-3" of one rank) from ``offset``; a negative one counts

    from the end.
    """

    kind: ClassVar[str] = "read_log"
    request_id: str
    key: AttemptKey
    nonce: str
    stream: str
    offset: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    kind: ClassVar[str] = "ping"


FromAgent = (
    Hello
    | DevicesChanged
    | NodeChanged
    | Started
    | Prepared
    | Reports
    | Exited
    | BlobOffered
    | BlobWanted
    | LogChunk
    | Pong
    | NotUnderstood
    | CheckpointsWanted
    | OutputOffered
)
ToAgent = (
    Welcome | Refused | Leave | Launch | Prepare | Stop | FurtherParameters | Acknowledge | Busy | Forget
    | RemoveExperiment | Drain | DeleteCheckpoint | BlobSent | BlobStored | ReadLog | Ping | NotUnderstood
    | CheckpointsFound
    | OutputStored
)  # fmt: skip
Message = FromAgent | ToAgent
