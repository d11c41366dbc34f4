"""The wire between agent and service, and the files of an attempt.

The one file that both packages import. Standard library only.

Three parties meet here:

* a **trial** appends records to its spool file, one JSON object a line; the number of a line,
  counted from 1, is the record's *sequence*;
* the **agent** sends spool lines to the service in order and deletes nothing the service has not acknowledged;
* the **service** launches, stops, acknowledges, and forgets.

Every message is a frozen dataclass with a ``kind``; ``encode`` and ``decode`` are exact inverses.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args

# Part of the protocol: the service imports nothing else of this package.
from trials.checkpoint_messages import BEST_TRIAL as BEST_TRIAL  # noqa: PLC0414
from trials.checkpoint_messages import CheckpointsFound as CheckpointsFound  # noqa: PLC0414
from trials.checkpoint_messages import CheckpointsWanted as CheckpointsWanted  # noqa: PLC0414
from trials.device_messages import DevicesChanged as DevicesChanged  # noqa: PLC0414
from trials.device_messages import NodeDevice as NodeDevice  # noqa: PLC0414
from trials.launch_spec import CheckpointRef as CheckpointRef  # noqa: PLC0414
from trials.launch_spec import GivenDevice as GivenDevice  # noqa: PLC0414
from trials.launch_spec import LaunchSpec as LaunchSpec  # noqa: PLC0414
from trials.patterns import groups_of as groups_of  # noqa: PLC0414
from trials.plain import ProtocolError as ProtocolError  # noqa: PLC0414
from trials.plain import from_plain as from_plain  # noqa: PLC0414
from trials.plain import read_lines as read_lines  # noqa: PLC0414
from trials.plain import to_plain as to_plain  # noqa: PLC0414
from trials.records import EXIT_CAUSES as EXIT_CAUSES  # noqa: PLC0414
from trials.records import CheckpointDamagedRecord as CheckpointDamagedRecord  # noqa: PLC0414
from trials.records import CheckpointRecord as CheckpointRecord  # noqa: PLC0414
from trials.records import CooperationRecord as CooperationRecord  # noqa: PLC0414
from trials.records import ExitRecord as ExitRecord  # noqa: PLC0414
from trials.records import MetricRecord as MetricRecord  # noqa: PLC0414
from trials.records import NoticeRecord as NoticeRecord  # noqa: PLC0414
from trials.records import ParametersWantedRecord as ParametersWantedRecord  # noqa: PLC0414
from trials.records import ProcessRecord as ProcessRecord  # noqa: PLC0414
from trials.records import SpoolRecord as SpoolRecord  # noqa: PLC0414
from trials.records import StopToldRecord as StopToldRecord  # noqa: PLC0414
from trials.texts import text_fault as text_fault  # noqa: PLC0414
from trials.texts import valid_json as valid_json  # noqa: PLC0414
from trials.texts import valid_text as valid_text  # noqa: PLC0414
from trials.versions import NotInVersionError as NotInVersionError  # noqa: PLC0414
from trials.versions import common_version as common_version  # noqa: PLC0414
from trials.versions import plain_in, require_kind, since

PROTOCOL_VERSION = 2
FRAMES_OF_SEVERAL_SINCE = 2
SUPPORTED_VERSIONS = (1, 2)  # what is newer than 1 is marked with ``since``

# ── limits (each names what happens at it) ──────────────────────────────────────────────────────
REPORT_BATCH_LINES = 2_000  # a longer spool is sent in several messages
REPORT_BATCH_BYTES = 1 << 20  # likewise; a single longer line is refused by report() itself
REPORT_LINE_BYTES = 64 << 10  # report() raises ReportTooLargeError beyond
METRICS_LIMIT = 1_000  # of one report; report() raises ReportTooLargeError beyond
METRIC_NAME_LIMIT = 200  # characters; report() raises ValueError beyond
SPOOL_LIMIT_BYTES = 256 << 20  # report() blocks until the service has acknowledged some of it
CHECKPOINT_INLINE_BYTES = 16 << 20  # larger checkpoints stay in the checkpoint folder; the row holds the path
BLOB_CHUNK_BYTES = 1 << 20
LOG_LIMIT_BYTES = 16 << 20  # per stream and file; one older file is kept beside it
OUTPUT_TAIL_BYTES = 4 << 10  # kept in the exit record
LOG_CHUNK_BYTES = 256 << 10  # most bytes in one LogChunk
MESSAGE_LIMIT_BYTES = 64 << 20  # a longer message from the service closes the channel
DEVICES_LIMIT = 1_024  # of a node, MIG instances included; what there is beyond is not looked at
FRAME_MESSAGES_LIMIT = 64  # in one frame at most; more go into further frames
NOT_UNDERSTOOD_LIMIT = 100  # answers of that kind on one connection; what comes beyond is only logged

# ── environment of a trial ──────────────────────────────────────────────────────────────────────
ENV_ATTEMPT_DIR = "TUNER_ATTEMPT_DIR"
ENV_NONCE = "TUNER_NONCE"
ENV_EXPERIMENT_ID = "TUNER_EXPERIMENT_ID"
ENV_TRIAL_NUMBER = "TUNER_TRIAL_NUMBER"
ENV_ATTEMPT = "TUNER_ATTEMPT"
ENV_OBJECTIVE = "TUNER_OBJECTIVE"
ENV_SEED = "TUNER_SEED"
ENV_WAKE_SOCKET = "TUNER_WAKE_SOCKET"
ENV_PARAMETER_PREFIX = "TRIAL_PARAM_"

# ── files of an attempt: HOME/attempts/<experiment>/<number>/<attempt>-<nonce>/ ─────────────────
FILE_ATTEMPT = "attempt.json"  # the Launch message, written by the agent before anything starts
FILE_CLAIM = "claim.json"  # ProcessRecord of the supervisor, created exclusively: the nonce is spent
FILE_PROCESS = "process.json"  # ProcessRecord of the trial, once it runs
FILE_PARAMETERS = "parameters.json"
FILE_FURTHER_PARAMETERS = "parameters-{index}.json"  # {"parameters": …}, null when there are none; from index 1
FILE_SPOOL = "reports.jsonl"
FILE_ACKNOWLEDGED = "acknowledged.json"  # {"sequence": n, "offset": bytes}
FILE_WANTED = "wanted.json"  # {"id", "number", "step"}: as CheckpointsWanted, from the script
FOLDER_WANTED = "wanted-{id}"  # the answer: a FILE_RESTORE in it, with "error" where there is none
FILE_STOP = "stop.json"  # exists once the trial is asked to stop
FILE_COOPERATES = "cooperates"  # exists once the script has called should_stop
FILE_EXIT = "exit.json"  # ExitRecord, durable before the trial is reaped
FILE_STDOUT = "stdout.log"
FILE_STDERR = "stderr.log"
FOLDER_CHECKPOINTS = "checkpoints"  # written by the SDK
FOLDER_RESTORE = "restore"  # written by the agent before the start: what restore() may load
FOLDER_WORK = "work"  # the working directory: a copy of the experiment's code
FILE_RESTORE = "restore.json"  # in there: {"checkpoints": [{"file", "digest", "step"}]}, newest first; or "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """Which attempt of which trial. Written ``8f3k2/12/1``."""

    experiment_id: str
    number: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.experiment_id}/{self.number}/{self.attempt}"


# ── agent → service ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResources:
    cpus: int
    memory_bytes: int
    devices: tuple[NodeDevice, ...] = since(2, (), needed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAttempt:
    """One attempt the agent holds. ``exit`` is None while it lives."""

    key: AttemptKey
    nonce: str
    lineage: str
    process: ProcessRecord | None
    exit: ExitRecord | None
    spooled: int  # sequence of the last complete line in the spool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message on a channel: what the node has and what it observes.

    ``version`` is the oldest one the agent speaks, so that an older service takes it; ``supported`` are all of them.
    """

    kind: ClassVar[str] = "hello"
    version: int
    agent_id: str
    boot_id: str
    host: str
    pid: int
    resources: NodeResources
    attempts: tuple[ObservedAttempt, ...] = ()
    supported: tuple[int, ...] = since(2, (), needed=False)  # empty: only ``version``


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    kind: ClassVar[str] = "started"
    key: AttemptKey
    nonce: str
    process: ProcessRecord


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
    locations: dict[str, str] = since(2, factory=dict, needed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """Sent after every report up to ``last_sequence``; believed once the service has all of these."""

    kind: ClassVar[str] = "exited"
    key: AttemptKey
    nonce: str
    exit: ExitRecord
    last_sequence: int


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
    """Answer to ReadLog. ``data`` is UTF-8 with replacement; ``end`` is the offset after it; ``size`` the file's."""

    kind: ClassVar[str] = "log_chunk"
    request_id: str
    data: str
    end: int
    size: int
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    kind: ClassVar[str] = "pong"


# ── both ways ───────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """A message was passed over: its kind is unknown or not for the receiver, or a field is wrong. Never answered."""

    kind: ClassVar[str] = "not_understood"
    since: ClassVar[int] = 2
    about: str  # the kind of that message; "" where it had none
    reason: str  # what is wrong, with the known kinds or the field; for people


# ── service → agent ─────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Answer to Hello. ``acknowledged`` maps nonce → last sequence on the service's disk.

    ``version`` is the newest one both speak: the conversation is held in it. ``checkpoint_store`` is a folder or a URL
    for checkpoints over the inline limit; empty: the agent's own folder.
    """

    kind: ClassVar[str] = "welcome"
    version: int
    lineage: str
    acknowledged: dict[str, int] = field(default_factory=dict)
    checkpoint_store: str = since(2, "", needed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The service will not talk; ``reason`` is for people. The channel closes after it."""

    kind: ClassVar[str] = "refused"
    reason: str
    supported: tuple[int, ...] = since(2, (), needed=False)  # the versions the service speaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Start this attempt unless its nonce is spent already. Repeating it is harmless."""

    kind: ClassVar[str] = "launch"
    key: AttemptKey
    nonce: str
    lineage: str
    spec: LaunchSpec


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
    """Retention decided that this checkpoint file is no longer wanted, nor what was put at ``location``."""

    kind: ClassVar[str] = "delete_checkpoint"
    nonce: str
    name: str
    location: str | None = since(2, None, needed=False)


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
    """Read ``stream`` ("stdout" or "stderr") from ``offset``; a negative offset counts from the end."""

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
    | Started
    | Reports
    | Exited
    | BlobOffered
    | BlobWanted
    | LogChunk
    | Pong
    | NotUnderstood
    | CheckpointsWanted
)
ToAgent = (
    Welcome | Refused | Launch | Stop | FurtherParameters | Acknowledge | Busy | Forget | RemoveExperiment
    | DeleteCheckpoint | BlobSent | BlobStored | ReadLog | Ping | NotUnderstood | CheckpointsFound
)  # fmt: skip
Message = FromAgent | ToAgent
_SPOOL_KINDS: dict[str, type[Any]] = {c.kind: c for c in get_args(SpoolRecord)}
_MESSAGE_KINDS: dict[str, type[Any]] = {c.kind: c for c in (*get_args(FromAgent), *get_args(ToAgent))}


