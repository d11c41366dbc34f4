"""Analyses are computed once for equal requests, a few at a time, and not at all for clients that have gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request

from tuner_service.api.single_flight import AT_A_TIME, CLIENT_GONE, KEPT, KEPT_BYTES, WAITING_LIMIT, SingleFlight
from tuner_service.domain.errors import UnavailableError
from tuner_service.service.questions import NotWantedError, Reply


class Client:
    """A request whose client can go."""

    def __init__(self, *, tag: str = "") -> None:
        self._gone = asyncio.Event()
        headers = [(b"if-none-match", tag.encode())] if tag else []
        self.request = Request({"type": "http", "headers": headers}, self._receive)

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._gone.set()


class Work:
    """Counts how often it is done; while ``held`` it waits, and ends where nobody wants it."""

    def __init__(self, *, held: bool = False) -> None:
        self.begun = self.ended_early = 0
        self.may_end = threading.Event()
        if not held:
            self.may_end.set()

    def __call__(self, check: Callable[[], None]) -> Reply:
        self.begun += 1
        while not self.may_end.wait(0.001):
            try:
                check()
            except NotWantedError:
                self.ended_early += 1
                raise
        return Reply(body=b'{"answer":%d}' % self.begun, tag=f'W/"{self.begun}"')


async def until(predicate: Callable[[], object]) -> None:
    while not predicate():  # what is waited for happens in threads
        await asyncio.sleep(0)


def test_of_equal_requests_one_is_computed_and_the_answer_kept_for_its_revision() -> None:
    async def scene() -> None:
        shared, work = SingleFlight(), Work(held=True)
        asked = [
            asyncio.create_task(shared.answer(Client().request, ("best",), revision="1", work=work)) for _ in range(9)
        ]
        await until(lambda: work.begun)
        work.may_end.set()
        answers = await asyncio.gather(*asked)
        assert {answer.body for answer in answers} == {b'{"answer":1}'}
        again = await shared.answer(Client().request, ("best",), revision="1", work=work)
        assert (again.body, work.begun) == (b'{"answer":1}', 1)
        known = Client(tag=again.headers["etag"]).request
        assert (await shared.answer(known, ("best",), revision="1", work=work)).status_code == 304
        later = await shared.answer(Client().request, ("best",), revision="2", work=work)
        assert later.body == b'{"answer":2}'

    asyncio.run(scene())


def test_requests_of_many_revisions_that_wait_for_a_turn_share_work_that_begins_after_the_last_of_them() -> None:
    async def scene() -> None:
        shared, before, works = SingleFlight(), Work(held=True), [Work() for _ in range(9)]
        first = asyncio.create_task(shared.answer(Client().request, ("curves",), revision="0", work=before))
        await until(lambda: before.begun)
        asked = [
            asyncio.create_task(shared.answer(Client().request, ("curves",), revision=str(place), work=work))
            for place, work in enumerate(works, start=1)
        ]
        await asyncio.sleep(0)  # all of them have come
        before.may_end.set()
        answers = await asyncio.gather(first, *asked)
        assert [work.begun for work in works] == [0] * 8 + [1], "that of the newest, which has seen the most"
        assert len({answer.headers["etag"] for answer in answers}) == 1, "each Work counts for itself"
        kept = await shared.answer(Client().request, ("curves",), revision="9", work=Work(held=True))
        assert kept.status_code == 200, "it is kept for the newest of their revisions"
        later = Work()
        await shared.answer(Client().request, ("curves",), revision="10", work=later)
        assert later.begun == 1

    asyncio.run(scene())


def test_what_has_begun_is_shared_by_those_of_the_newest_revision_for_which_it_began() -> None:
    async def scene() -> None:
        shared, before, work = SingleFlight(), Work(held=True), Work(held=True)
        asked = [asyncio.create_task(shared.answer(Client().request, ("other",), revision="0", work=before))]
        await until(lambda: before.begun)
        asked += [
            asyncio.create_task(shared.answer(Client().request, ("curves",), revision=revision, work=work))
            for revision in ("1", "2")
        ]
        await asyncio.sleep(0)
        before.may_end.set()
        await until(lambda: work.begun)
        same, newer = Work(), Work()
        asked.append(asyncio.create_task(shared.answer(Client().request, ("curves",), revision="2", work=same)))
        asked.append(asyncio.create_task(shared.answer(Client().request, ("curves",), revision="3", work=newer)))
        await asyncio.sleep(0)
        work.may_end.set()
        await asyncio.gather(*asked)
        assert (work.begun, same.begun, newer.begun) == (1, 0, 1)

    asyncio.run(scene())


def test_a_waiting_piece_of_work_that_all_have_left_is_not_joined() -> None:
    async def scene() -> None:
        shared, before, left, fresh = SingleFlight(), Work(held=True), Work(), Work()
        first = asyncio.create_task(shared.answer(Client().request, ("other",), revision="0", work=before))
        await until(lambda: before.begun)
        client = Client()
        leaving = asyncio.create_task(shared.answer(client.request, ("curves",), revision="1", work=left))
        await asyncio.sleep(0)
        client.leave()
        assert (await leaving).status_code == CLIENT_GONE
        asked = asyncio.create_task(shared.answer(Client().request, ("curves",), revision="2", work=fresh))
        await asyncio.sleep(0)
        before.may_end.set()
        await first
        assert ((await asked).status_code, left.begun, fresh.begun) == (200, 0, 1)

    asyncio.run(scene())


def test_work_whose_clients_have_all_gone_ends_and_one_that_waits_is_not_begun() -> None:
    async def scene() -> None:
        shared, running, waiting = SingleFlight(), Work(held=True), Work()
        clients = [Client() for _ in range(AT_A_TIME + 1)]
        works = [running] * AT_A_TIME + [waiting]
        asked = [
            asyncio.create_task(shared.answer(client.request, (str(place),), revision="1", work=work))
            for place, (client, work) in enumerate(zip(clients, works, strict=True))
        ]
        await until(lambda: running.begun == AT_A_TIME)
        for client in reversed(clients):
            client.leave()
        assert [answer.status_code for answer in await asyncio.gather(*asked)] == [CLIENT_GONE] * len(clients)
        await until(lambda: running.ended_early == AT_A_TIME)
        fresh = await shared.answer(Client().request, ("fresh",), revision="1", work=Work())
        assert (fresh.status_code, waiting.begun) == (200, 0)

    asyncio.run(scene())


def test_a_client_that_goes_costs_those_who_wait_with_it_nothing() -> None:
    async def scene() -> None:
        shared, work, leaving = SingleFlight(), Work(held=True), Client()
        first = asyncio.create_task(shared.answer(leaving.request, ("best",), revision="1", work=work))
        second = asyncio.create_task(shared.answer(Client().request, ("best",), revision="1", work=work))
        await until(lambda: work.begun)
        leaving.leave()
        assert (await first).status_code == CLIENT_GONE
        work.may_end.set()
        assert (await second).body == b'{"answer":1}'

    asyncio.run(scene())


def test_an_error_reaches_everyone_who_waits_and_is_not_kept() -> None:
    def fails(check: Callable[[], None]) -> Reply:
        check()
        raise UnavailableError("not now")

    async def scene() -> None:
        shared = SingleFlight()
        asked = [shared.answer(Client().request, ("best",), revision="1", work=fails) for _ in range(3)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(one) for one in found] == ["not now"] * 3
        assert (await shared.answer(Client().request, ("best",), revision="1", work=Work())).status_code == 200

    asyncio.run(scene())


def test_without_a_revision_nothing_is_shared_or_kept() -> None:
    async def scene() -> None:
        shared, work = SingleFlight(), Work()
        for count in (1, 2):
            answer = await shared.answer(Client().request, ("curves",), revision=None, work=work)
            assert answer.body == b'{"answer":%d}' % count

    asyncio.run(scene())


def test_there_are_bounds_on_what_waits_and_on_what_is_kept() -> None:
    async def scene() -> None:
        shared, work = SingleFlight(), Work(held=True)
        asked = [
            asyncio.create_task(shared.answer(Client().request, (str(place),), revision="1", work=work))
            for place in range(WAITING_LIMIT)
        ]
        await until(lambda: work.begun == AT_A_TIME)
        with pytest.raises(UnavailableError, match="wait already"):
            await shared.answer(Client().request, ("one more",), revision="1", work=work)
        work.may_end.set()
        await asyncio.gather(*asked)
        for place in range(KEPT + 1):
            await shared.answer(Client().request, ("kept", str(place)), revision="1", work=Work())
        counted = Work()
        await shared.answer(Client().request, ("kept", "0"), revision="1", work=counted)
        await shared.answer(Client().request, ("kept", str(KEPT)), revision="1", work=counted)
        assert counted.begun == 1

    asyncio.run(scene())


def test_long_answers_are_kept_up_to_a_bound_of_bytes() -> None:
    half = Reply(body=b" " * (KEPT_BYTES // 2), tag='W/"1"')
    asked: list[str] = []

    async def scene() -> None:
        shared = SingleFlight()
        for name in ("a", "b", "c", "b", "a"):

            def work(check: Callable[[], None], name: str = name) -> Reply:
                asked.append(name)
                return half

            await shared.answer(Client().request, (name,), revision="1", work=work)

    asyncio.run(scene())
    assert asked == ["a", "b", "c", "a"]
