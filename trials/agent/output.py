"""Standard output and error of a trial: into capped files, and through the metrics pattern into the spool."""

from __future__ import annotations

import os
import re
import time

from trials.agent.logs import RotatedLog
from trials.spool_writer import STEP_MAX, SpoolWriter, metric_line

LOG_LIMIT_BYTES = 16 << 20
OUTPUT_TAIL_BYTES = 4 << 10
READ_BYTES = 64 << 10
PATTERN_LINE_BYTES = 8 << 10  # only so much of a line is matched: a pattern may take long on a long line


class Stream:
    """The reading end of one pipe."""

    def __init__(self, descriptor: int, path: str, metrics: MetricsPattern | None) -> None:
        self._descriptor = descriptor
        self._log = RotatedLog(path, limit=LOG_LIMIT_BYTES)
        self._metrics = metrics
        self._tail = b""

    def read(self) -> bool:
        """Take what the pipe holds; False at its end."""
        data = os.read(self._descriptor, READ_BYTES)
        if not data:
            return False
        self._log.write(data)
        self._tail = (self._tail + data)[-OUTPUT_TAIL_BYTES:]
        if self._metrics is not None:
            self._metrics.feed(data)
        return True

    def is_blocked(self) -> bool:
        """Whether so many of its metrics are unacknowledged that no more should be read."""
        return self._metrics is not None and self._metrics.is_blocked()

    def tail(self) -> str:
        return self._tail.decode(errors="replace").strip()

    def close(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
        os.close(self._descriptor)
        self._log.close()


class MetricsPattern:
    """Lines of output become spool records: the named groups are the metrics, ``step`` is the step."""

    def __init__(self, pattern: str, spool: str, acknowledged: str) -> None:
        """ValueError when ``pattern`` is no regular expression."""
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise ValueError(str(error)) from error
        self._writer = SpoolWriter(spool, acknowledged=acknowledged)
        self._line = b""
        self._next_step = 0

    def feed(self, data: bytes) -> None:
        """Take output as it comes; a line ends at a newline or, as progress bars write it, at a carriage return."""
        *lines, rest = (self._line + data).replace(b"\r", b"\n").split(b"\n")
        self._line = rest[:PATTERN_LINE_BYTES]
        found = [self._match(line[:PATTERN_LINE_BYTES].decode(errors="replace")) for line in lines]
        self._writer.append(*[record for record in found if record is not None])

    def _match(self, line: str) -> bytes | None:
        """The record that the line means."""
        match = self._pattern.search(line)
        if match is None:
            return None
        values = {}
        for name, text in match.groupdict().items():
            try:
                values[name] = float(text)
            except (TypeError, ValueError):
                continue  # an optional group that did not take part, or text that is no number
        step = values.pop("step", None)
        if step is None or not 0 <= step <= STEP_MAX:
            step = self._next_step
        if not values:
            return None
        self._next_step = int(step) + 1
        return metric_line(step=int(step), values=values, at=time.time(), final=False)

    def is_blocked(self) -> bool:
        return self._writer.is_full()

    def close(self) -> None:
        if self._line:
            self.feed(b"\n")
        self._writer.close()
