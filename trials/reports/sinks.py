"""The sinks of reports: into the spool of an attempt, or, for a script that runs alone, to the terminal."""

from __future__ import annotations

import atexit
import os
import queue
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from trials.reports.spool_writer import SpoolWriter, TooManyMetricsError
from trials.wire.files import FILE_ACKNOWLEDGED, FILE_COOPERATES, FILE_SPOOL, FILE_STOP
from trials.wire.limits import METRIC_NAME_LIMIT, METRICS_LIMIT
from trials.wire.lines import metric_line
from trials.wire.records import (
    CheckpointDamagedRecord,
    CheckpointRecord,
    CooperationRecord,
    ParametersMissingRecord,
    ParametersWantedRecord,
    StopToldRecord,
    encode_record,
)
from trials.wire.texts import one_line

FULL_SPOOL_POLL_S = 0.05
WAKE_BYTES = 64  # of a datagram; of one with more the agent looks at all attempts
WAKE_RETRY_S = 0.5  # after the agent's socket was gone


def numbers(metrics: Mapping[str, Any], *, objective: str = "") -> dict[str, float]:
    """The metrics as floats. TypeError names the one that is no real number, ValueError what the service refuses.

    A control character in a name, such as the line break behind a label that was read from a file, is replaced, and
    standard error says so: no trial should end for it. Names that would be the same then are written with escapes.
    The ``objective`` keeps its name, whatever that is.
    """
    if not metrics:
        raise TypeError("a report needs at least one metric, as in report(step=3, loss=0.2)")
    if len(metrics) > METRICS_LIMIT:
        raise TooManyMetricsError(len(metrics))
    found = {name: _number(name, value) for name, value in metrics.items()}
    if len(longest := max(found, key=len)) > METRIC_NAME_LIMIT:
        raise ValueError(
            f"the name of a metric has {METRIC_NAME_LIMIT} characters at most, and {longest[:50]!r}… has {len(longest)}"
        )
    if all(map(str.isprintable, found)):
        return found
    lines = {name: name if name == objective else one_line(name) for name in found}
    taken = Counter(lines.values())
    # Two that differ in such a character alone would be one, of which one value were lost.
    named = {name: line if line == name else _said(name, line, taken[line] == 1) for name, line in lines.items()}
    return {named[name]: value for name, value in found.items()}


@lru_cache(maxsize=METRICS_LIMIT)  # so that it is said once
def _said(name: str, line: str, is_alone: bool) -> str:  # noqa: FBT001  cached calls are told apart by their place
    named = line if is_alone else repr(name)[1:-1][:METRIC_NAME_LIMIT]
    with suppress(OSError, ValueError, AttributeError):  # a standard error that is full, closed or none at all
        sys.stderr.write(f"the name of a metric is one line of text: {name!r} is reported as {named}\n")
    return named


def _number(name: str, value: Any) -> float:
    if type(value) is float:
        return value
    if type(name) is not str:
        raise TypeError(f"the name of a metric is text, not {name!r}")
    try:
        if not isinstance(value, int | float):
            value = _scalar(value)
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"metric {name!r} must be a real number, not {type(value).__name__} {_shortly(value)}; "
            "a tensor or array must hold exactly one value"
        ) from error


def _scalar(value: Any) -> Any:
    if isinstance(value, str | bytes | complex):
        raise TypeError("not a real number")
    # Arrays and tensors: item() insists on exactly one value, also where float() would warn.
    found = value.item() if hasattr(value, "item") else value
    if isinstance(found, str | bytes | complex):
        raise TypeError("not a real number")
    return found


