"""What ranks print: kept for each of them, and passed on, line by line, to where the output of all goes.

A line is never divided by another rank's, however ranks write it: what reads metrics from the output relies on it.
"""

from __future__ import annotations

import os
import resource
import select
from pathlib import Path

from trials.processes.logs import RotatedLog
from trials.wire.log_streams import STREAMS, file_of, of_rank, rank_log_bytes

READ_BYTES = 64 << 10  # what a pipe holds
REST_BYTES = 1 << 20  # the most that a pipe may be made to hold
WAITING_BYTES = 256 << 10  # read and not passed on yet; with more, no rank is read, so that it waits as for a full pipe
LINE_BYTES = 8 << 10  # of a line that has no end yet; a longer one is passed on in pieces
LINE_S = 0.2  # and so long its end is waited for
LAST_WORDS_S = 20.0  # for whoever reads the output of all, when nothing runs any more
DESCRIPTORS_OF_A_RANK = 4  # two pipes and two logs
SPARE_DESCRIPTORS = 64


class Together:
    """Where the output of all ranks goes. Nothing here waits."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = bytearray()
        self.added = 0  # bytes, ever
        self._is_gone = False

    @property
    def passed_on(self) -> int:
        return self.added - len(self.waiting)

    def add(self, data: bytes) -> None:
        if not self._is_gone:
            self.waiting += data
            self.added += len(data)

    def pass_on(self) -> None:
        """Some of it; to be called when the descriptor can be written. A pipe that can has room for PIPE_BUF bytes."""
        try:
            del self.waiting[: os.write(self.descriptor, self.waiting[: select.PIPE_BUF])]
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more
            self._is_gone = True
            self.waiting.clear()


class _RankStream:
    """The reading end of the pipe of one rank."""

    def __init__(self, descriptor: int, log: RotatedLog, together: Together, *, job: str) -> None:
        self.descriptor, self.together, self.job = descriptor, together, job
        self._log = log
        self._line = b""  # the beginning of one that has no end yet
        self.line_due: float | None = None  # when that is passed on without its end

    def read(self, now: float) -> int | None:
        """Take what there is: how many bytes, 0 for nothing now. None when nothing more can come."""
        try:
            data = os.read(self.descriptor, READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self.end_line()
            return None
        self._log.write(data)
        data = self._line + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self.together.add(data[:end])
        if end or not self._line:
            self.line_due = now + LINE_S
        self._line = data[end:]
        if not self._line or len(self._line) > LINE_BYTES:
            self.end_line()
        return len(data)

    def end_line(self) -> None:
        """Pass on the beginning of a line."""
        self.together.add(self._line)
        self._line, self.line_due = b"", None

    def close(self) -> None:
        os.close(self.descriptor)
        self._log.close()


class RankOutput:
    """Of the ranks of one node. Its owner polls what ``register`` names, and calls ``move`` with what was ready.

    ``folder`` gets the logs of each rank; the output of all goes to ``out`` and ``err``.
    """

    def __init__(self, folder: Path, *, out: int = 1, err: int = 2) -> None:
        self._folder = folder
        self._together = dict(zip(STREAMS, (Together(out), Together(err)), strict=True))
        self._streams: dict[int, _RankStream] = {}
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._ended: dict[str, list[tuple[Together, int]]] = {}  # jobs, and how much is to be passed on of each

    def make_room(self, ranks: int) -> None:
        """For the descriptors of so many, as far as this user may have them."""
        if DESCRIPTORS_OF_A_RANK * ranks + 2 * len(self._streams) + SPARE_DESCRIPTORS > self._limits[0]:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._limits[1], self._limits[1]))

    def limits_of_ranks(self) -> None:
        """In the process of a rank: it has the limit that it would have without us."""
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)

    def open(self, rank: int, *, ranks: int, job: str) -> tuple[int, ...]:
        """The descriptors of its standard output and error, which the caller closes; none where there are no more:
        then the rank writes where all do, and has no log of its own."""
        writing: list[int] = []
        for stream in STREAMS:
            try:
                reading, end = os.pipe2(os.O_CLOEXEC)
            except OSError:
                for descriptor in writing:
                    os.close(descriptor)
                return ()
            os.set_blocking(reading, False)
            writing.append(end)
            path = f"{self._folder}/{file_of(of_rank(stream, rank))}"
            log = RotatedLog(path, limit=rank_log_bytes(ranks))
            self._streams[reading] = _RankStream(reading, log, self._together[stream], job=job)
        return tuple(writing)

    def register(self, poller: select.poll) -> None:
        for together in self._together.values():
            if together.waiting:
                poller.register(together.descriptor, select.POLLOUT)
        for stream in self._streams.values():
            if stream.job not in self._ended and len(stream.together.waiting) < WAITING_BYTES:
                poller.register(stream.descriptor, select.POLLIN)

    def due(self) -> float | None:
        """When ``move`` is to be called though nothing is ready, on the monotonic clock."""
        return min((s.line_due for s in self._streams.values() if s.line_due is not None), default=None)

    def move(self, ready: set[int], *, now: float) -> None:
        """Take and pass on what can be; returns at once."""
        for together in self._together.values():
            if together.descriptor in ready and together.waiting:
                together.pass_on()
        for descriptor in ready & self._streams.keys():
            self._read(self._streams[descriptor], now)
        for stream in self._streams.values():
            if stream.line_due is not None and stream.line_due <= now:
                stream.end_line()

    def take_rest(self, job: str, *, now: float) -> None:
        """The ranks of this job have ended: what their pipes hold is read, and nothing after it."""
        if job in self._ended:
            return
        for stream in [stream for stream in self._streams.values() if stream.job == job]:
            taken = 0
            while taken < REST_BYTES and (size := self._read(stream, now)):
                taken += size
            stream.end_line()
        self._ended[job] = [(together, together.added) for together in self._together.values()]

    def is_passed_on(self, job: str) -> bool:
        """Whether what was read of a job that has ended is where the output of all goes."""
        return all(together.passed_on >= added for together, added in self._ended[job])

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _read(self, stream: _RankStream, now: float) -> int | None:
        size = stream.read(now)
        if size is None:
            del self._streams[stream.descriptor]
            stream.close()
        return size
