"""``examples/whole``: two searches over an image classifier, killed at every report; the weights are the same."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.acceptance.whole_campaign import KILLED, run_once


@pytest.mark.slow
def test_the_weights_are_the_same_whatever_is_killed_at_every_report() -> None:
    sizes: dict[str, Any] = {"trials": 1, "epochs": 2}
    expected, _ = run_once(**sizes)
    weights, killed = run_once(**sizes, kills=itertools.cycle(KILLED))

    assert sorted(expected) == ["first/1", "second/1"]
    assert expected["first/1"] != expected["second/1"]
    assert set(killed) == set(KILLED)
    assert weights == expected
