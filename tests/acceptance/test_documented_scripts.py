"""The documentation's first script under an advisor: nothing has succeeded at a rung. The long run: make campaigns."""

from __future__ import annotations

import pytest

from tests.acceptance.documented_campaign import CASES, an_experiment, check


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "way", "deterministic"), [("hyperband", "break", False), ("asha_promote", "exit", True)]
)
def test_a_trial_that_breaks_out_of_its_loop_at_a_rung_rests_there(case: str, way: str, deterministic: bool) -> None:
    counts = check(an_experiment(case, trials=9, deterministic=deterministic), way=way, kills=0, seed=1)
    assert sum(counts.values()) == 9


@pytest.mark.campaign
@pytest.mark.parametrize("case", CASES)
def test_no_trial_has_succeeded_that_was_not_trained_to_its_end(case: str) -> None:
    for deterministic in (False, True):
        check(an_experiment(case, trials=9, deterministic=deterministic), way="break", kills=10, seed=3)
