"""The rules of window.py: which samples are decoded next, and who may go on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trials.data.sharing.window import FILL_TRIES, Answer, Fill, SharedWindows


def some_windows(windows: int = 1, capacity: int = 8, ahead: int = 2) -> SharedWindows:
    return SharedWindows(windows=windows, capacity=capacity, ahead=ahead)


def fill_all(windows: SharedWindows) -> list[Answer]:
    answers = []
    while (fill := windows.next_fill(3)) is not None:
        answers += windows.filled(fill.window, fill.first, fill.count)
    return answers


def members(*numbers: int, windows: SharedWindows, **fields: Any) -> None:
    for number in numbers:
        windows.join(number, **fields)


def test_a_member_is_answered_when_everything_it_asked_for_is_there() -> None:
    windows = some_windows()
    members(1, windows=windows)

    assert windows.ask(1, first=0, last=3, waits=True) == []
    assert windows.next_fill(2) == Fill(window=0, first=0, count=2)
    assert windows.next_fill(2) == Fill(window=0, first=2, count=2)
    assert windows.filled(0, 2, 2) == []
    assert windows.filled(0, 0, 2) == [Answer(member=1, window=0)]


def test_no_more_is_filled_than_a_member_may_want_soon() -> None:
    windows = some_windows(ahead=2)
    members(1, windows=windows)
    windows.ask(1, first=0, last=3, waits=True)

    assert windows.next_fill(64) == Fill(window=0, first=0, count=5)
    assert windows.next_fill(64) is None


def test_little_is_filled_of_an_epoch_that_nobody_has_asked_for() -> None:
    windows = SharedWindows(windows=1, capacity=16, ahead=8, epoch=10, ahead_of_epoch=2)
    members(1, windows=windows)
    windows.ask(1, first=4, last=7, waits=True)
    assert windows.next_fill(64) == Fill(window=0, first=4, count=8)

    windows.ask(1, first=10, last=11, waits=True)
    assert windows.next_fill(64) == Fill(window=0, first=12, count=7)


def test_one_filling_answers_every_member_that_waits_for_it() -> None:
    windows = some_windows()
    members(1, 2, windows=windows)
    windows.ask(1, first=0, last=2, waits=True)
    windows.ask(2, first=0, last=2, waits=True)

    assert windows.next_fill(2) == Fill(window=0, first=0, count=2)
    assert windows.filled(0, 0, 2) == [Answer(member=1, window=0), Answer(member=2, window=0)]


def test_a_slow_member_is_detached_when_another_waits_for_its_slot() -> None:
    windows = some_windows(capacity=4)
    members(1, 2, windows=windows)
    windows.ask(1, first=0, last=1, waits=False)
    windows.ask(2, first=0, last=4, waits=True)
    fill_all(windows)
    windows.ask(2, first=4, last=6, waits=True)

    assert fill_all(windows) == [Answer(member=2, window=0)]
    assert windows.window_of(1) is None


def test_a_slow_member_keeps_its_samples_while_nobody_waits_for_the_slot() -> None:
    windows = some_windows(capacity=4, ahead=4)
    members(1, 2, windows=windows)
    windows.ask(1, first=0, last=1, waits=False)
    windows.ask(2, first=2, last=4, waits=False)
    fill_all(windows)

    assert windows.window_of(1) == 0


def test_a_slow_member_that_is_waited_for_holds_the_others_up() -> None:
    windows = some_windows(capacity=4)
    members(1, windows=windows, is_waited_for=True)
    members(2, windows=windows)
    windows.ask(1, first=0, last=1, waits=False)
    windows.ask(2, first=0, last=4, waits=True)
    fill_all(windows)
    windows.ask(2, first=4, last=6, waits=True)

    assert fill_all(windows) == []
    assert windows.is_waiting()
    windows.ask(1, first=4, last=5, waits=True)
    assert {answer.member for answer in fill_all(windows)} == {1, 2}


def test_a_member_that_ends_holds_nobody_up() -> None:
    windows = some_windows(capacity=4)
    members(1, windows=windows, is_waited_for=True)
    members(2, windows=windows)
    windows.ask(1, first=0, last=1, waits=False)
    windows.ask(2, first=0, last=4, waits=True)
    fill_all(windows)
    windows.ask(2, first=4, last=6, waits=True)
    windows.leave(1)

    assert fill_all(windows) == [Answer(member=2, window=0)]


def test_a_late_member_is_attached_where_its_position_meets_the_window() -> None:
    windows = some_windows(capacity=8)
    members(1, 2, windows=windows)
    windows.ask(1, first=100, last=104, waits=True)
    fill_all(windows)

    assert windows.ask(2, first=90, last=94, waits=True) == [Answer(member=2, window=None)]
    assert windows.ask(2, first=101, last=103, waits=True) == [Answer(member=2, window=0)]


def test_a_second_window_is_opened_for_a_member_that_is_elsewhere_and_given_up_with_it() -> None:
    windows = some_windows(windows=2, capacity=8)
    members(1, 2, 3, windows=windows)
    windows.ask(1, first=100, last=104, waits=True)
    windows.ask(2, first=0, last=4, waits=True)
    assert windows.window_of(2) != windows.window_of(1)
    assert windows.ask(3, first=50, last=54, waits=True) == [Answer(member=3, window=None)]

    windows.leave(2)

    assert windows.ask(3, first=50, last=54, waits=True) == []
    assert windows.window_of(3) is not None


def test_what_a_member_left_in_its_window_is_there_when_it_comes_again() -> None:
    windows = some_windows(windows=2)
    members(1, windows=windows)
    windows.ask(1, first=0, last=4, waits=True)
    fill_all(windows)
    windows.leave(1)
    members(2, windows=windows)

    assert windows.ask(2, first=2, last=4, waits=True) == [Answer(member=2, window=0)]


def test_more_than_a_window_holds_cannot_be_asked_for() -> None:
    windows = some_windows(capacity=8)
    members(1, windows=windows)

    assert windows.ask(1, first=0, last=9, waits=True) == [Answer(member=1, window=None)]


def test_positions_of_a_lost_worker_are_filled_again_one_at_a_time_and_fail_in_the_end() -> None:
    windows = some_windows(ahead=0)
    members(1, windows=windows)
    windows.ask(1, first=0, last=2, waits=True)
    assert windows.next_fill(8) == Fill(window=0, first=0, count=2)
    windows.lost(0, 0, 2)

    for _ in range(FILL_TRIES - 1):
        assert windows.next_fill(8) == Fill(window=0, first=0, count=1)
        assert windows.lost(0, 0, 1) == []
    assert windows.next_fill(8) == Fill(window=0, first=1, count=1)
    assert windows.filled(0, 1, 1) == [Answer(member=1, window=0)]


def test_a_worker_that_had_not_begun_is_not_blamed() -> None:
    windows = some_windows(ahead=0)
    members(1, windows=windows)
    windows.ask(1, first=0, last=1, waits=True)
    for _ in range(3 * FILL_TRIES):
        assert windows.next_fill(8) == Fill(window=0, first=0, count=1)
        windows.lost(0, 0, 1, is_blamed=False)

    assert windows.next_fill(8) == Fill(window=0, first=0, count=1)


def test_a_slot_that_a_worker_may_still_write_to_is_not_given_out() -> None:
    windows = some_windows(capacity=4, ahead=0)
    members(1, windows=windows)
    windows.ask(1, first=0, last=4, waits=True)
    assert windows.next_fill(2) == Fill(window=0, first=0, count=2)
    windows.leave(1)
    members(2, windows=windows)
    windows.ask(2, first=40, last=44, waits=True)

    assert windows.next_fill(4) is None
    windows.filled(0, 0, 2)
    assert windows.next_fill(4) == Fill(window=0, first=40, count=4)


@pytest.mark.parametrize("capacity", [4, 7])
def test_members_with_coprime_batches_share_every_sample_of_three_epochs(capacity: int) -> None:
    length, cursors, counts = 30, {1: 0, 2: 0, 3: 0}, dict.fromkeys(range(90), 0)
    sizes = {1: 2, 2: 3, 3: 4}
    windows = some_windows(capacity=capacity, ahead=2)
    members(1, 2, 3, windows=windows, is_waited_for=True)

    def move_on(answers: list[Answer]) -> None:
        for answer in answers:
            assert answer.window is not None
            asked.discard(answer.member)
            cursors[answer.member] = min(3 * length, cursors[answer.member] + sizes[answer.member])
            if cursors[answer.member] == 3 * length:
                windows.leave(answer.member)

    asked: set[int] = set()
    for _ in range(9 * length):
        for member, cursor in list(cursors.items()):
            if cursor < 3 * length and member not in asked:
                asked.add(member)
                last = min(3 * length, cursor + sizes[member])
                move_on(windows.ask(member, first=cursor, last=last, waits=True))
        while (fill := windows.next_fill(3)) is not None:
            for position in range(fill.first, fill.first + fill.count):
                counts[position] = counts.get(position, 0) + 1
            move_on(windows.filled(fill.window, fill.first, fill.count))
        windows.check()

    assert set(cursors.values()) == {3 * length}
    assert all(counts[position] == 1 for position in range(3 * length))


class Sharing(RuleBasedStateMachine):
    """Any members, at any pace, with workers that answer in any order or die: whoever waits is answered in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.windows = SharedWindows(windows=2, capacity=8, ahead=3)
        self.positions: dict[int, int] = {}
        self.held_up: set[int] = set()
        self.waiting: dict[int, tuple[int, int]] = {}
        self.writing: list[Fill] = []
        self.slots: dict[tuple[int, int], int] = {}  # what lies in each slot, once it was written
        self.next_member = 0

    def note(self, answers: list[Answer]) -> None:
        for answer in answers:
            first, last = self.waiting.pop(answer.member)
            if answer.window is not None:
                for position in range(first, last):
                    held = self.slots.get((answer.window, position % 8))
                    assert held in {position, -position - 1}, "told that it is there, and it is not"

    @precondition(lambda self: len(self.positions) < 4)
    @rule(start=st.integers(0, 12), is_waited_for=st.booleans())
    def a_member_joins(self, start: int, *, is_waited_for: bool) -> None:
        self.next_member += 1
        self.positions[self.next_member] = start
        self.windows.join(self.next_member, is_waited_for=is_waited_for)

    @precondition(lambda self: self.positions)
    @rule(data=st.data(), size=st.integers(1, 5), skip=st.integers(0, 5), waits=st.booleans())
    def a_member_asks(self, data: st.DataObject, size: int, skip: int, *, waits: bool) -> None:
        member = data.draw(st.sampled_from(sorted(self.positions)))
        if member in self.waiting:
            return
        first = self.positions[member] = self.positions[member] + skip
        if waits:
            self.waiting[member] = (first, first + size)
        self.note(self.windows.ask(member, first=first, last=first + size, waits=waits))

    @precondition(lambda self: self.positions)
    @rule(data=st.data())
    def a_member_ends(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(self.positions)))
        del self.positions[member]
        self.waiting.pop(member, None)
        self.windows.leave(member)

    @rule(limit=st.integers(1, 4))
    def a_worker_is_free(self, limit: int) -> None:
        fill = self.windows.next_fill(limit)
        if fill is not None:
            for position in range(fill.first, fill.first + fill.count):
                slot = (fill.window, position % 8)
                assert all(slot not in self.slots_of(other) for other in self.writing), "two writers of one slot"
                self.slots.pop(slot, None)
            self.writing.append(fill)

    def slots_of(self, fill: Fill) -> set[tuple[int, int]]:
        return {(fill.window, position % 8) for position in range(fill.first, fill.first + fill.count)}

    @precondition(lambda self: self.writing)
    @rule(data=st.data())
    def a_worker_answers(self, data: st.DataObject) -> None:
        self.finish(self.writing.pop(data.draw(st.integers(0, len(self.writing) - 1))))

    def finish(self, fill: Fill) -> None:
        for position in range(fill.first, fill.first + fill.count):
            self.slots[fill.window, position % 8] = position
        self.note(self.windows.filled(fill.window, fill.first, fill.count))

    @precondition(lambda self: self.writing)
    @rule(data=st.data(), is_blamed=st.booleans())
    def a_worker_dies(self, data: st.DataObject, *, is_blamed: bool) -> None:
        fill = self.writing.pop(data.draw(st.integers(0, len(self.writing) - 1)))
        for position in range(fill.first, fill.first + fill.count):
            self.slots[fill.window, position % 8] = -position - 1  # failed, unless it is filled again
        self.note(self.windows.lost(fill.window, fill.first, fill.count, is_blamed=is_blamed))

    @invariant()
    def no_rule_is_broken(self) -> None:
        self.windows.check()

    def teardown(self) -> None:
        """From here on nobody dies, and those that hold others up go: then everyone who waits is answered."""
        for member in [member for member in self.positions if member not in self.waiting]:
            self.windows.leave(member)
        while self.waiting:
            before = dict(self.waiting)
            self.a_worker_is_free(4)
            while self.writing:
                self.finish(self.writing.pop(0))
                self.a_worker_is_free(4)
            for member in set(before) - set(self.waiting):
                self.windows.leave(member)
            assert before != self.waiting or not before, "somebody waits for ever"


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
