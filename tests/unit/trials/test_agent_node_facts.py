"""What the agent says of its machine: whether a trial could be started there."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from trials.agent import node_facts
from trials.agent.home import Home
from trials.agent.node_facts import FactsOfNode
from trials.wire.messages import Message
from trials.wire.nodes import NodeChanged, NodeFacts

MIB = 1 << 20
SOON_S = 10.0  # for what happens at once, on a machine that is busy


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.agent.mkdir(parents=True, exist_ok=True)
    return made


def trouble(home: Home, free: int, size: int) -> str:
    return FactsOfNode(home, room=lambda _: (free, size)).now().trouble


@pytest.mark.parametrize(("free", "size"), [(64 * MIB, 1 << 40), (2 * MIB, 32 * MIB), (23 * MIB, 24 * MIB)])
def test_a_disk_with_room_is_no_trouble(home: Home, free: int, size: int) -> None:
    assert trouble(home, free, size) == ""


@pytest.mark.parametrize(
    ("free", "size", "told"),
    [
        (64 * MIB - 1, 1 << 40, "64 MiB are needed"),
        (2 * MIB - 1, 32 * MIB, "2 MiB are needed"),
        (0, MIB, "0 MiB are free"),
    ],
)
def test_a_disk_without_room_is_said_with_what_is_needed(home: Home, free: int, size: int, told: str) -> None:
    found = trouble(home, free, size)
    assert told in found
    assert found.endswith("make room there")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_quota_or_a_disk_without_inodes_is_no_question_of_rights(
    home: Home, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse_writing(monkeypatch, number)
    found = trouble(home, 1 << 40, 1 << 41)
    assert os.strerror(number) in found
    assert "make room" in found
    assert "right" not in found


def test_a_home_that_cannot_be_written_is_a_question_of_rights(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_writing(monkeypatch, errno.EACCES)
    assert "give its user the right to" in trouble(home, 1 << 40, 1 << 41)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_machine_without_descriptors_to_spare_is_no_question_of_rights(
    home: Home, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    refuse_writing(monkeypatch, number)
    found = trouble(home, 1 << 40, 1 << 41)
    assert found.endswith("have used up what this user or machine may have; it goes on once some is free again")
    assert os.strerror(number) in found
    assert "right" not in found


def test_a_disk_that_takes_no_writes_is_no_question_of_rights(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_writing(monkeypatch, errno.EROFS)
    found = trouble(home, 1 << 40, 1 << 41)
    assert "mend that, or start it with another --home" in found
    assert "right" not in found


def refuse_writing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", refused)


def test_what_changes_is_news_and_what_does_not_is_none(home: Home) -> None:
    room = [(0, 1 << 40)]
    facts = FactsOfNode(home, room=lambda _: room[0])
    assert facts.taken_as_told().trouble
    assert facts.news(facts.now()) is None
    room[0] = (1 << 30, 1 << 40)
    news = facts.news(facts.now())
    assert news is not None
    assert (news.trouble, news.free_bytes) == ("", 1 << 30)


@pytest.mark.parametrize(("by_s", "is_told"), [(0.0, False), (0.5, False), (3_600.0, True), (-3_600.0, True)])
def test_a_clock_that_was_set_is_told_at_once(by_s: float, is_told: bool, home: Home) -> None:
    facts = FactsOfNode(home, room=lambda _: (1 << 30, 1 << 40))
    told = facts.taken_as_told()
    passed_s = time.monotonic() - facts._told_at

    news = facts.news(replace(told, clock=told.clock + passed_s + by_s))

    assert (news is not None) is is_told
    if news is not None:
        assert facts.news(news) is None, "once"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("on", [True, False])
def test_an_order_that_the_home_cannot_hold_is_true_and_is_kept_once_it_can_be(
    home: Home, monkeypatch: pytest.MonkeyPatch, on: bool, number: int
) -> None:
    facts = FactsOfNode(home)
    facts.drain(on=not on)
    with monkeypatch.context() as patched:
        refuse_keeping(patched, number)
        assert facts.drain(on=on).drained is on
        assert facts.now().drained is on
        asyncio.run(look_once(facts, patched))
        assert facts.now().drained is on
    assert FactsOfNode(home).now().drained is not on

    asyncio.run(look_once(facts, monkeypatch))

    assert facts.now().drained is on
    assert FactsOfNode(home).now().drained is on


class Slow(FactsOfNode):
    """A look that was made ``stalls`` is not heard of before ``may_end`` is set."""

    stalls = False

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.looked, self.may_end = threading.Event(), threading.Event()

    def now(self) -> NodeFacts:
        found = super().now()
        if self.stalls and threading.current_thread() is not threading.main_thread():
            self.looked.set()
            self.may_end.wait(SOON_S)
        return found


def test_a_look_from_before_an_order_does_not_undo_it(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "LOOK_S", 0.0)
    monkeypatch.setattr(node_facts, "TOLD_S", 0.0)
    facts, told = Slow(home), list[NodeFacts]()

    async def order_while_it_looks() -> None:
        heard = asyncio.Event()

        async def send(message: Message) -> None:
            assert isinstance(message, NodeChanged)
            told.append(message.node)
            heard.set()

        facts.stalls = True
        looking = asyncio.ensure_future(facts.keep_told(send))
        await asyncio.to_thread(facts.looked.wait, SOON_S)
        await send(NodeChanged(node=facts.drain(on=True)))
        heard.clear()
        facts.stalls = False
        facts.may_end.set()
        async with asyncio.timeout(SOON_S):
            await heard.wait()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

    asyncio.run(order_while_it_looks())

    assert [node.drained for node in told] == [True] * len(told)


def refuse_keeping(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(node_facts, "write_atomically", refused)
    monkeypatch.setattr(Path, "unlink", refused)


async def look_once(facts: FactsOfNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an agent does every few seconds, with all that is to be told."""
    told = asyncio.Event()

    async def send(_: Message) -> None:
        told.set()

    monkeypatch.setattr(node_facts, "LOOK_S", 0.0)
    monkeypatch.setattr(node_facts, "TOLD_S", 0.0)
    looking = asyncio.ensure_future(facts.keep_told(send))
    async with asyncio.timeout(SOON_S):
        await told.wait()
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
