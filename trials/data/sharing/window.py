"""Flow control by sliding windows: which samples the producer has decoded next, and which trials have to wait.

The rules alone, without any input or output.

Epochs follow one another in one endless *stream*: position = epoch x length + place in the group's order. A *window*
is a run of the stream that lies in ``capacity`` slots, position p in slot p % capacity. Members are trials.

1. A slot is given to another position only when every member of the window is past the one it holds.
2. A member that keeps others from going on is detached, unless it was let in as one that is waited for. One that
   itself waits for samples is not late.
3. A member is put into the window that holds its position and has the most members; else into a window that nobody
   uses, moved to its position; else it decodes for itself and is placed again when it asks again.
4. A slot that a worker may still write to is never given to another position.
5. A position whose worker was lost is filled again, FILL_TRIES times in all; then it counts as failed, and every
   member that needs it decodes it for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

FILL_TRIES = 3  # of one position, before its members are left to decode it for themselves
_NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Have the positions from ``first``, ``count`` of them, decoded into their slots of ``window``."""

    window: int
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """To a member that waits: what it asked for is in ``window``; None: it is to decode that for itself."""

    member: int
    window: int | None


@dataclass(slots=True, kw_only=True)
class _Member:
    is_waited_for: bool
    first: int = _NOWHERE  # nothing before it is needed
    last: int = _NOWHERE  # everything before it is needed now
    waits: bool = False
    window: int | None = None


@dataclass(slots=True, kw_only=True)
class _Window:
    number: int
    low: int = _NOWHERE  # oldest position that has its slot
    solid: int = _NOWHERE  # every position from ``low`` to it is filled or failed
    head: int = _NOWHERE  # the next position to be filled
    done: set[int] = field(default_factory=set)  # from ``solid`` on
    again: list[int] = field(default_factory=list)  # lost with their worker
    tries: dict[int, int] = field(default_factory=dict)  # of the positions lost
    busy: dict[int, int] = field(default_factory=dict)  # slot to the position being written, of earlier places, too

    def holds(self, position: int) -> bool:
        return self.low <= position <= self.head and self.head != _NOWHERE

    def move(self, position: int) -> None:
        self.low = self.solid = self.head = position
        self.done.clear()
        self.again.clear()
        self.tries.clear()

    def settle(self, position: int) -> None:
        """The position is filled or failed."""
        self.tries.pop(position, None)
        if self.solid <= position < self.head:
            self.done.add(position)
        while self.solid in self.done:
            self.done.discard(self.solid)
            self.solid += 1

    def drop_before(self, low: int) -> None:
        self.low = max(self.low, low)
        if self.solid < self.low:
            self.done = {position for position in self.done if position >= self.low}
            self.again = [position for position in self.again if position >= self.low]
            self.solid = self.low
            while self.solid in self.done:
                self.done.discard(self.solid)
                self.solid += 1