def _shortly(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Sink(Protocol):
    """What takes the records of a trial, in order."""

    def metrics(self, *, step: int | None, values: dict[str, float], final: bool) -> None: ...

    def checkpoint(self, record: CheckpointRecord) -> None:
        """Called by the thread that wrote it."""

    def damaged(self, *, step: int, digest: str) -> None: ...

    def cooperates(self) -> None: ...

    def stop_told(self) -> None:
        """Before the script knows: whatever it writes because of it stands after this."""

    def sync(self) -> None: ...

    def close(self) -> None: ...


class SpoolSink:
    """Records of an attempt: appended to its spool, then the agent is woken."""

    def __init__(self, folder: Path, wake: str | None) -> None:
        self._folder = folder
        self._wake = wake
        self._name = folder.name.partition("-")[2].encode()[:WAKE_BYTES] or b"r"
        self._waker = Waker(wake, self._name)
        self._writer = SpoolWriter(
            str(folder / FILE_SPOOL),
            acknowledged=str(folder / FILE_ACKNOWLEDGED),
            closed_by_script=self._waker.forget,
        )
        self._stop_file = str(folder / FILE_STOP)
        self._warned = False

    def metrics(self, *, step: int | None, values: dict[str, float], final: bool) -> None:
        if self._writer.is_full():
            self._wait_for_room()
        self._writer.append(metric_line(step=step, values=values, at=time.time(), final=final))
        self._waker.wake()

    def checkpoint(self, record: CheckpointRecord) -> None:
        # This runs in the thread that wrote the checkpoint, and the script may be in the middle of a report: the writer
        # is not thread-safe, so the record gets one of its own. O_APPEND keeps the lines apart.
        writer = SpoolWriter(str(self._folder / FILE_SPOOL))
        waker = Waker(self._wake, self._name)
        try:
            writer.append(encode_record(record))
            waker.wake()
        finally:
            writer.close()
            waker.close()

    def damaged(self, *, step: int, digest: str) -> None:
        record = CheckpointDamagedRecord(step=step, digest=digest, at=time.time())
        self._writer.append(encode_record(record))
        self._waker.wake()

    def cooperates(self) -> None:
        (self._folder / FILE_COOPERATES).touch()
        self._writer.append(encode_record(CooperationRecord(at=time.time())))
        self._waker.wake()

    def stop_told(self) -> None:
        self._writer.append(encode_record(StopToldRecord(at=time.time())))
        self._waker.wake()

    def wants_parameters(self, index: int) -> None:
        self._writer.append(encode_record(ParametersWantedRecord(index=index, at=time.time())))
        self._waker.wake()

    def misses_parameters(self, parameters: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        """They are to be part of the search space; sent with the next thing that is."""
        record = ParametersMissingRecord(parameters=dict(parameters), beside=dict(beside), at=time.time())
        self._writer.append(encode_record(record))

    def wake(self) -> None:
        """Let the agent look at the attempt's files."""
        self._waker.wake()

    def sync(self) -> None:
        self._writer.sync()

    def close(self) -> None:
        """ReportsLostError where what was reported is not in the file any more."""
        try:
            self._writer.check()
        finally:
            self._writer.close()
            self._waker.close()

    def _wait_for_room(self) -> None:
        """Until the service has acknowledged enough, or the trial is asked to stop."""
        if not self._warned:
            sys.stderr.write("report() waits: the service has not taken the earlier reports yet\n")
            self._warned = True
        while self._writer.is_full() and not os.access(self._stop_file, os.F_OK):
            self._waker.wake()
            time.sleep(FULL_SPOOL_POLL_S)


class OtherRankSink(SpoolSink):
    """Of a process of a trial of several nodes that is not rank 0: it reports nothing, and says so once."""

    def __init__(self, folder: Path, wake: str | None, *, rank: str) -> None:
        super().__init__(folder, wake)
        self._rank = rank
        self._said = False

    def metrics(self, *, step: int | None, values: dict[str, float], final: bool) -> None:
        del step, values, final
        self.say_dropped("report()")

    def say_dropped(self, what: str) -> None:
        if not self._said:
            self._said = True
            sys.stderr.write(f"{what} is rank 0's: what rank {self._rank} gives is dropped\n")


class Waker:
    """Tells the agent by a datagram that there is something to read. Never waits and never fails.

    ``name``: the attempt's nonce, so that the agent of many that report often need not look at all of them each time.
    """

    def __init__(self, path: str | None, name: bytes = b"r") -> None:
        self._path = path
        self._name = name
        self._socket: socket.socket | None = None
        self._retry_at = 0.0

    def wake(self) -> None:
        if self._socket is None and not self._connect():
            return
        assert self._socket is not None
        try:
            self._socket.send(self._name)
        except BlockingIOError:
            return  # its queue is full of such datagrams: it will look
        except OSError:
            self.close()  # the agent is gone; the next one reads the spool by itself and listens again
            self._connect()

    def forget(self) -> None:
        """The script has closed it, and its number may be another socket now: it is neither used nor closed."""
        if self._socket is not None:
            self._socket.detach()
            self._socket = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> bool:
        if self._path is None or time.monotonic() < self._retry_at:
            return False
        self._retry_at = time.monotonic() + WAKE_RETRY_S
        candidate = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        candidate.setblocking(False)  # noqa: FBT003  the standard library takes it by position only
        try:
            candidate.connect(self._path)
        except OSError:
            candidate.close()
            return False
        self._socket = candidate
        return True


class TerminalSink:
    """Reports of a script that runs alone.

    A checkpoint is written by a thread, whose line would stand in the middle of one that the script prints: it comes
    with the trial's next line, or at the end.
    """

    def __init__(self) -> None:
        self._checkpoints: queue.SimpleQueue[str] = queue.SimpleQueue()
        atexit.register(self.close)  # of a script that does not close its trial

    def metrics(self, *, step: int | None, values: dict[str, float], final: bool) -> None:
        self._say_checkpoints()
        head = "final" if final else f"step {step}"
        sys.stdout.write(f"{head}: {'  '.join(f'{name}={value:.6g}' for name, value in values.items())}\n")
        sys.stdout.flush()

    def checkpoint(self, record: CheckpointRecord) -> None:
        self._checkpoints.put(f"checkpoint of step {record.step}: {record.name}\n")

    def damaged(self, *, step: int, digest: str) -> None:
        """It was said on standard error."""

    def cooperates(self) -> None:
        """Nobody needs to know."""

    def stop_told(self) -> None:
        """It runs alone, so what it reports is its own."""

    def sync(self) -> None:
        """The terminal keeps nothing."""

    def close(self) -> None:
        """The terminal stays open."""
        atexit.unregister(self.close)
        if not self._checkpoints.empty():
            self._say_checkpoints()
            sys.stdout.flush()

    def _say_checkpoints(self) -> None:
        while not self._checkpoints.empty():
            sys.stdout.write(self._checkpoints.get())
