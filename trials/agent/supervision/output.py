"""Standard output and error of a trial: into capped files, and through the metrics pattern into the spool."""

from __future__ import annotations

import fcntl
import os
import time

from trials.agent.supervision.matching import (
    LINE_BYTES,
    REQUEST_BYTES,
    Matcher,
    MatcherDiedError,
    Matchers,
    PatternFailedError,
)
from trials.processes.logs import RotatedLog
from trials.reports.spool_writer import SpoolWriter
from trials.wire.limits import LOG_LIMIT_BYTES, OUTPUT_TAIL_BYTES
from trials.wire.lines import record_line
from trials.wire.patterns import groups_of

READ_BYTES = 64 << 10  # what a pipe holds
READ_BYTES_MAX = 1 << 20  # at once, of a trial that fills it faster than it is read
BACKLOG_BYTES = 2 << 20  # of lines that are not matched yet: with more the output is not read, and the trial waits
MATCHER_DEATHS_MAX = 8  # of an attempt, by other means than the limit; then its output is not matched any more
_F_SETPIPE_SZ = 1031  # of Linux; fcntl names it only in some builds

NOTICE_TOO_SLOW = "metrics_pattern_too_slow"
NOTICE_FAILED = "metrics_pattern_failed"


class Stream:
    """The reading end of one pipe."""

    def __init__(self, descriptor: int, path: str, metrics: MetricsPattern | None) -> None:
        self.metrics = metrics
        self._descriptor = descriptor
        self._log = RotatedLog(path, limit=LOG_LIMIT_BYTES)
        self._tail = b""
        self._room = READ_BYTES

    def read(self) -> int | None:
        """Take what the pipe holds: how many bytes there were, or None at its end."""
        data = os.read(self._descriptor, self._room)
        if not data:
            return None
        if len(data) >= self._room // 2 and self._room < READ_BYTES_MAX:
            self._widen()
        self._log.write(data)
        self._tail = (self._tail + data[-OUTPUT_TAIL_BYTES:])[-OUTPUT_TAIL_BYTES:]
        if self.metrics is not None:
            self.metrics.feed(data)
        return len(data)

    def is_wanted(self, *, stopping: bool) -> bool:
        """Whether to read it. If not its pipe fills, and the trial waits.

        One that is to end need not wait for the service; what is not matched yet is bounded all the same.
        """
        metrics = self.metrics
        return metrics is None or not (metrics.is_behind() or (metrics.is_blocked() and not stopping))

    @staticmethod
    def has_more(size: int) -> bool:
        """Whether a reading that brought ``size`` bytes is to be followed by the next one at once."""
        return size >= READ_BYTES // 2  # what is written piece by piece does not fill a pipe wholly

    def tail(self) -> str:
        return self._tail.decode(errors="replace").strip()

    def close(self) -> None:
        if self.metrics is not None:
            self.metrics.close()
        os.close(self._descriptor)
        self._log.close()

    def _widen(self) -> None:
        self._room = READ_BYTES_MAX
        try:
            fcntl.fcntl(self._descriptor, _F_SETPIPE_SZ, READ_BYTES_MAX)
        except OSError:
            return  # this user has as much in pipes as it may: then this one is read more often


