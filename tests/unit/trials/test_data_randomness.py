"""Randomness of samples: keyed, and apart from the trial's own."""

from __future__ import annotations

import random
import time
import timeit
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from trials.data.core.randomness import GlobalGenerators, SampleGenerator, SampleKeys
from trials.data.core.sampling import drawn_items

RESEEDING_LIMIT_S = 40e-6  # 7 µs on two quiet cores; tests share theirs


@pytest.fixture(autouse=True)
def generators() -> object:
    kept = GlobalGenerators()
    before = kept.capture()
    yield kept
    kept.put_back(before)


def drawn() -> tuple[object, ...]:
    return random.gauss(0, 1), random.random(), *np.random.normal(size=3), *torch.randn(3).tolist()


def test_a_key_is_of_seed_epoch_and_index() -> None:
    keys = {SampleKeys(seed=s, epoch=e).of(i) for s in range(3) for e in range(3) for i in range(50)}

    assert len(keys) == 450
    assert SampleKeys(seed=1, epoch=2).of(3) == SampleKeys(seed=1, epoch=2).of(3)


def test_a_transforms_generator_is_numpys_philox_with_the_samples_key() -> None:
    key = SampleKeys(seed=1, epoch=2).of(3)

    ours = SampleGenerator().at(key)
    numpys = np.random.Generator(np.random.Philox(key=key.high << 64 | key.low))

    assert ours.random(5).tolist() == numpys.random(5).tolist()
    assert ours.integers(100, size=7).tolist() == numpys.integers(100, size=7).tolist()


def test_a_sample_generator_begins_anew_with_each_sample() -> None:
    generator, keys = SampleGenerator(), SampleKeys(seed=1, epoch=0)

    first = generator.at(keys.of(5)).normal(size=3).tolist()
    generator.at(keys.of(6)).integers(10, dtype=np.uint32)  # leaves half a word over

    assert generator.at(keys.of(5)).normal(size=3).tolist() == first


def test_seeding_makes_every_global_generator_begin_the_samples_stream() -> None:
    generators, key = GlobalGenerators(), SampleKeys(seed=1, epoch=0).of(7)
    generators.seed(key)
    first = drawn()
    random.gauss(0, 1)  # keeps a second number for the next call, as NumPy's normal() does
    np.random.normal()

    generators.seed(key)

    assert drawn() == first


def test_only_the_named_generators_are_seeded() -> None:
    generators = GlobalGenerators()
    before = random.getstate()

    generators.seed(SampleKeys(seed=1, epoch=0).of(7), frozenset({"numpy"}))

    assert random.getstate() == before


@pytest.mark.parametrize(
    ("draw", "name"), [(random.random, "random"), (np.random.rand, "numpy"), (lambda: torch.rand(1), "torch")]
)
def test_a_draw_from_a_generator_is_noticed(draw: object, name: str) -> None:
    generators = GlobalGenerators()
    mark, captured = generators.mark(), generators.capture()

    assert not generators.moved(mark)
    assert not generators.changed(captured)
    draw()  # type: ignore[operator]  # each of them is called without arguments

    assert generators.moved(mark) == {name}
    assert generators.changed(captured) == {name}


def test_a_draw_of_the_number_that_was_kept_is_noticed() -> None:
    generators = GlobalGenerators()
    np.random.normal()
    random.gauss(0, 1)
    captured = generators.capture()

    np.random.normal()  # takes the second of a pair: nothing else moves
    random.gauss(0, 1)

    assert generators.changed(captured) == {"numpy", "random"}


def test_what_was_captured_is_put_back_exactly() -> None:
    generators = GlobalGenerators()
    captured = generators.capture()
    first = drawn()

    generators.put_back(captured)

    assert drawn() == first


def test_a_capture_follows_generators_that_were_seeded_in_between() -> None:
    generators = GlobalGenerators()
    generators.capture()
    np.random.seed(5)
    captured = generators.capture()
    first = np.random.rand()

    generators.put_back(captured)

    assert np.random.rand() == first


def test_reseeding_for_a_sample_is_quick() -> None:
    generators, keys, own = GlobalGenerators(), SampleKeys(seed=1, epoch=0), SampleGenerator()

    def reseed() -> None:
        key = keys.of(7)
        generators.seed(key)
        own.at(key)

    # By the time that this thread had a processor, which others may keep busy.
    assert min(timeit.repeat(reseed, timer=time.thread_time, number=200, repeat=10)) / 200 < RESEEDING_LIMIT_S


def test_a_sampler_is_asked_under_its_own_seed_and_the_trials_generators_go_on_where_they_were() -> None:
    class Sampler:
        def __init__(self) -> None:
            self.generator = torch.Generator()

        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[object]:
            yield from (random.random(), np.random.random(), torch.rand(1, generator=self.generator).item())

    before = GlobalGenerators().capture()
    expected = drawn()
    GlobalGenerators().put_back(before)

    found = [list(drawn_items(Sampler(), seed=seed, epoch=epoch)) for seed, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))]

    assert drawn() == expected
    assert found[0] == found[1]
    for place in range(3):
        assert len({sample[place] for sample in found}) == 3
