"""Seeds are the same for ever: these numbers never change."""

from __future__ import annotations

from tuner_service.domain.seeds import SEED_BITS, derive_seed, suggestion_generator, trial_seed


def test_a_seed_follows_from_experiment_purpose_and_number_alone() -> None:
    assert derive_seed(7, "suggestion", 1) == 7_759_943_862_089_517_248
    assert trial_seed(7, 1) == 2_739_770_090


def test_seeds_differ_by_experiment_purpose_and_number() -> None:
    seeds = {derive_seed(e, p, n) for e in range(20) for p in ("trial", "suggestion") for n in range(50)}

    assert len(seeds) == 20 * 2 * 50


def test_seeds_lie_in_their_ranges() -> None:
    assert all(0 <= derive_seed(n, "x", n) < 2**SEED_BITS for n in range(200))
    assert all(0 <= trial_seed(n, n) < 2**32 for n in range(200))


def test_the_generator_of_a_suggestion_can_be_made_again() -> None:
    assert suggestion_generator(7, 3).random() == suggestion_generator(7, 3).random()
    assert suggestion_generator(7, 3).random() != suggestion_generator(7, 4).random()
