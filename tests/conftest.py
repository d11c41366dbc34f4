"""What all tests share. What is collected is there until the end: the garbage collector need not look at it again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests and all libraries are half of what a full collection would walk through, each time anew."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
