"""The one place where tests wait."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep  # these ones: unit tests may not call time.sleep
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(predicate: Callable[[], Found], timeout_s: float = 10) -> Found:
    """The first true value of ``predicate``; AssertionError when there is none in time."""
    deadline = monotonic() + timeout_s
    while True:
        found = predicate()
        if found:
            return found
        assert monotonic() < deadline, f"waited {timeout_s} s in vain for {predicate}"
        sleep(0.005)
