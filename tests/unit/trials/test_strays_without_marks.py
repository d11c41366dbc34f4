"""A process without marks may be of any trial that ran when it was seen, and is nobody's until one is left."""

from __future__ import annotations

import pytest

from trials.processes import family
from trials.processes.family import Family

STRAY = 500


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Family:
    """Two trials, and a stray without marks."""
    monkeypatch.setattr(family, "children_of", lambda _: [11, 12, STRAY])
    monkeypatch.setattr(family, "descendants_of", lambda _: [])
    monkeypatch.setattr(family, "limit_on", lambda _: None)
    monkeypatch.setattr(family, "has_nonce", lambda _pid, _nonce: False)
    monkeypatch.setattr(family, "_reap", lambda _: False)
    made = Family()
    made.add("one", 11)
    made.add("two", 12)
    return made


def test_it_is_signalled_with_neither_of_two_trials(two: Family) -> None:
    assert (two.strays("one"), two.strays("two")) == ([], [])
    assert two.everyone("one") == [11]


def test_it_goes_with_the_last_of_those_that_ran_and_not_with_one_that_came_later(two: Family) -> None:
    two.strays("one")
    two.add("three", 13)
    two.end("one")

    assert two.strays("three") == []
    assert two.strays("two") == [STRAY]


def test_it_goes_with_the_only_trial_that_is_left(two: Family) -> None:
    two.strays("one")
    two.end("two")

    assert two.strays("one") == [STRAY]
