"""Processes that match the output of trials against their ``metrics_pattern``.

An expression that people give can keep a processor busy for ever, so nobody matches it who has something else to do.
A matcher works for one attempt at a time and remembers nothing between two requests: one that dies is replaced, and
asked again. What its work costs is limited by the kernel, which ends it in the middle of an expression, too. It is kept
for the next attempt with the same expression, because a trial of some milliseconds would notice a fork.

A request is where the steps are and whole lines of output; an answer is how much of that was matched, where the steps
are now, and records of the spool. Only the asking side writes these down.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import os
import re
import resource
import signal
import time
from typing import Any, NoReturn

from trials.processes.parents import IGNORE, Child, die_with, end_mask, ending_of, fork, leave_handlers
from trials.wire.limits import REPORT_LINE_BYTES, STEP_MAX
from trials.wire.lines import NoRecordError, metric_line

PROCESSOR_S = 2.0  # for one request: more, and the pattern is too slow for this output
MEMORY_BYTES = 256 << 20  # beside what the process has from its parent: a pattern that needs more has failed
REQUEST_BYTES = 64 << 10  # of lines
LINE_BYTES = 8 << 10  # only so much of a line is matched: a pattern may take long on a long line
ANSWER_BYTES = 96 << 10  # an answer with so many bytes of records is sent, and the rest of the lines is asked for again
IDLE_MATCHERS_MAX = 8  # kept for attempts to come
_NUMBER_BYTES = 8
_CHANNEL_BYTES = 256 << 10  # for one message each way: no process ever waits while it sends
_MATCHED, _FAILED = b"=", b"!"
_PAGE_BYTES = resource.getpagesize()


class MatcherDiedError(Exception):
    """It has ended, and what it was asked is to be asked again; ``too_slow``: it never would have answered."""

    def __init__(self, *, too_slow: bool) -> None:
        super().__init__()
        self.too_slow = too_slow


class PatternFailedError(Exception):
    """The pattern cannot be used at all; the text says why."""


class Matchers:
    """Those of one parent of trials, which puts them into ``helpers``: they are no trial's processes."""

    def __init__(self, helpers: set[int]) -> None:
        self._helpers = helpers
        self._idle: list[Matcher] = []  # the one that was used longest ago first

    def take(self, pattern: str) -> Matcher:
        """One that nobody else has. OSError where the machine has no room for a process."""
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place].pattern == pattern:
                return self._idle.pop(place)
        matcher = Matcher(pattern)
        self._helpers.add(matcher.pid)
        return matcher

    def give_back(self, matcher: Matcher) -> None:
        """It has nothing to do any more."""
        self._idle.append(matcher)
        while len(self._idle) > IDLE_MATCHERS_MAX:
            self.end(self._idle.pop(0))

    def end(self, matcher: Matcher) -> int:
        """Whatever it does; its exit code, minus the signal where one has ended it."""
        status = matcher.end()
        self._helpers.discard(matcher.pid)
        return status

    def close(self) -> None:
        """Nobody wants one any more."""
        while self._idle:
            self.end(self._idle.pop())


