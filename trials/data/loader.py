"""The one loader of ``trials.data``: iterations, epochs, position, state and ending, over a source of batches.

A source makes batches, and knows nothing of iterators and checkpoints; the loader keeps the position, and knows nothing
of workers, sockets and memory. There are two: the trial's own workers or process (``own_batches.py``), and the node's
producer, or the trial by itself while there is none (``sharing/shared_batches.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from trials.arguments import seconds, whole_number
from trials.data.core.fingerprint import fingerprint
from trials.data.errors import LoaderClosed, StateError
from trials.data.loader_state import Position

CLOSE_TIMEOUT_S = 5.0


class Loaded(NamedTuple):
    """A batch, and where it leaves its source."""

    value: Any
    end: int  # the position in the epoch behind the batch
    items: Sequence[Any] = ()  # what it was made of
    source_state: Any = None  # of a source with a state of its own, after the batch
    empty: bool = False  # every sample of it was left out: the position moves on, and there is nothing to hand out


class BatchSource(Protocol):
    """Makes the batches of one iteration after the other; used by one consumer at a time.

    The bytes of a batch depend on the dataset, the order, the seed, the epoch and the position alone.
    """

    @property
    def order_name(self) -> str:
        """What a position means; a part of every state, and compared when one is loaded."""
        ...

    @property
    def has_state(self) -> bool:
        """Whether it has no index, so that a state holds what the source says of itself beside the position."""
        ...

    def batches(self) -> int:
        """Of a whole epoch."""
        ...

    def require_reachable(self, position: Position, state: Mapping[str, Any]) -> None:
        """StateError for what it cannot go on from. Changes nothing."""
        ...

    def require_unharmed(self) -> None:
        """SharingError where the batch handed out last was overwritten: what was learnt since is wrong."""
        ...

    def restore(self, source_state: Any) -> None:
        """Have a source with a state of its own go on from there."""
        ...

    def begin(self, position: Position, source_state: Any) -> None:
        """A new iteration, from this position on; what is left of the one before is dropped."""
        ...

    def next(self) -> Loaded | None:
        """The next batch, waiting for it; None at the end of the epoch. Raises what stands in its place."""
        ...

    def abandon(self) -> None:
        """Nobody wants the rest of the iteration."""
        ...

    def close(self, timeout_s: float) -> None:
        """Nothing of it is left; workers may finish their sample for so long."""
        ...

    def stats(self) -> dict[str, Any]:
        """Counts and seconds since it was made."""
        ...


class Loader:
    """Each iteration is one epoch; the first goes on where ``load_state_dict`` says."""

    def __init__(self, source: BatchSource, *, dataset: Any, batch_size: int | None, seed: int) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self._source = source
        self._fingerprint = fingerprint(dataset)
        self._seed = seed
        self._epoch = 0
        self._delivered = 0
        self._handed_out = 0  # batches handed out in all epochs
        self._source_state: Any = None
        self._last_items: Sequence[Any] = ()
        self._iteration: _Iteration | None = None
        self._closed = False

    # ── iterating ───────────────────────────────────────────────────────────────────────────────
    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch after ``load_state_dict``, else a whole one. An iteration under way ends."""
        if self._closed:
            raise LoaderClosed
        if self._iteration is not None:
            self._iteration.stop()
            if self._iteration.begun:
                self._next_epoch()
        self._iteration = _Iteration(self)
        return self._iteration

    def __next__(self) -> Any:
        """The next batch of the iteration under way, or of a new one: StopIteration ends an epoch, and the call after
        it begins another."""
        if self._iteration is None:
            iter(self)
        assert self._iteration is not None
        return next(self._iteration)

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self._source.batches()

    @property
    def epoch(self) -> int:
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, from its beginning; the epoch that is under way goes on where it is."""
        epoch = whole_number(epoch, what="an epoch")
        if epoch != self._epoch:
            self._end_iteration()
            self._epoch, self._delivered, self._source_state = epoch, 0, None

    # ── state ───────────────────────────────────────────────────────────────────────────────────
    def state_dict(self) -> dict[str, Any]:
        """The position after the batch delivered last, in under 300 bytes, the same whoever made the batches; beside
        it the state of a source without an index, as that gave it. SharingError where training has seen wrong data: so
        no checkpoint is made of that."""
        self._source.require_unharmed()
        state = self._position().to_state()
        if self._source.has_state:
            state["source"] = self._source_state
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on after the batch that ``state`` was taken with, with any number of workers.

        Another ``batch_size`` than the state's cuts the rest of the epoch into its own batches.
        DatasetMismatch for a state of another dataset, StateError for one that does not fit otherwise;
        the loader is then as before.
        """
        if not isinstance(state, Mapping):
            raise StateError(f"a loader's state is what state_dict() gave, a dict, not a {type(state).__name__}")
        position = Position.of_state(state, dataset=self._fingerprint, order=self._source.order_name)
        self._source.require_reachable(position, state)
        self._end_iteration()
        self._seed, self._epoch, self._delivered = position.seed, position.epoch, position.delivered
        earlier = position.delivered // (position.batch_size or 1)  # of a state that does not say it
        self._handed_out = earlier if position.iteration is None else position.iteration
        self._source_state = state.get("source")
        self._source.restore(self._source_state)

    def _position(self) -> Position:
        return Position(
            dataset=self._fingerprint,
            seed=self._seed,
            epoch=self._epoch,
            delivered=self._delivered,
            batch_size=self.batch_size or 0,
            order=self._source.order_name,
            iteration=self._handed_out if self._source.has_state else None,
        )

    # ── ending ──────────────────────────────────────────────────────────────────────────────────
    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Nothing of the loader is left: no process, descriptor or shared memory beside batches still in use.

        Workers may finish their sample for ``timeout`` seconds; then they are stopped, within half a second more. A
        shared producer is left to the other trials, and ends when its last one has left.
        """
        timeout = seconds(timeout, what="timeout")
        self._closed = True
        self._end_iteration()
        self._source.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def stats(self) -> dict[str, Any]:
        """Counts and seconds since the loader was made: where its time went."""
        return self._source.stats()

    # ── of its iteration ────────────────────────────────────────────────────────────────────────
    def _begin(self) -> BatchSource:
        """The source, at the beginning of an iteration from the present position."""
        self._source.begin(self._position(), self._source_state)
        return self._source

    def _taken(self, loaded: Loaded) -> None:
        """A batch is handed to the trial: from here on a state says so."""
        self._delivered = loaded.end
        self._handed_out += 1
        self._last_items = loaded.items
        self._source_state = loaded.source_state

    def _exhausted(self) -> None:
        self._iteration = None
        self._next_epoch()

    def _next_epoch(self) -> None:
        self._epoch += 1
        self._delivered, self._source_state = 0, None

    def _end_iteration(self) -> None:
        if self._iteration is not None:
            self._iteration.stop()
            self._iteration = None


class _Iteration(Iterator[Any]):
    """One pass. It begins with the first batch that is asked for, and ends when the loader begins another."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._source: BatchSource | None = None
        self._stopped = False
        self._exhausted = False

    @property
    def begun(self) -> bool:
        return self._source is not None

    def stop(self) -> None:
        self._stopped = True
        if self._source is not None and not self._exhausted:
            self._source.abandon()

    def __next__(self) -> Any:
        loader = self._loader
        if self._exhausted:
            raise StopIteration
        if self._stopped:
            raise self._ended()
        source = self._source
        if source is None:
            source = self._source = loader._begin()  # noqa: SLF001  # an iteration is a part of its loader
        while True:
            loaded = source.next()
            if self._stopped:  # by a signal handler meanwhile: the position is no longer this one's
                raise self._ended()
            if loaded is None:
                self._exhausted = True
                loader._exhausted()  # noqa: SLF001  # an iteration is a part of its loader
                raise StopIteration
            loader._taken(loaded)  # noqa: SLF001  # an iteration is a part of its loader
            if not loaded.empty:
                return loaded.value

    def _ended(self) -> LoaderClosed:
        if self._loader._closed:  # noqa: SLF001  # an iteration is a part of its loader
            return LoaderClosed()
        return LoaderClosed("this iterator ended when the loader began another iteration, or its position was set")
