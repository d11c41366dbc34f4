from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner_service.domain.steps import Steps

STEPS = st.lists(st.integers(0, 60))


@given(STEPS)
def test_it_is_the_set_of_what_was_added(added: list[int]) -> None:
    steps, known = Steps(), set[int]()
    for step in added:
        assert steps.add(step) is (step not in known)
        known.add(step)
        assert [n for n in range(-1, 62) if n in steps] == sorted(known)
    assert steps == known
    assert sorted(steps) == sorted(known)
    assert len(steps) == len(known)


@given(STEPS, st.integers(-1, 61))
def test_of_a_trial_that_is_cut_off_those_before_are_kept(added: list[int], last: int) -> None:
    assert Steps(added).upto(last) == {step for step in added if step <= last}


def test_what_is_no_number_is_in_none() -> None:
    assert "3" not in Steps([3])


def test_steps_at_one_distance_take_no_more_memory_than_one() -> None:
    for distance in (1, 100):
        steps = Steps(range(7, 7 + 100_000 * distance, distance))
        assert len(steps) == 100_000
        assert steps.__sizeof__() < 1_000
        assert sum(part.buffer_info()[1] for part in (steps._firsts, steps._lasts, steps._distances)) == 3


def test_the_largest_step_fits() -> None:
    assert 2**53 in Steps([0, 2**53])


def test_what_holds_the_same_steps_is_shown_as_the_same_in_few_words() -> None:
    assert repr(Steps([*range(0, 1_000_000, 2), 5])) == "Steps([range(0, 999999, 2)], [5])"