class MetricsPattern:
    """Lines of output become spool records: the named groups are the metrics, ``step`` is the step.

    The lines are matched by a process of this attempt, which is given them one portion after the other. What it does
    not come to is kept up to a bound. ``goes_on`` takes its answers; nothing here waits.
    """

    def __init__(self, pattern: str, *, spool: str, acknowledged: str, matchers: Matchers) -> None:
        """ValueError when ``pattern`` is no regular expression."""
        groups_of(pattern)
        self._pattern = pattern
        self._matchers = matchers
        self._matcher: Matcher | None = None
        self._asked = False  # the matcher has the first of ``_portions``
        self._deaths = 0
        self._given_up = False
        self._writer = SpoolWriter(spool, acknowledged=acknowledged)
        self._unwritten = b""  # found no room on the disk
        self._portions: list[bytes] = []  # of whole lines, each small enough for a request
        self._waiting = 0  # their bytes
        self._line = b""  # the beginning of one that is not whole yet
        self._next_step = 0

    def feed(self, data: bytes) -> None:
        """Take output as it comes; a line ends at a newline or, as progress bars write it, at a carriage return."""
        if self._given_up:
            return
        data = data.replace(b"\r", b"\n")
        for begin in range(0, len(data), REQUEST_BYTES - LINE_BYTES):
            self._take(data[begin : begin + REQUEST_BYTES - LINE_BYTES])
        self.go_on()

    def _take(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1
        if not end:
            self._line = (self._line + data)[:LINE_BYTES]
            return
        lines, self._line = self._line + data[:end], data[end:][:LINE_BYTES]
        self._waiting += len(lines)
        if len(self._portions) > self._asked and len(self._portions[-1]) + len(lines) <= REQUEST_BYTES:
            self._portions[-1] += lines
        else:
            self._portions.append(lines)

    def go_on(self) -> None:
        """Take the answer of the matcher if there is one, write it down, and ask for more."""
        try:
            if self._asked and self._matcher is not None:
                answer = self._matcher.answer()
                if answer is None:
                    return
                self._answered(*answer)
            self._write()
            if self._portions and not self._unwritten and not self._given_up:
                self._ask()
        except MatcherDiedError as death:
            self._died(death)
        except PatternFailedError as error:
            self._give_up(NOTICE_FAILED, f"the metrics pattern could not be used: {error}")

    def _answered(self, matched: int, next_step: int, records: bytes) -> None:
        self._asked = False
        self._next_step = next_step
        self._waiting -= matched
        self._portions[0] = self._portions[0][matched:]
        if not self._portions[0]:
            del self._portions[0]
        self._unwritten += records

    def _write(self) -> None:
        if not self._unwritten:
            return
        try:
            self._unwritten = self._unwritten[self._writer.append_some(self._unwritten) :]
        except OSError:  # none that room would mend: there is nowhere to say so
            self._given_up, self._unwritten = True, b""
            self._portions, self._waiting, self._line = [], 0, b""

    def _ask(self) -> None:
        if self._matcher is None:
            try:
                self._matcher = self._matchers.take(self._pattern)
            except OSError:
                return  # no room for a process: tried again
        self._matcher.ask(self._portions[0], next_step=self._next_step)
        self._asked = True

    def _died(self, death: MatcherDiedError) -> None:
        self._end_matcher()
        self._deaths += 1
        if death.too_slow:
            self.stop_slow()
        elif self._deaths > MATCHER_DEATHS_MAX:
            self._give_up(NOTICE_FAILED, f"the process that matches the output was killed {self._deaths} times")

    def stop_slow(self) -> None:
        """It is too slow for this output."""
        self._give_up(
            NOTICE_TOO_SLOW,
            "the metrics pattern takes too long on this trial's output, which is not matched any more: no metrics are "
            "read from it; expressions like (a+)+ or (.*)* try every way to divide a line",
        )

    def _give_up(self, code: str, message: str) -> None:
        self._end_matcher()
        self._given_up = True
        self._portions, self._waiting, self._line = [], 0, b""
        self._unwritten += record_line({"kind": "notice", "code": code, "message": message, "at": time.time()}) + b"\n"
        self._write()

    def _end_matcher(self) -> None:
        if self._matcher is not None:
            self._matchers.end(self._matcher)
        self._matcher, self._asked = None, False

    def tries_again(self) -> bool:
        """Go on with what found no room, for a process or on the disk; whether there is such."""
        if self.is_done() or self._asked:
            return False
        self.go_on()
        return True

    def descriptor(self) -> int | None:
        """What becomes readable when ``go_on`` has something to take."""
        return self._matcher.descriptor if self._asked and self._matcher is not None else None

    def is_blocked(self) -> bool:
        """Whether so many of its metrics are unacknowledged that no more output should be read."""
        return bool(self._unwritten) or self._writer.is_full()

    def is_behind(self) -> bool:
        """Whether so much output is not matched that no more should be read."""
        return self._waiting > BACKLOG_BYTES

    def finish(self) -> None:
        """Nothing follows: the last line may have had no end."""
        if self._line:
            self.feed(b"\n")

    def is_done(self) -> bool:
        """Whether everything that was fed is in the spool."""
        return not self._portions and not self._unwritten

    def is_matched(self) -> bool:
        """Whether everything that was fed was looked at, though it may have found no room on the disk yet."""
        return not self._portions

    def close(self) -> None:
        if self._matcher is not None and not self._asked:
            self._matchers.give_back(self._matcher)
            self._matcher = None
        self._end_matcher()
        self._writer.close()
