from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

from tests.forbidden import no_outside_world as no_outside_world  # noqa: PLC0414  # a fixture, for every test below

LONGEST_S = 60.0  # far more than any takes on a busy machine

# How long an example takes says on a busy machine nothing of what is tested.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that waits for what never comes fails, and says where it waited."""

    def fail(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"{item.nodeid} takes longer than {LONGEST_S:g} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
