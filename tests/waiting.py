"""The one place where tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(predicate: Callable[[], Found], timeout_s: float = 10) -> Found:
    """The first true value of ``predicate``; AssertionError when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = predicate()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain for {predicate}"
        time.sleep(0.005)
