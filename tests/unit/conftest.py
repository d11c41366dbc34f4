from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

from tests.forbidden import no_outside_world as no_outside_world  # noqa: PLC0414  # a fixture, for every test below

LONGEST_S = 60.0  # that a test waits for something
WORKING = 0.03  # of a core: who has had so much of it meanwhile computes, on a machine that others keep busy
AT_MOST_S = 600.0

# How long an example takes says on a busy machine nothing of what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that waits for what never comes fails, and says where it waited."""
    begun, used = time.monotonic(), time.process_time()

    def look(_signal: int, _frame: FrameType | None) -> None:
        nonlocal used
        now_used, took_s = time.process_time(), time.monotonic() - begun
        if now_used - used < WORKING * LONGEST_S or took_s >= AT_MOST_S:
            raise TimeoutError(f"{item.nodeid} takes longer than {took_s:.0f} s")
        used = now_used

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S, LONGEST_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
