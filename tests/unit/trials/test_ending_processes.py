"""The steps by which processes are ended, at the times that a clock of the test says."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest

from trials.processes import ending
from trials.processes.ending import KILL_REPEAT_S, KILL_TREE_TIMEOUT_S, Escalation, end, kill_until_gone, signal_all
from trials.processes.identity import identity, send_verified
from trials.wire.records import ProcessRecord

TERM, KILL = signal.SIGTERM, signal.SIGKILL


class Clock:
    """Moves when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(ending, "send", lambda pid, number: found.append((pid, number)))
    return found


def test_whoever_was_told_has_its_time_then_gets_sigterm_once_and_then_sigkill_again_and_again() -> None:
    steps = Escalation(now=0.0, told_s=8.0, grace_s=10.0)

    assert [steps.due(now) for now in (0.0, 7.5, 8.0, 9.5)] == [(None, 8.0), (None, 0.5), (TERM, 2.0), (None, 0.5)]
    assert [steps.due(now)[0] for now in (10.0, 10.1, 10.5, 10.6)] == [KILL, None, KILL, None]


def test_without_a_time_for_the_word_sigterm_is_due_at_once_and_without_a_grace_sigkill() -> None:
    assert Escalation(now=5.0, grace_s=10.0).due(5.0) == (TERM, 10.0)
    assert Escalation(now=5.0, grace_s=0.0).due(5.0) == (KILL, KILL_REPEAT_S)


def test_where_all_of_the_grace_is_for_the_word_there_is_no_sigterm() -> None:
    steps = Escalation(now=0.0, told_s=2.0, grace_s=2.0)

    assert [steps.due(now)[0] for now in (0.0, 1.9, 2.0)] == [None, None, KILL]


def test_a_shorter_grace_moves_the_end_and_a_longer_one_does_not() -> None:
    steps = Escalation(now=0.0, grace_s=100.0)
    steps.shorten(now=10.0, grace_s=500.0)
    assert steps.due(10.0) == (TERM, 90.0)

    steps.shorten(now=20.0, grace_s=5.0)

    assert [steps.due(now)[0] for now in (24.9, 25.0)] == [None, KILL]


def ended_at(when: float, clock: Clock) -> Callable[[float], bool]:
    def gone_within(seconds: float) -> bool:
        clock.sleep(min(seconds, max(0.0, when - clock.now)))
        return clock.now >= when

    return gone_within


@pytest.mark.parametrize(
    ("when", "expected"),
    [(100.0, []), (101.0, []), (104.5, [(103.0, TERM)]), (105.1, [(103.0, TERM), (105.0, KILL)])],
    ids=["gone before", "when told", "by SIGTERM", "by SIGKILL"],
)
def test_an_ending_takes_no_step_more_than_it_needs(
    when: float, expected: list[tuple[float, int]], clock: Clock
) -> None:
    taken: list[tuple[float, int]] = []
    steps = Escalation(now=clock(), told_s=3.0, grace_s=5.0)

    gone = end(
        steps,
        send=lambda number: taken.append((clock(), number)),
        gone_within=ended_at(when, clock),
        kill_s=1.0,
        clock=clock,
    )

    assert (gone, taken, clock()) == (True, expected, when)


def test_what_survives_sigkill_is_given_up_after_its_time(clock: Clock) -> None:
    steps = Escalation(now=clock(), grace_s=2.0)

    gone = end(
        steps, send=lambda _: None, gone_within=ended_at(1_000.0, clock), kill_s=KILL_REPEAT_S * 1.5, clock=clock
    )

    assert not gone
    assert clock() == pytest.approx(102.0 + KILL_REPEAT_S * 1.5)


def test_a_process_that_is_stopped_is_continued_with_sigterm(sent: list[tuple[int, int]]) -> None:
    signal_all([11, 12], TERM)
    signal_all([13], KILL)

    assert sent == [(11, TERM), (11, signal.SIGCONT), (12, TERM), (12, signal.SIGCONT), (13, KILL)]


def test_what_forks_while_it_is_killed_is_looked_for_again(clock: Clock, sent: list[tuple[int, int]]) -> None:
    rounds = iter([{1, 2}, {3}, set[int]()])
    reaped: list[float] = []

    left = kill_until_gone(lambda: next(rounds), reap=lambda: reaped.append(clock()), clock=clock, sleep=clock.sleep)

    assert left == []
    assert sorted(pid for pid, _ in sent) == [1, 2, 3]
    assert len(reaped) == 3  # after each round, and once more at the end


def test_what_nothing_kills_is_named_after_a_while(clock: Clock, sent: list[tuple[int, int]]) -> None:
    assert kill_until_gone(lambda: {9, 7}, clock=clock, sleep=clock.sleep) == [7, 9]
    assert KILL_TREE_TIMEOUT_S < clock() - 100.0 < KILL_TREE_TIMEOUT_S + 1.0
    assert (9, KILL) in sent


def test_a_process_that_has_the_number_of_another_one_is_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda _, number: sent.append(number))
    mine = ProcessRecord(**identity(os.getpid()))

    assert not send_verified(signal.SIGKILL, replace(mine, start_time=mine.start_time - 1))
    assert sent == []
    assert send_verified(signal.SIGKILL, mine)
    assert sent == [signal.SIGKILL]
