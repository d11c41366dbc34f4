"""Answers for all who were told the same: shared by readers of one event, and never older than what was told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, READ_ONLY_TOKEN, an_api_service
from tests.builders import StillClock
from tests.memory_store import MemoryStore
from tests.shared_answers import Builder, begun, request, run, said
from tuner_service.api.answers_by_event import ANSWERS_LIMIT, KEPT_BYTES, MAX_AGE_S, AnswersByEvent
from tuner_service.api.app import ROUTERS
from tuner_service.api.cached_reads import BY_EVENT, CachedReads
from tuner_service.api.response_cache import ANSWER_BYTES
from tuner_service.dispatcher.changes import Changes
from tuner_service.service.events import EventHub

LIST = "/api/v1/experiments"
ONE = f"{LIST}/mnist"
TABLE = f"{ONE}/table"


@dataclass
class World:
    now: float = 100.0
    sequence: int = 0
    hub: EventHub = field(
        default_factory=lambda: EventHub(queries=MemoryStore().queries, lineage="memory", clock=StillClock())
    )

    def __post_init__(self) -> None:
        self.builder = Builder(text=lambda _: str(self.hub.newest), tag=lambda: "tag")
        self.answers = AnswersByEvent(
            self.builder, self.hub, find=CachedReads(ROUTERS, BY_EVENT).find, elapsed=lambda: self.now
        )
        self._known = an_api_service().client.app

    def commit(self) -> str:
        """The id of the event that tells of it."""
        self.sequence += 1
        self.hub.committed(Changes(), self.sequence)
        return self.hub.event_id(self.sequence)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.answers({**scope, "app": self._known}, receive, send)

    async def get(
        self, path: str = TABLE, seen: str = "", *, token: str = ADMIN_TOKEN, method: str = "GET", **more: str
    ) -> httpx.Response:
        return await request(self, method, path, token=token, last_event_id=seen, **more)

    async def ask(self, path: str = TABLE, seen: str = "", **more: str) -> str:
        return said(await self.get(path, seen, **more))


@pytest.fixture
def world() -> World:
    return World()


# ── what is shared ──────────────────────────────────────────────────────────────────────────────
def test_all_who_were_told_the_same_are_given_one_answer_whatever_is_committed_meanwhile(world: World) -> None:
    told = world.commit()
    answers = []
    for _ in range(5):
        answers.append(run(world.ask(seen=told)))
        world.commit()
    assert (answers, world.builder.built) == (["1"] * 5, 1)


def test_whoever_was_told_more_is_given_what_has_it(world: World) -> None:
    first = world.commit()
    run(world.ask(seen=first))
    second = world.commit()
    assert run(world.ask(seen=second)) == "2"
    assert run(world.ask(seen=first)) == "2", "what has more is good for those, too"
    assert world.builder.built == 2


def test_a_read_while_an_older_answer_is_built_has_one_of_its_own_and_shares_that(world: World) -> None:
    async def story() -> list[str]:
        world.builder.held = asyncio.Event()
        old = world.commit()
        first = [asyncio.create_task(world.ask(seen=old)) for _ in range(3)]
        await begun(*first)
        new = world.commit()
        then = [asyncio.create_task(world.ask(seen=new)) for _ in range(3)]
        await begun(*first, *then)
        world.builder.held.set()
        return [await task for task in [*then, *first]]

    assert run(story()) == ["2", "2", "2", "1", "1", "1"]
    assert world.builder.built == 2
    assert run(world.ask(seen=world.hub.event_id(2))) == "2", "the newer one is kept, whichever came last"


def test_each_query_and_each_encoding_is_a_read_of_its_own(world: World) -> None:
    told = world.commit()
    run(world.ask(seen=told, accept_encoding="gzip"))
    run(world.ask(seen=told, accept_encoding="identity"))
    run(world.ask(f"{TABLE}?limit=1", told, accept_encoding="gzip"))
    run(world.ask(f"{TABLE}?limit=1", told, accept_encoding="gzip"))
    assert world.builder.built == 3


def test_what_depends_on_the_role_is_shared_within_a_role(world: World) -> None:
    told = world.commit()
    for path in (ONE, TABLE):
        for token in (ADMIN_TOKEN, READ_ONLY_TOKEN) * 2:
            run(world.ask(path, told, token=token))
    assert world.builder.built == 2 + 1


def test_a_client_that_has_the_answer_is_told_so(world: World) -> None:
    told = world.commit()
    assert run(world.ask(seen=told, if_none_match='"tag"')) == "304"
    assert run(world.ask(seen=told)) == "1"
    assert world.builder.built == 1


# ── what is not ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("seen", ["", "1-another", "99-memory", "x", "-1-memory"])
def test_without_an_event_that_is_known_here_each_read_is_built(world: World, seen: str) -> None:
    world.commit()
    run(world.ask(seen=world.hub.event_id(1)))
    world.commit()
    assert run(world.ask(seen=seen)) == "2"


def test_what_no_commit_changes_is_never_older_than_the_bound(world: World) -> None:
    told = world.commit()
    run(world.ask(seen=told))
    world.now += MAX_AGE_S
    run(world.ask(seen=told))
    assert world.builder.built == 1
    world.now += 0.01
    run(world.ask(seen=told))
    assert world.builder.built == 2


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", f"{ONE}/pause"), ("GET", "/api/v1/experiments"), ("GET", f"{ONE}?wait_for=ended"), ("GET", "/healthz")],
)
def test_everything_else_passes_as_it_came(world: World, method: str, path: str) -> None:
    told = world.commit()
    for _ in range(2):
        run(world.get(path, told, method=method))
    assert world.builder.built == 2


@pytest.mark.parametrize("token", ["unknown", AGENT_TOKEN])
def test_without_a_token_that_may_read_nothing_is_given_away(world: World, token: str) -> None:
    told = world.commit()
    run(world.ask(seen=told))
    world.builder.status = 403
    assert run(world.ask(seen=told, token=token)) == "403"


def test_a_refusal_is_not_kept_and_those_that_waited_for_it_ask_themselves(world: World) -> None:
    async def story() -> list[str]:
        world.builder.held, world.builder.status = asyncio.Event(), 404
        told = world.commit()
        tasks = [asyncio.create_task(world.ask(seen=told)) for _ in range(3)]
        await begun(*tasks)
        world.builder.held.set()
        return [await task for task in tasks]

    assert run(story()) == ["404"] * 3
    assert world.builder.built == 3


def test_whoever_waits_for_an_answer_whose_reader_was_ended_asks_themselves(world: World) -> None:
    async def story() -> str:
        world.builder.held = asyncio.Event()
        told = world.commit()
        first = asyncio.create_task(world.ask(seen=told))
        await begun(first)
        second = asyncio.create_task(world.ask(seen=told))
        await begun(second)
        first.cancel()
        world.builder.held.set()
        return await second

    assert run(story()) == "1"


# ── bounds ──────────────────────────────────────────────────────────────────────────────────────
def test_answers_are_bounded_in_number_and_in_bytes(world: World) -> None:
    told = world.commit()
    for limit in range(1, ANSWERS_LIMIT + 2):
        run(world.ask(f"{TABLE}?limit={limit}", told))
    built = world.builder.built
    run(world.ask(f"{TABLE}?limit={ANSWERS_LIMIT + 1}", told))
    assert world.builder.built == built
    run(world.ask(f"{TABLE}?limit=1", told))
    assert world.builder.built == built + 1, "the one used longest ago was forgotten"
    world.builder.length = ANSWER_BYTES
    for limit in range(1, KEPT_BYTES // ANSWER_BYTES + 2):
        run(world.ask(f"{TABLE}?digits={limit}", told))
    built = world.builder.built
    run(world.ask(f"{TABLE}?digits=1", told))
    assert world.builder.built == built + 1
    world.builder.length = ANSWER_BYTES + 1
    for _ in range(2):
        run(world.ask(f"{ONE}/best", told))
    assert world.builder.built == built + 3


# ── what an answer says of itself ───────────────────────────────────────────────────────────────
def test_an_answer_names_the_event_up_to_which_it_has_everything(world: World) -> None:
    told = world.commit()
    assert run(world.get(seen=told)).headers["x-tuner-event"] == told
    later = world.commit()
    assert run(world.get(seen=told)).headers["x-tuner-event"] == told
    assert run(world.get()).headers["x-tuner-event"] == later
    assert run(world.get("/api/v1/experiments")).headers["x-tuner-event"] == later


def test_whoever_is_refused_is_told_nothing_of_the_database(world: World) -> None:
    told = world.commit()
    assert "x-tuner-event" not in run(world.get("/healthz")).headers
    world.builder.status = 401
    for path in (TABLE, "/api/v1/experiments"):
        for token in ("unknown", ADMIN_TOKEN):
            assert "x-tuner-event" not in run(world.get(path, told, token=token)).headers


def test_the_answer_to_a_change_names_an_event_that_has_it(world: World) -> None:
    async def story() -> str:
        world.builder.held = asyncio.Event()
        change = asyncio.create_task(world.get(f"{ONE}/pause", method="POST"))
        await begun(change)
        done = world.commit()
        world.builder.held.set()
        assert (await change).headers["x-tuner-event"] == done
        return done

    run(story())


def test_whoever_names_what_the_answer_to_a_change_named_reads_the_change() -> None:
    api = an_api_service()
    one = f"{LIST}/{api.create()}"
    told = api.client.get(one).headers["x-tuner-event"]
    for verb, status in (("pause", "paused"), ("resume", "running"), ("pause", "paused")):
        assert api.client.get(one, headers={"last-event-id": told}).status_code == 200
        told = api.client.post(f"{one}/{verb}", json={}).headers["x-tuner-event"]
        assert api.client.get(one, headers={"last-event-id": told}).json()["status"] == status
        assert api.client.get(one, headers={"last-event-id": told}).json()["status"] == status


def test_shared_answers_are_those_that_are_built() -> None:
    api = an_api_service()
    one = f"{LIST}/{api.create()}"
    told = api.client.get(one).headers["x-tuner-event"]
    ends = ("", "/table", "/table?limit=1", "/table?columns=nothing", "/table?unknown=1", "/best", "/pareto", "/slices")
    for end in (
        *ends,
        "/failures",
        "/importance",
        "/importance?metric=none",
        "/curves",
        "/curves?limit=0",
        "x",
        "x/best",
    ):
        built = api.client.get(one + end)
        for _ in range(2):
            answer = api.client.get(one + end, headers={"last-event-id": told})
            assert (answer.status_code, answer.content) == (built.status_code, built.content), end
            assert answer.headers == built.headers, end
