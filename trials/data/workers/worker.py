"""What a worker does, process or thread: takes chunks, loads their samples, and writes them where they belong."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from trials.data.core.randomness import SampleKeys
from trials.data.core.sample_layout import Array, Layout
from trials.data.core.worker_messages import (
    Done,
    Failure,
    IterableBegin,
    Part,
    Piece,
    Probe,
    Ring,
    Setup,
    Task,
    failure,
)
from trials.data.workers.iterable_reader import IterableReader
from trials.data.workers.pickling import encode
from trials.data.workers.probing import probe
from trials.data.workers.progress_board import ProgressBoard
from trials.data.workers.record_channel import Channel, Received, close_all
from trials.data.workers.sample_maker import Recipe, SampleMaker, number_of
from trials.data.workers.shared_memory import SharedMemory
from trials.data.workers.together import WrongAnswerError, named_together

SMALL_SAMPLE = 4096  # bytes
POPULATED_SLOT = 1 << 20  # bytes


class Closing(BaseException):
    """The loader is being closed while a chunk is in work."""


@dataclass(slots=True, kw_only=True)
class _Place:
    """Where batches are written."""

    layout: Layout | None = None
    slot_size: int = 0
    memory: SharedMemory | None = None
    columns: dict[tuple[int, int], list[Array]] = field(default_factory=dict)

    @classmethod
    def attached(cls, layout: Layout | None, slot_size: int, ring: int) -> _Place:
        return cls(layout=layout, slot_size=slot_size, memory=SharedMemory.attach(ring))

    def of(self, part: Part) -> list[Array]:
        key = (part.slot, part.rows)
        found = self.columns.get(key)
        if found is None:
            assert self.layout is not None
            assert self.memory is not None
            if self.slot_size >= POPULATED_SLOT:
                self.memory.populate(part.slot * self.slot_size, self.slot_size)
            found = self.layout.columns(self.memory.bytes(part.slot * self.slot_size, self.slot_size), part.rows)
            self.columns[key] = found
        return found


class Worker:
    def __init__(self, channel: Channel, recipe: Recipe, *, globals_too: bool) -> None:
        self._channel = channel
        self._recipe = recipe
        self._maker = SampleMaker(recipe, globals_too=globals_too)
        self._place = _Place()
        self._board = ProgressBoard.nowhere()
        self._iterable: IterableReader | None = None
        self._copy_s = 0.0
        self._singly = False

    def run(self) -> None:
        """Until the other end hangs up."""
        while True:
            received = self._channel.receive()
            if received is None:
                return
            try:
                self._handle(received)
            except Closing:
                return

    def close(self) -> None:
        self._board.close()
        if self._place.memory is not None:
            self._place.memory.close()
        self._channel.close()

    # ── records ─────────────────────────────────────────────────────────────────────────────────
    def _handle(self, received: Received) -> None:
        match received.value:
            case Task() as task:
                self._work(task)
            case Setup() as setup:
                self._set_up(setup, received.descriptors)
            case Ring(layout=layout, slot_size=slot_size):
                self._place = _Place.attached(layout, slot_size, received.descriptors[0])
            case IterableBegin() as begin:
                self._iterable = IterableReader(self._recipe.iterable, begin)
            case Probe() as asked:
                self._channel.send(probe(asked, self._maker, self._recipe))
            case other:
                close_all(received.descriptors)
                raise TypeError(f"a worker was sent {type(other).__name__}, which it does not know")

    def _set_up(self, setup: Setup, descriptors: tuple[int, ...]) -> None:
        self._board = ProgressBoard.attach(descriptors[0], setup.worker)
        if len(descriptors) > 1:
            self._place = _Place.attached(setup.layout, setup.slot_size, descriptors[1])
        self._maker.start()

    def _work(self, task: Task) -> None:
        begun = time.perf_counter()
        self._copy_s = 0.0
        if self._recipe.load is None:
            pieces, outside = self._from_iterable(task)
        else:
            pieces, outside = self._maker.exactly(lambda: self._chunk(task))
        self._board.idle()
        copied = self._copy_s
        taken = time.perf_counter() - begun
        done = Done(task.number, tuple(pieces), taken - copied, copied)
        descriptors = () if outside is None else (outside.descriptor,)
        self._channel.send(done, descriptors)
        if outside is not None:
            outside.close()

    # ── samples ─────────────────────────────────────────────────────────────────────────────────
    def _chunk(self, task: Task) -> tuple[list[Piece], SharedMemory | None]:
        pieces, late = [], _Outside()
        keys = self._maker.keys(task.epoch)
        self._singly = task.singly
        for part in task.parts:
            try:
                pieces.append(self._piece(part, keys, late))
            except WrongAnswerError as error:
                failed = failure(part.row, named_together(part.items), error)
                pieces.append(Piece(part.sequence, part.row, "collate", len(part.items), failures=(failed,)))
        return pieces, late.memory()

    def _piece(self, part: Part, keys: SampleKeys, late: _Outside) -> Piece:
        if self._place.layout is None or self._place.memory is None:
            return self._whole(part, keys, late)
        return self._rows(part, keys, late)

    def _rows(self, part: Part, keys: SampleKeys, late: _Outside) -> Piece:
        """Each sample goes to its row of the slot; all are encoded instead when one does not fit."""
        layout = self._place.layout
        assert layout is not None
        if layout.offsets(part.rows)[1] > self._place.slot_size:
            return self._odd(part, keys, late)  # larger than what a batch sampler gave in its first epoch
        columns = self._place.of(part)
        if layout.sample_size <= SMALL_SAMPLE or self._asks_together:
            return self._small_rows(part, keys, late)
        failures: list[Failure] = []
        row = part.row
        for item in part.items:
            try:
                values = layout.values(self._sample(item, keys))
                if values is None:
                    return self._odd(part, keys, late)
                begun = time.perf_counter()
                for column, value in zip(columns, values, strict=True):
                    column[row] = value
                self._copy_s += time.perf_counter() - begun
            except Exception as error:  # noqa: BLE001  # a dataset may raise anything; the trial gets it, in order
                failures.append(failure(row, item, error))
                if not self._recipe.skip_errors:
                    break
            row += 1
        return Piece(part.sequence, part.row, "rows", len(part.items), failures=tuple(failures))

    def _small_rows(self, part: Part, keys: SampleKeys, late: _Outside) -> Piece:
        """All at once: for small samples the calls cost more than the bytes, and those loaded together are there."""
        layout = self._place.layout
        assert layout is not None
        samples, failures = self._samples(part, keys)
        if failures:
            if self._recipe.skip_errors:
                return self._encoded(part, "samples", samples, late)._replace(failures=failures)
            return Piece(part.sequence, part.row, "rows", len(part.items), failures=failures)
        begun = time.perf_counter()
        fits = layout.write_rows(samples, self._place.of(part), part.row)
        self._copy_s += time.perf_counter() - begun
        if not fits:
            return self._encoded(part, "samples", samples, late)
        return Piece(part.sequence, part.row, "rows", len(part.items))

    def _odd(self, part: Part, keys: SampleKeys, late: _Outside) -> Piece:
        samples, failures = self._samples(part, keys)
        return self._encoded(part, "samples", samples, late)._replace(failures=failures)

    def _whole(self, part: Part, keys: SampleKeys, late: _Outside) -> Piece:
        samples, failures = self._samples(part, keys)
        if failures and not self._recipe.skip_errors:
            return Piece(part.sequence, part.row, "batch", len(part.items), failures=failures)
        piece = self._collated(part, samples, late)
        return piece._replace(failures=failures + piece.failures)

    def _collated(self, part: Part, samples: list[Any], late: _Outside) -> Piece:
        if not samples:
            return Piece(part.sequence, part.row, "batch", len(part.items))
        try:
            return self._encoded(part, "batch", self._recipe.collate(samples), late)
        except Exception as error:  # noqa: BLE001  # collate_fn and pickling may raise anything; the trial gets it, in order
            what = f"{part.items[0]} to {part.items[-1]} (collating them)"
            failed = failure(part.row, what, error)
            return Piece(part.sequence, part.row, "collate", len(part.items), failures=(failed,))

    @property
    def _asks_together(self) -> bool:
        """Not after a worker died with these samples: loaded singly, the one that ends it is known."""
        return self._maker.asks_together and not self._singly

    def _samples(self, part: Part, keys: SampleKeys) -> tuple[list[Any], tuple[Failure, ...]]:
        if not self._asks_together:
            return self._one_by_one(part, keys)
        begin = self._board.begin if len(part.items) == 1 else self._board.begin_together
        if begin(number_of(part.items[0])):
            raise Closing
        try:
            return self._maker.make_together(keys, part.items), ()
        except WrongAnswerError:
            raise
        except Exception as error:  # noqa: BLE001  # a dataset may raise anything; the trial gets it, in order
            samples, failures = self._one_by_one(part, keys)  # which of them is it
            if not failures and not self._recipe.skip_errors:
                failures = (failure(part.row, named_together(part.items), error),)
            return samples, failures

    def _one_by_one(self, part: Part, keys: SampleKeys) -> tuple[list[Any], tuple[Failure, ...]]:
        samples: list[Any] = []
        failures: list[Failure] = []
        load = self._recipe.load
        quick = not self._maker.drawn and self._recipe.transform is None and type(part.items[0]) is int
        items = part.items
        if quick and load is not None:
            try:
                for item in items:
                    if self._board.begin(item):
                        raise Closing
                    samples.append(load(item))
            except Exception as error:  # noqa: BLE001  # a dataset may raise anything; the trial gets it, in order
                failures.append(failure(part.row + len(samples), items[len(samples)], error))
                if not self._recipe.skip_errors:
                    return samples, tuple(failures)
            else:
                return samples, ()
        done = len(samples) + len(failures)
        for row, item in enumerate(items[done:], start=part.row + done):
            try:
                samples.append(self._sample(item, keys))
            except Exception as error:  # noqa: BLE001  # a dataset may raise anything; the trial gets it, in order
                failures.append(failure(row, item, error))
                if not self._recipe.skip_errors:
                    break
        return samples, tuple(failures)

    def _sample(self, item: Any, keys: SampleKeys) -> Any:
        number = number_of(item)
        if self._board.begin(number):
            raise Closing
        return self._maker.make(keys, item, number)

    def _encoded(self, part: Part, kind: str, value: Any, late: _Outside) -> Piece:
        begun = time.perf_counter()
        encoded = encode(value)
        memory = self._place.memory
        if kind == "batch" and memory is not None and encoded.size <= self._place.slot_size:
            spans = encoded.place(memory.bytes(part.slot * self._place.slot_size, self._place.slot_size))
            piece = Piece(part.sequence, part.row, kind, len(part.items), spans)
        else:
            piece = Piece(part.sequence, part.row, kind, len(part.items), late.add(encoded), outside=True)
        self._copy_s += time.perf_counter() - begun
        return piece

    # ── iterables ───────────────────────────────────────────────────────────────────────────────
    def _from_iterable(self, task: Task) -> tuple[list[Piece], SharedMemory | None]:
        assert self._iterable is not None
        late = _Outside()
        part = task.parts[0]
        read = self._iterable.batch(part, self._maker, drop_last=self._recipe.drop_last)
        if read.failure is not None:
            piece = Piece(part.sequence, part.row, "batch", len(part.items), failures=(read.failure,))
        else:
            piece = self._collated(part, read.samples, late)
        piece = piece._replace(ended=read.ended, source_state=read.state)
        return [piece], late.memory()


class _Outside:
    """What has no room in a slot, together in one memory."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Any]] = []
        self._end = 0

    def add(self, encoded: Any) -> tuple[tuple[int, int], ...]:
        begin = self._end
        self._parts.append((begin, encoded))
        self._end = begin + -(-encoded.size // 64) * 64
        return tuple((begin + offset, length) for offset, length in encoded.spans)

    def memory(self) -> SharedMemory | None:
        if not self._parts:
            return None
        memory = SharedMemory.create(self._end, name="trials-data-odd")
        for begin, encoded in self._parts:
            encoded.place(memory.bytes(begin, encoded.size))
        return memory
