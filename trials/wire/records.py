"""What stands in the files of an attempt: what its processes write, and what the agent reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from trials.wire.lines import record_line
from trials.wire.plain import to_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """Identity of a process: never the pid alone.

    ``start_time`` is field 22 of /proc/PID/stat (clock ticks since boot).
    """

    boot_id: str
    pid: int
    start_time: int


class Isolation(StrEnum):
    """How the process of a trial begins."""

    FORK = "fork"  # from a server that has imported what trials import
    SPAWN = "spawn"  # a process of its own from the start


class ExitCause(StrEnum):
    EXITED = "exited"  # by itself, with a code
    SIGNALED = "signaled"  # by a signal nobody here sent, or that it brought on itself
    OUT_OF_MEMORY = "out_of_memory"  # killed by the kernel for memory, or for using more than it may
    OUT_OF_TIME = "out_of_time"  # stopped after the longest time it may run
    STOPPED = "stopped"  # after the agent was told to stop it
    SUPERVISOR_LOST = "supervisor_lost"  # its parent died; the rest was found by nonce and killed
    HOST_REBOOTED = "host_rebooted"
    LAUNCH_FAILED = "launch_failed"  # never ran; tail says why
    FILES_DAMAGED = "files_damaged"  # ended because its files were removed or damaged while it ran; tail says which
    DEVICE_UNAVAILABLE = "device_unavailable"  # never ran: a device it was given was not free; tail says which
    ASSETS_MISSING = "assets_missing"  # never ran: the store has not what it was to be given; tail says what
    NOT_READY = "not_ready"  # of several nodes, one was not ready in time, or a port was taken meanwhile; tail says
    ATTEMPT_LOST = "attempt_lost"  # the service alone says this: no agent holds the attempt any more


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """How an attempt ended, as its parent saw it.

    ``code`` is None exactly when a signal ended it or nobody saw the end.
    """

    cause: ExitCause
    code: int | None = None
    signal: int | None = None
    stop_reason: str | None = None  # set when the agent had been told to stop it
    started_at: float | None = None  # seconds since the epoch
    ended_at: float | None = None
    peak_memory_bytes: int | None = None
    processor_s: float | None = None  # of the whole tree, as far as it was seen
    memory_limit_bytes: int | None = None  # set when it was ended for using more than this
    isolation: Isolation | None = None
    why_spawned: str | None = None  # why it was not forked
    ran_s: float | None = None  # by the monotonic clock; None where nobody saw the end
    tail: str = ""  # the end of its standard error, or of its output where that is empty


# ── spool records: what a trial writes ──────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRecord:
    """``final`` False: intermediate metrics at ``step``. ``final`` True: ``step`` is None."""

    kind: ClassVar[str] = "metric"
    step: int | None
    values: dict[str, float]
    at: float
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """A checkpoint is complete on disk: ``name`` in FOLDER_CHECKPOINTS with SHA-256 ``digest`` (hex).

    Written in the background, so reports of later steps may stand before it.
    """

    kind: ClassVar[str] = "checkpoint"
    step: int
    name: str
    digest: str
    size: int
    at: float
    value: float | None = None  # the objective as last reported when the state was taken; None: nothing was
    stall_s: float | None = None  # so long the script waited
    write_s: float | None = None  # so long the background took, until it was on the disk


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDamagedRecord:
    """A checkpoint to restore from had other bytes than ``digest`` says; it was set aside."""

    kind: ClassVar[str] = "checkpoint_damaged"
    step: int
    digest: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CooperationRecord:
    """The script asks ``should_stop``, so it is told first and signalled only after part of the grace."""

    kind: ClassVar[str] = "cooperates"
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopToldRecord:
    """The script was told to stop. That it leaves then is no end, and what it reports as final then is no result."""

    kind: ClassVar[str] = "stop_told"
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersWantedRecord:
    """The script waits for the parameters of ``index``, from 1. A later attempt that asks for it gets the same."""

    kind: ClassVar[str] = "parameters_wanted"
    index: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersMissingRecord:
    """The script asks for parameters that it was given none of: each with its range, as a search space has it.

    ``beside`` are those it had asked for before, which may say the branch that it is in.
    """

    kind: ClassVar[str] = "parameters_missing"
    parameters: dict[str, Any]
    beside: dict[str, Any]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRecord:
    """Something that people are to know of the attempt, which goes on. ``code`` is a short name for it."""

    kind: ClassVar[str] = "notice"
    code: str
    message: str
    at: float


SpoolRecord = (
    MetricRecord | CheckpointRecord | CheckpointDamagedRecord | CooperationRecord | StopToldRecord
    | ParametersWantedRecord | ParametersMissingRecord | NoticeRecord
)  # fmt: skip


def encode_record(record: SpoolRecord) -> bytes:
    """One spool line, without its newline. NoRecordError where no service would take it."""
    return record_line({"kind": record.kind, **to_plain(record)})