class SharedWindows:
    """``windows`` runs of ``capacity`` positions; at most ``ahead`` are filled beyond what a member has asked for.

    Of those, at most ``ahead_of_epoch`` belong to an epoch (of ``epoch`` positions) that no member has asked for yet.
    """

    def __init__(
        self, *, windows: int, capacity: int, ahead: int, epoch: int | None = None, ahead_of_epoch: int = 0
    ) -> None:
        self.capacity = capacity
        self._ahead = ahead
        self._epoch, self._ahead_of_epoch = epoch, ahead_of_epoch
        self._windows = [_Window(number=number) for number in range(windows)]
        self._members: dict[int, _Member] = {}

    def __len__(self) -> int:
        return len(self._members)

    # ── members ───────────────────────────────────────────────────────────────────────────────
    def join(self, member: int, *, is_waited_for: bool = False) -> None:
        self._members[member] = _Member(is_waited_for=is_waited_for)

    def leave(self, member: int) -> None:
        """Its cursor is gone at once. What it asked for is not answered any more."""
        self._members.pop(member, None)

    def window_of(self, member: int) -> int | None:
        return self._members[member].window

    def has_member_in(self, first: int, last: int) -> bool:
        """Whether a member stands at a position from ``first`` on and before ``last``."""
        return any(first <= member.first < last for member in self._members.values())

    def is_waiting(self) -> bool:
        return any(member.waits for member in self._members.values())

    def ask(self, member: int, *, first: int, last: int, waits: bool) -> list[Answer]:
        """The member needs nothing before ``first`` any more. ``waits``: answer when all up to ``last`` is there."""
        found = self._members[member]
        found.first, found.last, found.waits = first, last, waits
        found.window = None
        window = None if last - first > self.capacity else self._place(first)
        if window is None:
            return self._answered([member])
        found.window = window.number
        return self._answer_ready(window)

    def _place(self, first: int) -> _Window | None:
        holding = [window for window in self._windows if window.holds(first)]
        if holding:
            return max(holding, key=lambda window: (len(self._of(window)), window.head))
        unused = [window for window in self._windows if not self._of(window)]
        if not unused:
            return None
        # The window that is furthest back is evicted: trials only move forward, so its samples are the least likely to
        # be wanted again.
        window = min(unused, key=lambda window: window.head)
        window.move(first)
        return window

    def _of(self, window: _Window) -> list[_Member]:
        return [member for member in self._members.values() if member.window == window.number]

    # ── filling ───────────────────────────────────────────────────────────────────────────────
    def next_fill(self, limit: int) -> Fill | None:
        """The most urgent positions, at most ``limit``, in a row; they count as being written from now on."""
        used = [(window, members) for window in self._windows if (members := self._of(window))]
        for window, members in sorted(used, key=_urgency):
            first, count = self._take_lost(window)
            if not count:
                first, count = self._take_new(window, members, limit)
            if count:
                window.busy.update({position % self.capacity: position for position in range(first, first + count)})
                return Fill(window=window.number, first=first, count=count)
        return None

    def _take_lost(self, window: _Window) -> tuple[int, int]:
        """One at a time: where one sample ends every worker, those beside it are not to fail with it."""
        for position in window.again:
            if position % self.capacity not in window.busy:
                window.again.remove(position)
                return position, 1
        return 0, 0

    def _take_new(self, window: _Window, members: list[_Member], limit: int) -> tuple[int, int]:
        first, end = window.head, self._end(max(member.last for member in members))
        while window.head < end and window.head - first < limit:
            oldest = window.head - self.capacity  # what its slot holds now
            if window.head % self.capacity in window.busy or not self._may_drop(window, oldest):
                break
            window.head += 1
            window.drop_before(oldest + 1)
        return first, window.head - first

    def _end(self, asked: int) -> int:
        """Up to where to fill when everything before ``asked`` was asked for."""
        end = asked + self._ahead
        if self._epoch is None:
            return end
        epoch_end = -(-asked // self._epoch) * self._epoch
        return min(end, max(asked, epoch_end + self._ahead_of_epoch))

    def _may_drop(self, window: _Window, position: int) -> bool:
        """Whether no member needs it; those that are late are detached where another one waits for the slot."""
        in_need = [member for member in self._of(window) if member.first <= position]
        if not in_need:
            return True
        is_wanted = any(member.waits and member.last > window.head for member in self._of(window))
        if not is_wanted or any(member.is_waited_for or member.waits for member in in_need):
            return False
        for member in in_need:
            member.window = None
        return True

    def filled(self, window: int, first: int, count: int) -> list[Answer]:
        """A worker has written, or could not decode, these positions."""
        found = self._windows[window]
        for position in range(first, first + count):
            if found.busy.get(position % self.capacity) == position:
                del found.busy[position % self.capacity]
                found.settle(position)
        return self._answer_ready(found)

    def lost(self, window: int, first: int, count: int, *, is_blamed: bool = True) -> list[Answer]:
        """The worker that had these positions is gone: they are filled again, or have failed.

        Not ``is_blamed``: it had not begun with them, so that their tries do not count.
        """
        found = self._windows[window]
        for position in range(first, first + count):
            if found.busy.get(position % self.capacity) != position:
                continue
            del found.busy[position % self.capacity]
            if not found.solid <= position < found.head or position in found.done:
                continue
            found.tries[position] = found.tries.get(position, 0) + is_blamed
            if found.tries[position] >= FILL_TRIES:
                found.settle(position)
            else:
                found.again.append(position)
        found.again.sort()
        return self._answer_ready(found)

    # ── answering ─────────────────────────────────────────────────────────────────────────────
    def _answer_ready(self, window: _Window) -> list[Answer]:
        return self._answered(
            number
            for number, member in self._members.items()
            if member.waits and member.window == window.number and member.last <= window.solid
        )

    def _answered(self, numbers: Iterable[int]) -> list[Answer]:
        answers = []
        for number in list(numbers):
            member = self._members[number]
            if member.waits:
                member.waits = False
                answers.append(Answer(member=number, window=member.window))
        return answers

    def check(self) -> None:
        """AssertionError when a rule is broken; tests call it after every step."""
        for window in self._windows:
            assert window.low <= window.solid <= window.head
            assert window.head - window.low <= self.capacity
            assert all(window.solid < position < window.head for position in window.done)
            assert all(position % self.capacity == slot for slot, position in window.busy.items())
            for member in self._of(window):
                assert window.low <= member.first <= window.head
        for member in self._members.values():
            assert not member.waits or member.window is not None


def _urgency(used: tuple[_Window, list[_Member]]) -> tuple[bool, int]:
    """Windows that a member waits for come first, then those with the least filled ahead."""
    window, members = used
    waits = any(member.waits for member in members)
    return not waits, window.head - max(member.last for member in members)
