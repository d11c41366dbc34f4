"""The scheduler and reorder buffer: which worker does what, and which batch is delivered next, whichever is done first.

A state machine without threads, clocks or memory.

Rules that stay true:
1. A batch is delivered when all before it were: strictly by its sequence, a number that never repeats.
2. A slot belongs to one batch from the moment it is given out until the batch is freed; a slot that some worker may
   still write to is never given out again.
3. No more than ``ahead`` batches are asked for beyond those taken.
4. A chunk whose worker died is tried again before anything new, ``retries`` times; then the batch is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trials.data.core.worker_messages import Done, Part, Piece, Task

DEPTH = 2  # chunks a worker has: one in work and one waiting
RETRIES = 2
_NOT_FREE = -1


class Plan(NamedTuple):
    """One batch to load: from position ``begin`` of the epoch on, what stands there, and where it leaves the epoch:
    with several ranks, ``end`` is behind what all of them take."""

    begin: int
    end: int
    items: Sequence[Any]
    ready: bool = False  # the items are samples already
    source_state: Any = None  # of a data source, after it gave this


PAUSE = Plan(0, 0, ())  # a source that is being asked has nothing yet


class Death(NamedTuple):
    """How a worker ended. ``index``: what it was loading, where that is known."""

    signal: int | None
    exit_code: int | None
    index: Any = None


@dataclass(slots=True, kw_only=True)
class Batch:
    """In the making, or ready."""

    sequence: int
    epoch: int
    plan: Plan
    slot: int
    missing: int  # rows
    pieces: list[Piece] = field(default_factory=list)
    memories: list[Any] = field(default_factory=list)  # what came with pieces that stand outside the slot
    death: tuple[Death, tuple[Any, ...]] | None = None
    worker: int = 0  # of the piece that failed
    error: BaseException | None = None  # of the sampler or the source that should have said what is in it

    @property
    def ready(self) -> bool:
        return self.missing == 0 or self.death is not None


@dataclass(slots=True, kw_only=True)
class _Assigned:
    task: Task
    tries: int = 0
    abandoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSize:
    slots: int
    ahead: int  # batches
    chunk: int  # samples of a task that is a part of a batch; 0: whole batches only
    batches: int = 1  # of a task of whole batches


class Pipeline:
    def __init__(self, size: PipelineSize) -> None:
        self._size = size
        self._free = list(reversed(range(size.slots)))
        self._plans: Iterator[Plan] = iter(())
        self._ended = True
        self._epoch = 0
        self._next_sequence = 0
        self._next_delivery = 0
        self._next_task = 0
        self._batches: dict[int, Batch] = {}
        self._waiting: deque[_Assigned] = deque()  # cut, and given to nobody yet; those to be tried again come first
        self._assigned: dict[int, list[_Assigned]] = {}
        self._held_back: dict[int, int] = {}  # slot of an abandoned batch -> tasks that may still write to it

    # ── what happens outside ────────────────────────────────────────────────────────────────────
    def begin(self, *, epoch: int, plans: Iterator[Plan]) -> None:
        """A new iteration; what is left of the one before is abandoned."""
        self.abandon()
        self._plans, self._ended, self._epoch = plans, False, epoch

    def abandon(self) -> None:
        self._plans, self._ended = iter(()), True
        held: dict[int, int] = self._held_back
        for assigned in self._assigned.values():
            for entry in assigned:
                if not entry.abandoned:
                    entry.abandoned = True
                    for part in entry.task.parts:
                        held[part.slot] = held.get(part.slot, 0) + 1
        self._waiting.clear()
        for batch in self._batches.values():
            if batch.slot != _NOT_FREE and batch.slot not in held:
                self._free.append(batch.slot)
        self._batches.clear()
        self._next_delivery = self._next_sequence

    def worker_started(self, worker: int) -> None:
        self._assigned[worker] = []

    def done(self, worker: int, answer: Done, memory: Any = None) -> bool:
        """The worker finished its oldest task. False when nobody wants that any more."""
        entry = self._assigned[worker].pop(0)
        if entry.task.number != answer.number:
            raise RuntimeError(f"worker {worker} answered task {answer.number}, not {entry.task.number}")
        if entry.abandoned:
            self._let_go(entry)
            return False
        for piece in answer.pieces:
            batch = self._batches.get(piece.sequence)
            if batch is None:
                continue  # delivered as an error before this part of it was done
            batch.pieces.append(piece)
            if piece.failures:
                batch.worker = worker
            batch.missing -= piece.covered
            if piece.outside:
                batch.memories.append((piece, memory))
        return True

    def worker_died(self, worker: int, death: Death | None) -> None:
        """Its oldest task is charged with the death, unless that is None; the others are only given to another."""
        entries = self._assigned.pop(worker, [])
        for entry in reversed(entries):
            if entry.abandoned:
                self._let_go(entry)
                continue
            if death is not None and entry is entries[0]:
                entry.tries += 1
                if entry.tries > RETRIES:
                    self._give_up(entry, death)
                    continue
            self._waiting.extendleft(reversed(list(filter(self._is_wanted, self._apart(entry)))))

    def freed(self, slot: int) -> None:
        """The trial has let go of the batch that was in it."""
        self._free.append(slot)

    # ── what to do ──────────────────────────────────────────────────────────────────────────────
    def orders(self) -> list[tuple[int, Task]]:
        """Tasks for workers that have room, oldest first, to the worker with the least to do."""
        found: list[tuple[int, Task]] = []
        while True:
            room = [(len(entries), worker) for worker, entries in self._assigned.items() if len(entries) < DEPTH]
            if not room or not self.has_work():
                return found
            worker = min(room)[1]
            entry = self._waiting.popleft()
            self._assigned[worker].append(entry)
            # What a worker died with is tried again sample by sample, so that the death names the one that it was.
            found.append((worker, entry.task._replace(singly=True) if entry.tries else entry.task))

    def has_work(self) -> bool:
        """Whether a task waits for a worker; where none does, the next batch is cut into tasks."""
        return bool(self._waiting) or self._cut()

    def next_ready(self) -> Batch | None:
        """The batch to deliver, once it is complete."""
        batch = self._batches.get(self._next_delivery)
        return batch if batch is not None and batch.ready else None

    def take(self) -> Batch:
        """The batch of ``next_ready``; from now on its slot is the trial's, until ``freed``."""
        batch = self._batches.pop(self._next_delivery)
        self._next_delivery += 1
        if batch.death is not None and batch.slot != _NOT_FREE:
            writers = self._writers(batch)
            if writers:
                self._held_back[batch.slot] = writers
            else:
                self._free.append(batch.slot)
            batch.slot = _NOT_FREE
        return batch

    def ended(self) -> bool:
        """Every batch of the iteration was taken."""
        return self._ended and not self._batches

    def end(self) -> None:
        """An iterable has no more: batches asked for beyond its end do not come."""
        self._plans, self._ended = iter(()), True

    def outstanding(self, worker: int) -> list[Task]:
        return [entry.task for entry in self._assigned.get(worker, [])]

    def workers_of_next(self) -> list[int]:
        """The workers that have parts of the batch to deliver next, those that work on it first."""
        wanted = self._next_delivery
        found = []
        for worker, entries in self._assigned.items():
            places = [n for n, entry in enumerate(entries) if any(p.sequence == wanted for p in entry.task.parts)]
            if places:
                found.append((places[0], worker))
        return [worker for _, worker in sorted(found)]

    @property
    def credit(self) -> int:
        """How many more batches may be asked for."""
        return min(len(self._free), self._size.ahead - len(self._batches))

    # ── cutting ─────────────────────────────────────────────────────────────────────────────────
    def _cut(self) -> bool:
        """Cut the next batch, or several small ones, into tasks. False when there is no credit or no more."""
        credit = self.credit
        wanted = self._size.batches
        # Batching of small tasks: it waits until there is credit for several batches, unless nothing else is under way.
        if self._ended or credit < 1 or (credit < wanted and self._batches):
            return False
        batches = self._planned(min(wanted, credit))
        if not batches:
            return False
        if self._size.chunk and len(batches) == 1 and batches[0].missing:
            self._cut_in_parts(batches[0])
        else:
            self._queue(tuple(_part(b, 0, len(b.plan.items)) for b in batches if b.missing))
        return bool(self._waiting)

    def _planned(self, count: int) -> list[Batch]:
        batches = []
        for _ in range(count):
            try:
                plan = next(self._plans, None)
            except Exception as error:  # noqa: BLE001  # a user's sampler may raise anything; it is delivered in its place
                batches.append(self._add(Plan(0, 0, ()), error))
                plan = None
            if plan is PAUSE:
                break
            if plan is None:
                self._ended = True
                break
            batches.append(self._add(plan, None))
        return batches

    def _add(self, plan: Plan, error: BaseException | None) -> Batch:
        # Last in, first out: the pages of the slot that came free last are in memory, and perhaps in the cache; a slot
        # that is never needed is never written, so it takes no memory.
        slot = _NOT_FREE if error is not None or plan.ready else self._free.pop()
        batch = Batch(
            sequence=self._next_sequence,
            epoch=self._epoch,
            plan=plan,
            slot=slot,
            missing=0 if plan.ready else len(plan.items),  # 0, too, of a batch of none
            error=error,
        )
        self._batches[batch.sequence] = batch
        self._next_sequence += 1
        return batch

    def _cut_in_parts(self, batch: Batch) -> None:
        count = len(batch.plan.items)
        for row in range(0, count, self._size.chunk):
            self._queue((_part(batch, row, min(row + self._size.chunk, count)),))

    def _queue(self, parts: tuple[Part, ...]) -> None:
        if parts:
            self._waiting.append(_Assigned(task=Task(self._next_task, self._epoch, parts)))
            self._next_task += 1

    # ── deaths and slots ────────────────────────────────────────────────────────────────────────
    def _give_up(self, entry: _Assigned, death: Death) -> None:
        for part in entry.task.parts:
            batch = self._batches.get(part.sequence)
            if batch is not None:
                items = tuple(part.items) if death.index is None else (death.index,)
                batch.death = (death, items)
        self._waiting = deque(filter(self._is_wanted, self._waiting))

    def _apart(self, entry: _Assigned) -> list[_Assigned]:
        """A task for each batch of one that is tried again, so that the bad batch does not take others along."""
        found = []
        for part in entry.task.parts:
            found.append(_Assigned(task=Task(self._next_task, entry.task.epoch, (part,)), tries=entry.tries))
            self._next_task += 1
        return found if len(found) > 1 else [entry]

    def _is_wanted(self, entry: _Assigned) -> bool:
        """Whether some batch still waits for it; one that was given up does not, and its slot may be another's soon."""
        batches = [self._batches.get(part.sequence) for part in entry.task.parts]
        return any(batch is not None and batch.death is None for batch in batches)

    def _let_go(self, entry: _Assigned) -> None:
        for part in entry.task.parts:
            left = self._held_back.get(part.slot, 0) - 1
            if left > 0:
                self._held_back[part.slot] = left
            elif self._held_back.pop(part.slot, None) is not None:
                self._free.append(part.slot)

    def _writers(self, batch: Batch) -> int:
        """Tasks in work that write to the slot of a batch that is given up; from now on they count as abandoned."""
        count = 0
        for entries in self._assigned.values():
            for entry in entries:
                if any(part.sequence == batch.sequence for part in entry.task.parts):
                    entry.abandoned = True
                    count += 1
        return count


def _part(batch: Batch, begin: int, end: int) -> Part:
    return Part(batch.sequence, batch.slot, len(batch.plan.items), begin, batch.plan.items[begin:end])