class Matcher:
    """One of them, as its parent has it."""

    def __init__(self, pattern: str) -> None:
        import socket  # after the trial was started, which does not wait for this import

        self.pattern = pattern
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._channel, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHANNEL_BYTES)
        parent = os.getpid()
        try:
            pid = fork()
            if pid == 0:
                _be_matcher(theirs, pattern, parent)
            self._child = Child(pid)
        except OSError:
            self._channel.close()
            raise
        finally:
            if os.getpid() == parent:
                theirs.close()
        self.pid = pid
        self._channel.settimeout(0.0)
        self.descriptor = self._channel.fileno()

    def ask(self, lines: bytes, *, next_step: int) -> None:
        """Once at a time; MatcherDiedError where it has died meanwhile."""
        try:
            self._channel.send(next_step.to_bytes(_NUMBER_BYTES, "big") + lines)
        except OSError:
            raise MatcherDiedError(too_slow=False) from None

    def answer(self) -> tuple[int, int, bytes] | None:
        """How many bytes it has matched, the next step, and the records in them; None: it is not ready yet."""
        try:
            data = self._channel.recv(_CHANNEL_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if data[:1] == _FAILED:
            raise PatternFailedError(data[1:].decode(errors="replace"))
        if not data:
            ended = ending_of(self.pid, waits=True)
            by_limit = ended is not None and ended.si_code != os.CLD_EXITED and ended.si_status == signal.SIGPROF
            raise MatcherDiedError(too_slow=by_limit)
        begin = 1 + _NUMBER_BYTES
        matched, next_step = (
            int.from_bytes(data[1:begin], "big"),
            int.from_bytes(data[begin : begin + _NUMBER_BYTES], "big"),
        )
        return matched, next_step, data[begin + _NUMBER_BYTES :]

    def end(self) -> int:
        self._channel.close()
        self._child.signal()
        return self._child.reap()


# ── in the matcher ──────────────────────────────────────────────────────────────────────────────
def _be_matcher(channel: Any, pattern: str, parent: int) -> NoReturn:
    try:
        _leave_parent(channel.fileno(), parent)
        _serve(channel, pattern)
    except OSError:
        pass  # whoever asked is gone
    except MemoryError:
        channel.send(_FAILED + b"it needs too much memory for this output")
    finally:
        os._exit(0)


def _leave_parent(channel: int, parent: int) -> None:
    """Have nothing of it any more, and end with it."""
    leave_handlers(IGNORE)  # signals are meant for the parent, which decides when this process ends
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    die_with(parent, code=0)
    end_mask()
    os.closerange(3, channel)
    os.closerange(channel + 1, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[5]) * _PAGE_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = used + MEMORY_BYTES
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _serve(channel: Any, pattern: str) -> None:
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
    try:
        compiled = re.compile(pattern)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        channel.send(_FAILED + str(error).encode(errors="replace")[:1_000])
        return
    while request := channel.recv(_CHANNEL_BYTES):
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_S)
        next_step = int.from_bytes(request[:_NUMBER_BYTES], "big")
        matched, next_step, records = match_lines(compiled, request[_NUMBER_BYTES:], next_step=next_step)
        numbers = matched.to_bytes(_NUMBER_BYTES, "big") + next_step.to_bytes(_NUMBER_BYTES, "big")
        channel.send(_MATCHED + numbers + records)


def match_lines(pattern: re.Pattern[str], lines: bytes, *, next_step: int) -> tuple[int, int, bytes]:
    """The records that whole ``lines`` mean: so many of their bytes were matched, with this next step.

    The named groups are the metrics; ``step`` is the step, else each match is one step further.
    """
    texts = lines.decode(errors="replace").split("\n")[:-1]  # nothing follows the last line end
    if len(lines) > LINE_BYTES and max(map(len, texts)) > LINE_BYTES // 4:
        # A character has four bytes at most: only here may one of them be too long.
        texts = [line[:LINE_BYTES].decode(errors="replace") for line in lines.split(b"\n")[:-1]]
    records: list[bytes] = []
    size = 0
    search, names = pattern.search, tuple(pattern.groupindex)
    for place, text in enumerate(texts):
        match = search(text)
        if match is None:
            continue
        record, next_step = _record_of(match, names, next_step)
        if record is None:
            continue
        records.append(record)
        size += len(record)
        if size >= ANSWER_BYTES:
            return _bytes_of(lines, place + 1), next_step, b"".join(records)
    return len(lines), next_step, b"".join(records)


def _record_of(match: re.Match[str], names: tuple[str, ...], next_step: int) -> tuple[bytes | None, int]:
    values = {}
    for name in names:
        try:
            values[name] = float(match[name])
        except (TypeError, ValueError):
            continue  # an optional group that did not take part, or text that is no number
    step = values.pop("step", None)
    if step is None or not 0 <= step <= STEP_MAX:
        step = next_step
    if not values:
        return None, next_step
    # What no reader of the spool would take counts as a match all the same.
    try:
        record = metric_line(step=int(step), values=values, at=time.time(), final=False) + b"\n"
    except NoRecordError:  # the name of a group is longer than that of a metric may be
        return None, int(step) + 1
    return record if len(record) <= REPORT_LINE_BYTES else None, int(step) + 1


def _bytes_of(lines: bytes, count: int) -> int:
    """Of the first ``count`` of them."""
    place = 0
    for _ in range(count):
        place = lines.index(b"\n", place) + 1
    return place
