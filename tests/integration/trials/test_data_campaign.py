"""A short run of the kill campaign; ``python -m tests.data_campaign`` is the long one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.data_campaign import run_round


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    # No forks of this process, in which other tests may have left threads of libraries.
    return run_round(0, kills=0, scripts=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_every_sample_comes_once_and_nothing_is_left(seed: int, undisturbed: Any) -> None:
    assert run_round(seed, kills=2, scripts=1.0) == undisturbed
