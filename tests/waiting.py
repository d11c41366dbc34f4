"""The one place where tests wait."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep  # these ones: unit tests may not call time.sleep
from typing import TypeVar

PATIENCE_S = 120.0  # long, so that a busy machine is no failure; where all goes well nobody waits for it
FIRST_PAUSE_S, LAST_PAUSE_S = 0.005, 0.05  # who looks too often keeps a core from what it waits for

Found = TypeVar("Found")


def wait_until(predicate: Callable[[], Found], timeout_s: float = PATIENCE_S) -> Found:
    """The first true value of ``predicate``; AssertionError when there is none in time."""
    deadline = monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while True:
        found = predicate()
        if found:
            return found
        assert monotonic() < deadline, f"waited {timeout_s} s in vain for {predicate}"
        sleep(pause_s)
        pause_s = min(pause_s * 1.2, LAST_PAUSE_S)
