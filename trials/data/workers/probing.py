"""A look at a few samples in a worker, where they can do no harm, before the loader decides how to work."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from trials.data.core.randomness import SampleKeys
from trials.data.core.sample_layout import Layout
from trials.data.core.worker_messages import Probe, Probed
from trials.data.workers.pickling import encode
from trials.data.workers.sample_maker import Recipe, SampleMaker, copied_recipe, number_of

LONG_SAMPLE_S = 0.05  # one sample this slow tells enough
TOGETHER_CALLS = 2  # the first opens files and fills caches
WORTH_THREADS_S = 0.001  # quicker samples are not worth a comparison
_EACH = 2  # samples of a thread in the comparison


def probe(asked: Probe, maker: SampleMaker, recipe: Recipe) -> Probed:
    """Samples that raise are left out: the trial gets their errors when it is their turn."""
    keys = maker.keys(asked.epoch)
    first, times = _together(asked.items, maker, keys) if maker.asks_together else (None, [])
    if not times:
        first, times = _one_by_one(asked.items, maker, keys)
    if not times:
        return Probed(layout=None, sample_size=0, sample_s=0.0, threads_gain=0.0)
    gain = 0.0
    if asked.compare_threads and min(times) >= WORTH_THREADS_S and not maker.drawn:
        gain = _gain_of_threads(asked.items, recipe)
    return Probed(
        layout=Layout.of(first) if recipe.rows else None,
        sample_size=_size(first),
        sample_s=min(times),
        threads_gain=gain,
    )


def _one_by_one(items: Sequence[Any], maker: SampleMaker, keys: SampleKeys) -> tuple[Any, list[float]]:
    """The first sample, and the seconds of each."""
    first: Any = None
    times: list[float] = []
    for item in items:
        begun = time.perf_counter()
        try:
            sample = maker.exactly(partial(maker.make, keys, item, number_of(item)))
        except Exception:  # noqa: BLE001, S112  # a dataset may raise anything; the trial hears of it in its turn
            continue
        times.append(time.perf_counter() - begun)
        first = sample if first is None else first
        if times[-1] > LONG_SAMPLE_S:
            break
    return first, times


def _together(items: Sequence[Any], maker: SampleMaker, keys: SampleKeys) -> tuple[Any, list[float]]:
    """The same of a dataset that loads many with one call, each with its part of the call's time."""
    first: Any = None
    times: list[float] = []
    for _ in range(TOGETHER_CALLS):
        begun = time.perf_counter()
        try:
            samples = maker.exactly(partial(maker.make_together, keys, items))
        except Exception:  # noqa: BLE001  # likewise; which of them it is, is found one by one
            break
        if not maker.asks_together:  # they draw, so they are not made this way
            return None, []
        taken = time.perf_counter() - begun
        times.append(taken / len(items))
        first = samples[0] if first is None else first
        if taken > LONG_SAMPLE_S:
            break
    return first, times


def _size(sample: Any) -> int:
    try:
        return encode(sample).size
    except Exception:  # noqa: BLE001  # what cannot be pickled is an error when the sample's turn comes
        return 0


def _gain_of_threads(items: Sequence[Any], recipe: Recipe) -> float:
    """Samples a second of two threads with a copy of the dataset each, against one thread; 0 where it cannot be so."""
    try:
        copies = [copied_recipe(recipe), copied_recipe(recipe)]
        wanted = (list(items) * _EACH)[:_EACH]
        alone = _timed([copies[0]], wanted)
        together = _timed(copies, wanted)
    except Exception:  # noqa: BLE001  # a dataset that cannot be copied or read this way stays with processes
        return 0.0
    return 2 * alone / together


def _timed(recipes: Sequence[Recipe], items: Sequence[Any]) -> float:
    def work(recipe: Recipe) -> None:
        if recipe.together is not None:
            recipe.together(items)
            return
        assert recipe.load is not None
        for item in items:
            recipe.load(item)

    threads = [threading.Thread(target=work, args=(recipe,)) for recipe in recipes]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun
