"""A short run of the kill campaign; ``python -m tests.data_campaign`` is the long one."""

from __future__ import annotations

import pytest

from tests.data_campaign import run_round


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_every_sample_comes_once_and_nothing_is_left(seed: int) -> None:
    assert run_round(seed, kills=2) == run_round(0, kills=0)
