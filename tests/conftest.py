"""What all tests share. What is collected is there until the end: the garbage collector need not look at it again."""

from __future__ import annotations

import gc
import logging
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[object]:
    """The log of this process as it was: a command that a test calls sets it up for a process of its own."""
    level, handlers = logging.root.level, list(logging.root.handlers)
    try:
        return (yield)
    finally:
        logging.root.setLevel(level)
        for handler in [one for one in logging.root.handlers if one not in handlers]:
            logging.root.removeHandler(handler)
            handler.close()
