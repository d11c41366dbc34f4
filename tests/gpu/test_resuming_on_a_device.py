"""``examples/whole`` on a real device, with two processes a trial: killed at every report, its weights are the same."""

from __future__ import annotations

import itertools
import json
import time

import pytest

from tests.acceptance.whole_campaign import KILLED, run_once

pytestmark = pytest.mark.gpu


def test_weights_trained_on_a_device_are_the_same_whatever_is_killed_at_every_report() -> None:
    began = time.monotonic()
    undisturbed, _ = run_once(trials=1, epochs=2, resources={"gpus": 1})
    between = time.monotonic()
    weights, killed = run_once(trials=1, epochs=2, resources={"gpus": 1}, kills=itertools.cycle(KILLED))

    print(json.dumps({"undisturbed_s": between - began, "killed_s": time.monotonic() - between, "kills": len(killed)}))
    assert set(killed) == set(KILLED)
    assert weights == undisturbed
