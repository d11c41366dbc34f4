"""The values that assessors compare with: exact, also for forks, and in memory once."""

from __future__ import annotations

import random

import pytest

from tuner_service.assessors import step_values
from tuner_service.assessors.losses import read, written
from tuner_service.assessors.step_values import StepValues


def seen(values: StepValues) -> dict[int, list[float]]:
    return {step: list(values.at(step) or ()) for step in range(12) if values.at(step) is not None}


@pytest.mark.parametrize("seed", range(20))
def test_every_fork_has_what_it_was_told_and_nothing_that_another_was(seed: int) -> None:
    rng = random.Random(seed)
    kept: list[tuple[StepValues, dict[int, list[float]]]] = [(StepValues(), {})]
    for _ in range(60):
        values, told = rng.choice(kept)
        if rng.random() < 0.3:
            kept.append((values.fork(), {step: list(found) for step, found in told.items()}))
        elif rng.random() < 0.1:
            values.load(values.state(written), read)
        else:
            added = {step: rng.choice((rng.random(), float("inf"))) for step in rng.sample(range(12), 4)}
            values.add(added)
            for step, value in added.items():
                told[step] = sorted([*told.get(step, []), value])
    for values, told in kept:
        assert seen(values) == dict(sorted(told.items()))


def test_a_trial_is_added_to_the_lists_that_are_there_and_copies_none() -> None:
    """Of 10,000 trials with 10,000 steps a copy of all lists would be 800 MB more with each trial that ends."""
    values = StepValues()
    values.add({1: 0.5, 2: 0.5})
    before = values.at(1)
    values.add({1: 0.25})
    assert values.at(1) is before

    fork = values.fork()
    values.add({1: 0.75})
    assert (fork.at(1), list(values.at(1) or ())) == (before, [0.25, 0.5, 0.75])
    copied = values.at(1)
    values.add({1: 1.0})
    assert values.at(1) is copied, "it is copied once for the fork"
    assert values.at(2) is fork.at(2), "nothing was added there"


def test_steps_that_are_known_take_no_room_from_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_values, "STEP_LIMIT", 4)
    values = StepValues()
    values.add({1: 0.5, 2: 0.5})
    values.add({1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5, 5: 0.5})
    assert list(seen(values)) == [1, 2, 3, 4]
