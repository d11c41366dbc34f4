"""The messages between a loader and its workers. All are small: samples travel through shared memory."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from trials.data.core.sample_layout import Layout

TRACE_LIMIT = 8192  # characters of a worker's traceback that are told
Spans = tuple[tuple[int, int], ...]


class Call(NamedTuple):
    """What a data source hands out to be loaded: ``number`` names its randomness."""

    number: int
    function: Any  # without arguments


class Part(NamedTuple):
    """Consecutive rows of one batch."""

    sequence: int  # of the batch
    slot: int
    rows: int  # of the batch
    row: int  # where this part begins
    items: Sequence[Any]  # what to load: indices, or functions of a data source


class Task(NamedTuple):
    """A chunk: what a worker does before it answers."""

    number: int
    epoch: int
    parts: tuple[Part, ...]
    singly: bool = False  # samples are not loaded together


class IterableBegin(NamedTuple):
    """Where a source without an index goes on; the next tasks are answered with what comes from there."""

    epoch: int
    state: bytes | None  # its own state_dict, pickled
    skip: int  # samples to leave out after it


class Failure(NamedTuple):
    """One sample that raised."""

    row: int
    index: Any
    error: bytes | None  # the exception, pickled; None where it cannot be
    text: str
    trace: str


class Piece(NamedTuple):
    """What became of a part.

    ``rows``: its samples stand in their rows of the slot. ``batch``: the whole collated batch is encoded.
    ``samples``: they did not fit the layout and are encoded one by one.
    """

    sequence: int
    row: int
    kind: str
    covered: int  # rows
    spans: Spans = ()
    outside: bool = False  # the spans are of the memory that came with the answer, not of the slot
    failures: tuple[Failure, ...] = ()
    ended: bool = False  # the iterable has no more; the batch may be short, or (without spans) empty
    source_state: bytes | None = None  # of an iterable, pickled, after this batch


class Done(NamedTuple):
    number: int
    pieces: tuple[Piece, ...]
    decode_s: float
    copy_s: float


class Setup(NamedTuple):
    """The first record a worker gets; with the descriptor of the board, and of the ring when there is one."""

    worker: int
    workers: int
    layout: Layout | None
    slot_size: int


class Probe(NamedTuple):
    """Try a few samples, so that the loader knows how they look and how long they take."""

    epoch: int
    items: Sequence[Any]
    compare_threads: bool


class Probed(NamedTuple):
    layout: Layout | None
    sample_size: int  # bytes of one sample, encoded
    sample_s: float
    threads_gain: float  # samples a second of two threads, against one


class Ring(NamedTuple):
    """With the descriptor of the ring."""

    layout: Layout | None
    slot_size: int


def failure(row: int, index: Any, error: BaseException) -> Failure:
    """``error`` in a form that crosses to another process."""
    text = "".join(traceback.format_exception_only(error)).strip()
    trace = "".join(traceback.format_exception(error))
    return Failure(row, index, _pickled(error), text, trace[-TRACE_LIMIT:])


def _pickled(error: BaseException) -> bytes | None:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301  # an exception that cannot be read back must not break the loader
    except Exception:  # noqa: BLE001  # a user's exception may raise anything while it is pickled
        return None
    return data
