"""What an attempt used over time: one line for each sample, in a file of bounded size that tells of the whole run.

When it has RESOURCE_SAMPLES lines, each two become one and the time between them doubles: a run of a day has as many as
one of four minutes. It is never synced: after a power loss nobody needs it. A supervisor imports this module when it
starts, so the module imports little.
"""

from __future__ import annotations

import errno
import json
import os
import stat

from trials.files import write_all, write_atomically
from trials.wire.files import FILE_RESOURCES
from trials.wire.limits import RESOURCE_SAMPLES

EVERY_S = 1.0  # between two samples, at first; an attempt that ends before has no file


class ResourceFile:
    """Of the attempt in ``folder``. It is nobody's reason to wait or to end: what cannot be written is left out."""

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/{FILE_RESOURCES}"
        self._lines: list[bytes] = []
        self._every_s = EVERY_S
        self._due_s = EVERY_S
        self._memory_bytes = self._processes = 0  # the most that was seen since the last line
        self._at_s = self._processor_s = 0.0  # of what was seen last
        self._is_whole = False  # the file has all lines but the next

    def note(self, at_s: float, *, memory_bytes: int, processor_s: float, processes: int) -> None:
        """What was seen ``at_s`` seconds after the start; ``processor_s`` counts from there."""
        self._memory_bytes = max(self._memory_bytes, memory_bytes)
        self._processes = max(self._processes, processes)
        self._at_s, self._processor_s = at_s, processor_s
        if at_s >= self._due_s:
            self._add()

    def end(self) -> None:
        """What was seen since the last line is added where there is one: how it was just before it ended."""
        if self._lines and self._processes:
            self._add()

    def _add(self) -> None:
        if len(self._lines) >= RESOURCE_SAMPLES:
            self._thin_out()
        sample = [round(self._at_s, 3), self._memory_bytes, round(self._processor_s, 3), self._processes]
        self._lines.append(b"%s\n" % json.dumps(sample, separators=(",", ":")).encode())
        self._due_s = (self._at_s // self._every_s + 1) * self._every_s
        self._memory_bytes = self._processes = 0
        self._write()

    def _thin_out(self) -> None:
        """Of each two the later one stays, with the most memory and processes of both."""
        pairs = zip(map(json.loads, self._lines[::2]), map(json.loads, self._lines[1::2]), strict=True)
        kept = [[late[0], max(early[1], late[1]), late[2], max(early[3], late[3])] for early, late in pairs]
        self._lines = [b"%s\n" % json.dumps(sample, separators=(",", ":")).encode() for sample in kept]
        self._every_s *= 2
        self._is_whole = False

    def _write(self) -> None:
        try:
            if self._is_whole:
                self._is_whole = False
                self._append(self._lines[-1])
            else:
                write_atomically(self._path, b"".join(self._lines))
            self._is_whole = True
        except OSError:
            return  # no room, or the trial has put something else there: the whole is written with the next sample

    def _append(self, line: bytes) -> None:
        # Plain files only, whatever the trial has put there: a pipe would be waited for.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self._path, flags)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no plain file", self._path)
            write_all(descriptor, line)
        finally:
            os.close(descriptor)
