"""The marks by which processes of an attempt are found."""

from __future__ import annotations

import os
import resource

import pytest

from trials.processes.marks import has_mark, has_nonce, limit_of, limit_on


def test_the_mark_is_the_same_for_the_same_nonce_and_no_limit_that_takes_effect() -> None:
    assert limit_of("5-17") == limit_of("5-17")
    assert limit_of("5-17") / 1e6 > 10_000 * 366 * 86_400, "microseconds"
    assert limit_of("5-17") < resource.RLIM_INFINITY % 2**64 // 2


def test_nonces_that_follow_each_other_have_different_marks() -> None:
    nonces = [f"{incarnation}-{number}" for incarnation in range(20) for number in range(2_000)]

    assert len({limit_of(nonce) for nonce in nonces}) == len(nonces)


def test_a_process_that_was_not_started_for_an_attempt_has_no_mark() -> None:
    assert limit_on(os.getpid()) is None
    assert not has_mark(os.getpid(), "5-17")


def test_a_process_that_is_gone_has_no_mark() -> None:
    assert limit_on(2**22 + 1) is None
    assert not has_nonce(2**22 + 1, "5-17")


@pytest.mark.parametrize("nonce", ["", "5", "a-very-long-nonce-" * 8])
def test_any_nonce_can_be_a_mark(nonce: str) -> None:
    assert 0 < limit_of(nonce) < 2**62
