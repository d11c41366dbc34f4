"""How one sample is made: loaded and transformed, with randomness of its own, whoever makes it and wherever."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trials.data.core.keys import derive
from trials.data.core.randomness import GlobalGenerators, SampleGenerator, SampleKeys
from trials.data.core.worker_messages import Call
from trials.data.workers.together import Together

COPY_LIMIT = 256 << 20  # bytes of a dataset that each thread is given its own copy of
Transform = Callable[[Any, np.random.Generator], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How samples and batches are made; the same for every worker, and for the calling process without workers."""

    load: Callable[[Any], Any] | None  # item -> sample; None for an iterable
    together: Together | None = None  # items -> samples, where the dataset can be asked for many
    iterable: Any = None
    transform: Transform | None = None
    collate: Callable[[list[Any]], Any]
    rows: bool = False  # it is torch's default_collate, so samples may be written where they belong in the batch
    seed: int = 0
    skip_errors: bool = False
    drop_last: bool = False
    dataset: Any = None  # for worker_init_fn and torch's get_worker_info
    worker_init: Callable[[int], None] | None = None


def number_of(item: Any) -> int:
    """What names the randomness of a sample, and the sample in errors: its index, or a number made of its key."""
    if type(item) is int:
        return item
    if isinstance(item, Call):
        return item.number
    return int(item) if isinstance(item, np.integer) else derive("item", repr(item)) & ((1 << 63) - 1)


def called_in_errors(item: Any) -> Any:
    """What an error calls the sample: its index, or the key that the sampler gave."""
    return number_of(item) if isinstance(item, (int, np.integer, Call)) else item


def copied_recipe(recipe: Recipe) -> Recipe:
    """With a dataset of its own. TypeError where the dataset cannot be copied, or is too large to be."""
    try:
        data = pickle.dumps(recipe, protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(f"the dataset cannot be copied for a worker thread: {error}") from error
    if len(data) > COPY_LIMIT:
        raise TypeError(
            f"the dataset takes {len(data) >> 20} MiB, and each worker thread would have a copy of it "
            f"(at most {COPY_LIMIT >> 20} MiB); use worker_type='process'"
        )
    copy: Recipe = pickle.loads(data)  # noqa: S301  # we made it a line above
    return copy


class SampleMaker:
    """Samples of a recipe, each with randomness of its own.

    The global generators are reseeded only for code that draws from them: who draws is noticed chunk by
    chunk, and a chunk that drew before it was noticed is made again.
    """

    def __init__(self, recipe: Recipe, *, globals_too: bool) -> None:
        self._recipe = recipe
        self._keys: dict[int, SampleKeys] = {}
        self._own = SampleGenerator()
        self._generators = GlobalGenerators() if globals_too else None
        self.drawn: frozenset[str] = frozenset()  # generators that samples were seen to draw from

    def keys(self, epoch: int) -> SampleKeys:
        keys = self._keys.get(epoch)
        if keys is None:
            keys = SampleKeys(seed=self._recipe.seed, epoch=epoch)
            self._keys = {epoch: keys}
        return keys

    def make(self, keys: SampleKeys, item: Any, number: int) -> Any:
        """The sample of ``item``; ``number`` names its randomness: the index, where the item is one."""
        load, transform = self._recipe.load, self._recipe.transform
        assert load is not None
        if not self.drawn and transform is None:
            return load(item)
        key = keys.of(number)
        if self.drawn and self._generators is not None:
            self._generators.seed(key, self.drawn)
        sample = load(item)
        return sample if transform is None else transform(sample, self._own.at(key))

    @property
    def asks_together(self) -> bool:
        """Whether samples are loaded by one call: not where each begins a randomness of its own."""
        return self._recipe.together is not None and not self.drawn

    def make_together(self, keys: SampleKeys, items: Sequence[Any]) -> list[Any]:
        """The samples of ``items``, loaded by one call; each is transformed by itself."""
        together, transform = self._recipe.together, self._recipe.transform
        assert together is not None
        samples = together(items)
        if transform is None:
            return samples
        keyed = [keys.of(number_of(item)) for item in items]
        return [transform(sample, self._own.at(key)) for sample, key in zip(samples, keyed, strict=True)]

    def begin(self, keys: SampleKeys, number: int) -> None:
        """Before an iterable is asked for a sample. Every generator is seeded: that it draws would be noticed too late,
        since it cannot be asked for the same sample again."""
        if self._generators is not None:
            self._generators.seed(keys.of(number))

    def finish(self, keys: SampleKeys, sample: Any, number: int) -> Any:
        """What ``make`` does after loading, for samples that came from elsewhere, after ``begin``."""
        transform = self._recipe.transform
        return sample if transform is None else transform(sample, self._own.at(keys.of(number)))

    def exactly(self, work: Callable[[], Any]) -> Any:
        """``work()``, done again whenever it turns out to draw from a generator that was not reseeded for it."""
        generators = self._generators
        if generators is None or len(self.drawn) == len(GlobalGenerators.NAMES):
            return work()
        while True:
            mark = generators.mark()
            result = work()
            new = generators.moved(mark) - self.drawn
            if not new:
                return result
            self.drawn |= new

    def start(self) -> None:
        """Nothing that was drawn before (a number kept for the next normal draw) reaches a sample."""
        if self._generators is not None:
            self._generators.seed(self.keys(0).of(0))
