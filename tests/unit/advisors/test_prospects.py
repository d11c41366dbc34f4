"""What a course promises: nothing of few ends, little if hopeless, and much where curves tell nothing of the ends."""

from __future__ import annotations

import math
import random

from tuner_service.advisors.prospects import LEAST_ENDED, Ended, Prospects

RUNGS = (1, 3)


def settled(count: int) -> list[Ended]:
    """Trials that end a tenth below where they stood at the last rung."""
    rng = random.Random(1)
    losses = [rng.uniform(1.0, 2.0) for _ in range(count)]
    return [((loss + 0.5, loss), loss - 0.1) for loss in losses]


def test_nothing_is_said_before_some_trials_have_ended() -> None:
    assert Prospects().expected_gain((1.5, 1.0), settled(LEAST_ENDED - 1), rungs=RUNGS) is None
    assert Prospects().expected_gain((1.5, 1.0), settled(LEAST_ENDED), rungs=RUNGS) is not None


def test_where_courses_tell_the_ends_only_those_of_the_best_promise_a_gain() -> None:
    ended = settled(20)
    prospects = Prospects()
    best = min(loss for (_, loss), _ in ended)
    hopeless = prospects.expected_gain((2.3, 1.8), ended, rungs=RUNGS)
    better = prospects.expected_gain((best + 0.3, best - 0.2), ended, rungs=RUNGS)
    assert hopeless is not None
    assert better is not None
    assert hopeless < 0.001
    assert better > 0.05


def test_where_courses_tell_nothing_even_the_worst_has_prospects() -> None:
    rng = random.Random(2)
    ended = [((rng.random() + 1, rng.random()), rng.random()) for _ in range(20)]
    gain = Prospects().expected_gain((1.9, 0.95), ended, rungs=RUNGS)
    assert gain is not None
    assert gain > 0.01


def test_what_is_no_number_promises_nothing() -> None:
    assert Prospects().expected_gain((1.0, math.inf), settled(10), rungs=RUNGS) == 0.0


def test_answers_depend_on_what_has_ended_and_not_on_what_was_asked_before() -> None:
    ended, asked = settled(40), Prospects()
    for count in range(LEAST_ENDED, 41, 3):
        asked.expected_gain((1.6, 1.1), ended[:count], rungs=RUNGS)
    assert asked.expected_gain((1.6, 1.1), ended, rungs=RUNGS) == Prospects().expected_gain(
        (1.6, 1.1), ended, rungs=RUNGS
    )


def test_ends_that_are_all_the_same_are_no_error() -> None:
    ended = [((1.0, 0.5), 0.5)] * 10
    assert Prospects().expected_gain((1.0, 0.5), ended, rungs=RUNGS) is not None