# ── waking an agent ─────────────────────────────────────────────────────────────────────────────
DATA_SOCKET_SUFFIX = ".data"
RUNTIME_FOLDER_BYTES = 70  # of XDG_RUNTIME_DIR; in a longer one no socket could have its name
WAKE_CONNECT = b"connect"  # datagram of the service to the agent: there is a service to connect to


def wake_socket_path(home: Path) -> Path:
    """Where the agent of ``home``, which makes the folder, listens for datagrams.

    Not in ``home``, because the path of such a socket has 107 bytes at most; nor in a runtime folder that is as long.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    fits = 0 < len(os.fsencode(runtime)) <= RUNTIME_FOLDER_BYTES
    folder = Path(runtime) / "tuner" if fits else Path("/tmp") / f"tuner-{os.getuid()}"  # noqa: S108  made 0700
    return folder / f"{hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:24]}.sock"


def data_socket_path(home: Path) -> Path:
    """Where the agent of ``home`` is asked for a shared data server; beside the wake socket, with another suffix."""
    return wake_socket_path(home).with_suffix(DATA_SOCKET_SUFFIX)


# ── encoding ────────────────────────────────────────────────────────────────────────────────────
class UnknownKindError(ProtocolError):
    """No message has this kind; the text names the known ones."""


_to_text = json.JSONEncoder(separators=(",", ":")).encode


def encode(message: Message, *, version: int = PROTOCOL_VERSION) -> str:
    """One line of JSON. NaN and infinities are written as JavaScript does (``NaN``, ``Infinity``).

    Without what is newer than ``version``; NotInVersionError where that version cannot say it at all.
    """
    if version == PROTOCOL_VERSION:
        plain = to_plain(message)
    else:
        require_kind(type(message), version)
        plain = plain_in(message, version, where=message.kind)
    return _to_text({"kind": message.kind, **plain})


def frames(messages: Sequence[str], *, version: int) -> list[str]:
    """Encoded messages in as few frames as ``version`` can: several in one are a list, from version 2 on."""
    if version < FRAMES_OF_SEVERAL_SINCE or len(messages) == 1:
        return list(messages)
    parts = [messages[start : start + FRAME_MESSAGES_LIMIT] for start in range(0, len(messages), FRAME_MESSAGES_LIMIT)]
    return [f"[{','.join(part)}]" for part in parts]


def decode(text: str) -> Message:
    """The message ``text`` holds; ProtocolError names the kind or field that is wrong."""
    return decode_plain(_read(text))


def messages_in(text: str) -> list[Any]:
    """The messages of one frame, each for ``decode_plain``; ProtocolError where it holds none."""
    found = _read(text)
    if not isinstance(found, list):
        return [found]
    if not 0 < len(found) <= FRAME_MESSAGES_LIMIT:
        raise ProtocolError(f"a frame of {len(found)} messages; it may have 1 to {FRAME_MESSAGES_LIMIT}")
    return found


def decode_plain(value: Any) -> Message:
    """The message that a plain JSON value stands for; ProtocolError names the kind or field that is wrong."""
    return _decode(value, _MESSAGE_KINDS)  # type: ignore[no-any-return]  # the table's values are Message


def kind_of(value: Any) -> str:
    """What a message that could not be decoded says its kind is; "" where it says nothing of the sort."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def encode_record(record: SpoolRecord) -> str:
    """One spool line, without its newline."""
    return _to_text({"kind": record.kind, **to_plain(record)})


def decode_record(line: str) -> SpoolRecord:
    return _decode(_read(line), _SPOOL_KINDS)  # type: ignore[no-any-return]  # the table's values are SpoolRecord


def _read(text: str) -> Any:
    try:
        return json.loads(valid_json(text))
    except (ValueError, RecursionError) as exc:
        raise ProtocolError(f"not JSON: {exc}") from exc


def _decode(data: Any, kinds: Mapping[str, type[Any]]) -> Any:
    if not isinstance(data, dict):
        raise ProtocolError(f"a message is an object, not {type(data).__name__}")
    if not isinstance(kind := data.get("kind"), str) or kind not in kinds:
        raise UnknownKindError(f"unknown kind {kind!r}; known: {', '.join(sorted(kinds))}")
    return from_plain(kinds[kind], data, where=kind)
