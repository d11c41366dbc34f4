"""What an exit means: pure functions of the exit record."""

from __future__ import annotations

import hashlib
import math
import re
import signal
from dataclasses import dataclass
from typing import Literal, TypeGuard

from trials.wire.records import ExitCause, ExitRecord
from tuner_service.domain.trial import Attempt, TrialReason

# Signals that somebody else sends to end a process; the others a process brings on itself.
OUTSIDE_SIGNALS = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGQUIT})
TRACEBACK_START = "Traceback (most recent call last)"
# Of the whole program: those of an exception group's members are set in. torch writes the rank before each line.
_BEGINNING = re.compile(
    r"^(?:\[rank\d+\]: ?)?(?:  \+ Exception Group )?Traceback \(most recent call last\):$", re.MULTILINE
)
_MARGIN = re.compile(r"^(?:\[rank\d+\]: ?)?(?:  (?=\| )\| )?")
_MEMBER = re.compile(r"^(?:\[rank\d+\]: ?)? {4,}\| (?P<error>[A-Za-z_][\w.]*(?:: .*)?)$", re.MULTILINE)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", (?P<place>line \d+.*)$')


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """It ran to its end: exit code 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """It failed by its own doing: the attempt is charged. ``fingerprint`` is equal for equal errors."""

    reason: TrialReason
    message: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Ended from outside: the attempt is not charged, the trial goes on in a new one."""

    reason: TrialReason
    message: str


Meaning = Ended | Died | Interrupted
Unseen = Literal[ExitCause.SUPERVISOR_LOST, ExitCause.HOST_REBOOTED, ExitCause.ATTEMPT_LOST]


def meaning(record: ExitRecord, *, was_told: bool = False, has_result: bool = False) -> Meaning:
    """``was_told``: the script knew that it is to stop. ``has_result``: it reported the objective's final metric.

    A script that was told has left where it was; one that was not, and exits well, has ended.
    """
    match record.cause:
        case ExitCause.EXITED if was_told:
            return Interrupted(reason=TrialReason.PREEMPTED, message="left when it was told to stop")
        case ExitCause.EXITED if record.code == 0:
            return Ended()
        case ExitCause.STOPPED if record.code == 0 and has_result and not was_told:
            return Ended()  # the order to stop had not reached it yet
        case ExitCause.EXITED:
            return _died(TrialReason.EXIT_CODE, f"exit code {record.code}", record)
        case ExitCause.SIGNALED if record.signal in OUTSIDE_SIGNALS:
            message = f"ended by {signal_name(record.signal)} from outside"
            return Interrupted(reason=TrialReason.PREEMPTED, message=message)
        case ExitCause.SIGNALED:
            return _died(TrialReason.SIGNAL, f"ended by {signal_name(record.signal)}", record)
        case ExitCause.OUT_OF_MEMORY:
            return _died(TrialReason.OUT_OF_MEMORY, _memory_sentence(record), record)
        case ExitCause.OUT_OF_TIME:
            return _died(TrialReason.MAX_DURATION, "ran longer than trial.max_duration", record)
        case ExitCause.LAUNCH_FAILED:
            return _died(TrialReason.LAUNCH_FAILED, "could not be started", record)
        case ExitCause.FILES_DAMAGED:
            return _died(TrialReason.FILES_DAMAGED, "its files were damaged", record)
        case ExitCause.DEVICE_UNAVAILABLE:
            return Interrupted(reason=TrialReason.DEVICE_UNAVAILABLE, message=last_line(record.tail))
        case ExitCause.NOT_READY:
            return Interrupted(reason=TrialReason.NODES_NOT_READY, message=last_line(record.tail))
        case ExitCause.ASSETS_MISSING:
            return Interrupted(reason=TrialReason.ASSETS_MISSING, message=last_line(record.tail))
        case ExitCause.STOPPED:
            return Interrupted(reason=TrialReason.PREEMPTED, message="stopped on its machine")
        case _:
            unseen: Unseen = record.cause
            said = last_line(record.tail) if unseen is ExitCause.ATTEMPT_LOST else ""  # else it is the script's own
            message = said or f"{unseen.value.replace('_', ' ')}; nobody saw how it ended"
            return Interrupted(reason=TrialReason.ATTEMPT_LOST, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """When an attempt ran. ``ran_s`` is no difference of the two, which clocks that are set may change."""

    started_at: float | None
    ended_at: float
    ran_s: float


def life_of(attempt: Attempt, record: ExitRecord, *, at: float) -> Life:
    """As its parent saw it, who may have done so long before ``at``, when this is told.

    Never before the attempt was ordered or began, nor later than ``at``: the clock of its machine may be another one.
    """
    started_at = attempt.started_at
    if started_at is None and _is_time(record.started_at):
        started_at = min(max(record.started_at, attempt.created_at), at)
    begun = attempt.created_at if started_at is None else started_at
    ran_s = record.ran_s if _is_time(record.ran_s) else None
    ended_at = at
    if _is_time(record.ended_at):
        # A clock that says it ended before it began was set back: how long it ran is known all the same.
        ended_at = min(record.ended_at if record.ended_at >= begun else begun + (ran_s or 0.0), at)
    ended_at = max(begun, ended_at)
    if ran_s is None:
        ran_s = 0.0 if started_at is None else ended_at - started_at
    return Life(started_at=started_at, ended_at=ended_at, ran_s=ran_s)


def _is_time(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and value >= 0.0


def _memory_sentence(record: ExitRecord) -> str:
    if record.memory_limit_bytes is None:
        return "killed by the kernel: out of memory"
    return f"used more memory than its {record.memory_limit_bytes / (1 << 20):.0f} MiB"


def signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def _died(reason: TrialReason, what: str, record: ExitRecord) -> Died:
    last = told_error(record.tail)
    return Died(
        reason=reason,
        message=f"{what}: {last}" if last else what,
        fingerprint=fingerprint(what, record.tail),
    )


def told_error(tail: str) -> str:
    """What a script says of why it fails: its last line.

    Behind the error of the last traceback, where that has further lines: of a message of several lines, as torch's of
    CUDA are, the last says least, and of an exception group it is a rule.
    """
    last, beginnings = last_line(tail), list(_BEGINNING.finditer(tail))
    if not beginnings:
        return last
    after = tail[beginnings[-1].end() :]
    lines = [_MARGIN.sub("", line) for line in after.splitlines()]
    error = next((line.strip() for line in lines if not line[:1].isspace() and line[:1].strip("|+")), "")
    if "Group" in beginnings[-1][0]:
        member = _MEMBER.search(after)
        return f"{error}; {member['error']}" if error and member else error or last
    last = _MARGIN.sub("", last).strip()
    return f"{error} … {last}" if error and error != last else last


def last_line(tail: str) -> str:
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def fingerprint(what: str, tail: str) -> str:
    """Equal for failures with the same frames and the same type of error, whatever their folders and values."""
    parts = [what]
    start = tail.rfind(TRACEBACK_START)
    if start >= 0:
        lines = tail[start:].splitlines()
        frames = [m for line in lines if (m := _FRAME.match(line))]
        parts += [f"{m['file'].rsplit('/', 1)[-1]} {m['place']}" for m in frames]
        parts.append(last_line(tail).split(":", 1)[0])
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
