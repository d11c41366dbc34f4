"""Priorities that training finds for the samples it used, on their way back to whoever chooses samples.

A sampler in the same process has ``update_priorities(samples, priorities)``. One in another process on the node reads a
file: one JSON object a line, ``{"step": …, "samples": […], "priorities": […]}``, appended in one write.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ENV_PRIORITIES = "TUNER_PRIORITIES"  # the file that a sampler outside the trial reads
FILE_LIMIT_BYTES = 64 << 20  # then the file becomes PATH.1, in the place of an older one
MOVES_LIMIT = 100  # that are waited for; then it is written, however long the file is
LINE_LIMIT_BYTES = 4 << 20  # of one report; report the priorities of fewer samples at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePriorities:
    """Of the samples used at ``step``; ``samples`` are what the sampler calls them."""

    step: int
    samples: tuple[Any, ...]
    priorities: tuple[float, ...]


def report_priorities(to: Any, samples: Sequence[Any], priorities: Sequence[float], *, step: int = 0) -> None:
    """Tell ``to``, a sampler or a PriorityWriter, about samples that were used.

    ValueError when there is not one finite priority of 0 or more for each sample; TypeError when ``to`` wants none.
    """
    samples, found = checked_priorities(samples, priorities)
    if isinstance(to, PriorityWriter):
        to.write(SamplePriorities(step=step, samples=tuple(samples), priorities=tuple(found)))
    elif hasattr(to, "update_priorities"):
        to.update_priorities(samples, found)
    else:
        raise TypeError(
            f"{type(to).__name__} wants no priorities: it has no update_priorities(samples, priorities); "
            f"for a sampler in another process set {ENV_PRIORITIES} or use a PriorityWriter"
        )


def checked_priorities(samples: Sequence[Any], priorities: Sequence[float]) -> tuple[list[Any], list[float]]:
    """Both as lists. ValueError when there is not one finite priority of 0 or more for each sample."""
    listed, found = _listed(samples), [float(p) for p in _listed(priorities)]
    if len(listed) != len(found):
        raise ValueError(f"{len(listed)} samples and {len(found)} priorities: there is one of each")
    wrong = next((p for p in found if not math.isfinite(p) or p < 0), None)
    if wrong is not None:
        raise ValueError(f"a priority is a finite number of 0 or more, not {wrong}")
    return listed, found


def sampler_of(batches: Any) -> Any:
    """Whoever wants priorities: the batches, their sampler, or the file of ENV_PRIORITIES; the batches if nobody."""
    for candidate in (batches, getattr(batches, "sampler", None), getattr(batches, "batch_sampler", None)):
        # A loader has the method whatever it loads, and says whether anybody is behind it.
        if hasattr(candidate, "update_priorities") and getattr(candidate, "wants_priorities", True):
            return candidate
    path = os.environ.get(ENV_PRIORITIES)
    return PriorityWriter(path) if path else batches


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


class PriorityWriter:
    """Appends to one file. Several processes may write to it: each report is one append."""

    def __init__(self, path: str | os.PathLike[str], *, limit: int = FILE_LIMIT_BYTES) -> None:
        self._path = Path(path)
        self._limit = limit

    def write(self, found: SamplePriorities) -> None:
        """ValueError past LINE_LIMIT_BYTES; OSError, as on a full disk, where not all of it was written."""
        line = {"step": found.step, "samples": found.samples, "priorities": found.priorities}
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if len(data) > LINE_LIMIT_BYTES:
            raise ValueError(f"the priorities of {len(found.samples)} samples have {len(data)} bytes; report fewer")
        for _ in range(MOVES_LIMIT):
            with self._path.open("a+b", buffering=0) as file:
                _lock(file, fcntl.LOCK_SH)
                status = os.fstat(file.fileno())
                if not self._is_in_place(status):
                    continue  # moved since it was opened: its reader may be through with it
                if not status.st_size or status.st_size + len(data) <= self._limit:
                    _append(file, data)
                    return
                self._move_away(file, status)
        with self._path.open("a+b", buffering=0) as file:
            _append(file, data)

    def _move_away(self, file: IO[bytes], status: os.stat_result) -> None:
        """Once nobody writes into it. Several may find it full at once: the first moves it, and the others leave the
        next one alone."""
        _lock(file, fcntl.LOCK_UN)
        _lock(file, fcntl.LOCK_EX)
        if self._is_in_place(status):
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))

    def _is_in_place(self, status: os.stat_result) -> bool:
        try:
            return os.path.samestat(self._path.stat(), status)
        except FileNotFoundError:
            return False


def _append(file: IO[bytes], line: bytes) -> None:
    """Half a line at the end of the file, for which there was no room, is closed off: else both would be none."""
    size = os.fstat(file.fileno()).st_size
    is_closed_off = not size or os.pread(file.fileno(), 1, size - 1) == b"\n"
    data = line if is_closed_off else b"\n" + line
    if file.write(data) < len(data):
        raise OSError(errno.ENOSPC, "the disk is full: these priorities were written half", file.name)


def _lock(file: IO[bytes], how: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.flock(file, how)


class PriorityReader:
    """Follows one file from its beginning. A reader that is more than two files behind misses what was dropped."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file = -1  # open, so that no other file gets its inode
        self._offset = 0
        self._closing: Callable[[], object] | None = None

    def read(self) -> Iterator[SamplePriorities]:
        """What has come since the last call; what was not fetched of it comes with the next one. A line that is torn or
        is something else is passed over."""
        older = self._path.with_name(f"{self._path.name}.1")
        if self._file < 0:
            self._follow(self._path)
        while self._file >= 0:
            is_newest = self._is_at(self._path)  # one that was moved away before has its end
            yield from self._rest()
            if is_newest:
                return
            if self._is_at(older) or not self._follow(older):
                self._follow(self._path)

    def _follow(self, path: Path) -> bool:
        """From its beginning, where there is one."""
        if self._closing is not None:
            self._closing()
        self._file, self._offset, self._closing = -1, 0, None
        with suppress(FileNotFoundError):
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._closing = weakref.finalize(self, os.close, self._file)
        return self._file >= 0

    def _is_at(self, path: Path) -> bool:
        try:
            return os.path.samestat(path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _rest(self) -> Iterator[SamplePriorities]:
        size = os.fstat(self._file).st_size
        data = os.pread(self._file, max(size - self._offset, 0), self._offset)
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self._offset += len(line)
            try:
                found = json.loads(line)
                yield SamplePriorities(
                    step=found["step"], samples=tuple(found["samples"]), priorities=tuple(found["priorities"])
                )
            except (ValueError, LookupError, TypeError, RecursionError):
                continue
