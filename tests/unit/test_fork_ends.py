"""A fork of the tests ends where its work does, whatever that meets."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from tests.fork_ends import end_with

FAILED = 3


def fails() -> int:
    raise KeyError("what it missed")


@pytest.mark.parametrize(
    ("work", "code", "told"),
    [
        (lambda: 5, 5, ""),
        (fails, FAILED, "KeyError: 'what it missed'"),
        (lambda: sys.exit(7), 7, ""),
        (sys.exit, 0, ""),
        (lambda: sys.exit("a word"), 1, ""),
    ],
    ids=["done", "failed", "exit 7", "exit", "exit with a word"],
)
@pytest.mark.parametrize("last", [lambda: None, fails], ids=["tidy", "untidy"])
def test_a_fork_ends_with_what_its_work_says(
    work: Callable[[], int], code: int, told: str, last: Callable[[], object]
) -> None:
    heard, errors = os.pipe()
    pid = os.fork()
    if not pid:
        end_with(work, failed=FAILED, errors=errors, last=last)
    os.close(errors)
    with os.fdopen(heard, encoding="utf-8") as stream:
        said = stream.read()

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    assert told in said
    assert bool(said) is bool(told)
