"""Commits that do not return: said once in the log, and told to those who would wait."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future

import pytest

from tuner_service.domain.errors import ConflictError, UnavailableError
from tuner_service.service.hanging_commits import HANGS_S, CommitTimer, Outcomes


def a_command() -> Future[None]:
    """As the runner has it: nobody can cancel it."""
    command: Future[None] = Future()
    command.set_running_or_notify_cancel()
    return command


class Commit:
    """Hangs while ``trouble`` is a text; how often it was looked at stands in ``looks``."""

    def __init__(self) -> None:
        self.trouble, self.looks = "", 0

    def hangs(self) -> str:
        self.looks += 1
        return self.trouble


def test_a_commit_that_hangs_is_logged_once_and_again_when_it_returns(caplog: pytest.LogCaptureFixture) -> None:
    at = [100.0]
    timer = CommitTimer(lambda: at[0])
    with caplog.at_level(logging.WARNING):
        with timer.running():
            assert timer.trouble() == ""
            at[0] += HANGS_S + 1
            assert "for 11 s" in timer.trouble()
            at[0] += 5
            assert "for 16 s" in timer.trouble()
        assert timer.trouble() == ""
        with timer.running():
            at[0] += 1

    assert [record.message for record in caplog.records] == ["commit_hangs", "commit_returned"]
    assert [vars(record)["seconds"] for record in caplog.records] == [HANGS_S + 1, HANGS_S + 6]


def test_a_sender_whose_commit_hangs_is_told_that_the_outcome_is_not_known() -> None:
    async def scene() -> None:
        commit, command = Commit(), a_command()
        outcomes = Outcomes(commit.hangs, look_s=0)
        waits = asyncio.ensure_future(outcomes.wait(command))
        while commit.looks < 3:
            await asyncio.sleep(0)
        assert not waits.done(), "it may be slow"
        commit.trouble = "a commit hangs"
        with pytest.raises(UnavailableError, match=r"not known yet: a commit hangs.*Idempotency-Key"):
            await waits

        with pytest.raises(UnavailableError, match="an earlier request is not known yet: a commit hangs"):
            await outcomes.settle()
        commit.trouble = ""
        settled = asyncio.ensure_future(outcomes.settle())
        await asyncio.sleep(0)
        assert not settled.done(), "a key may be in the command that is on its way"
        command.set_result(None)
        await settled

    asyncio.run(scene())


def test_an_outcome_that_is_known_is_the_senders_and_nobody_looks() -> None:
    async def scene() -> None:
        commit, command = Commit(), a_command()
        outcomes = Outcomes(commit.hangs)
        waits = asyncio.ensure_future(outcomes.wait(command))
        await asyncio.sleep(0)
        command.set_exception(ConflictError("it has ended"))
        with pytest.raises(ConflictError, match="it has ended"):
            await waits
        await outcomes.settle()
        assert commit.looks == 0

    asyncio.run(scene())


def test_who_goes_away_takes_nothing_back_and_is_waited_for_by_who_repeats_it() -> None:
    async def scene() -> None:
        commit, command = Commit(), a_command()
        outcomes = Outcomes(commit.hangs, look_s=0)
        waits = asyncio.ensure_future(outcomes.wait(command))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.wait([waits])
        assert waits.cancelled()
        assert not command.cancelled()
        settled = asyncio.ensure_future(outcomes.settle())
        await asyncio.sleep(0)
        assert not settled.done()
        command.set_exception(ConflictError("nobody reads this"))
        await settled

    asyncio.run(scene())


def test_who_repeats_a_request_waits_for_none_that_came_later() -> None:
    async def scene() -> None:
        commit, commands = Commit(), [a_command(), a_command()]
        outcomes = Outcomes(commit.hangs, look_s=0)

        async def leave(command: Future[None]) -> None:
            waits = asyncio.ensure_future(outcomes.wait(command))
            await asyncio.sleep(0)
            waits.cancel()
            await asyncio.wait([waits])

        await leave(commands[0])
        settled = asyncio.ensure_future(outcomes.settle())
        await asyncio.sleep(0)
        await leave(commands[1])
        commands[0].set_result(None)
        await settled
        commands[1].set_result(None)

    asyncio.run(scene())
