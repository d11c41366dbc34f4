"""The cache of answers between two commits: equal to those that are built, never older than the last commit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from starlette.types import Receive, Scope, Send

from tests.api_service import ADMIN_TOKEN, AGENT_TOKEN, READ_ONLY_TOKEN, ApiClient, ApiService, an_api_service
from tests.builders import START, a_checkpoint, a_metric, a_trial, an_attempt
from tests.memory_store import MemoryQueries
from tests.shared_answers import Builder, begun, request, run, said
from tuner_service.api.app import ROUTERS, create_app
from tuner_service.api.cached_reads import CachedReads
from tuner_service.api.response_cache import ANSWER_BYTES, ANSWERS_LIMIT, CACHE_BYTES, MAX_AGE_S, ResponseCache
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import TrialStatus

LIST = "/api/v1/experiments"


@dataclass
class Database:
    """What an answer is built from. ``unknown``: nobody can tell whether something was committed."""

    state: int = 1
    unknown: bool = False
    version_waits: bool = False
    asked: int = 0

    def version(self) -> int | None:
        self.asked += 1
        return None if self.unknown else self.state


@dataclass(frozen=True)
class AskedOfTheBuilder:
    """A read that a route declares, which only the application can answer."""

    by_role: bool
    route: str

    async def answer(self, scope: Scope, receive: Receive) -> None:
        del scope, receive


DECLARED = CachedReads(ROUTERS)


def find(path: str) -> AskedOfTheBuilder | None:
    found = DECLARED.find(path)
    return None if found is None else AskedOfTheBuilder(found.by_role, found.route)


@dataclass
class World:
    database: Database = field(default_factory=Database)
    now: float = 100.0

    def __post_init__(self) -> None:
        state = self.database
        self.builder = Builder(text=lambda path: f"{path} {state.state}", tag=lambda: str(state.state))
        self.kept = ResponseCache(
            self.builder,
            self.database,  # type: ignore[arg-type]  # it is asked for nothing else
            elapsed=lambda: self.now,
            find=find,
        )
        self._known = an_api_service().client.app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.kept({**scope, "app": self._known}, receive, send)

    async def ask(self, path: str = LIST, *, token: str = ADMIN_TOKEN, method: str = "GET", **more: str) -> str:
        return said(await request(self, method, path, token=token, **more))


@pytest.fixture
def world() -> World:
    return World()


# ── what is the same, and what is not ───────────────────────────────────────────────────────────
def test_equal_reads_between_two_commits_are_built_once(world: World) -> None:
    answers = [run(world.ask()) for _ in range(5)]

    assert answers == [f"{LIST} 1"] * 5
    assert world.builder.built == 1


def test_for_a_stranger_nobody_asks_the_database(world: World) -> None:
    """Of a server that hangs each question keeps a thread."""
    world.database.version_waits = True
    for token in ("unknown", AGENT_TOKEN):
        run(world.ask(token=token))

    assert world.database.asked == 0
    run(world.ask())
    assert world.database.asked == 1


def test_a_read_after_a_commit_sees_it(world: World) -> None:
    run(world.ask())
    world.database.state = 2

    assert run(world.ask()) == f"{LIST} 2"


def test_a_read_that_begins_after_a_commit_is_not_given_what_an_earlier_one_is_building(world: World) -> None:
    async def play() -> tuple[str, str, str]:
        world.builder.held = asyncio.Event()
        early = asyncio.create_task(world.ask())
        await begun(early)
        world.database.state = 2
        late = asyncio.create_task(world.ask())
        await begun(early, late)
        world.builder.held.set()
        return await early, await late, await world.ask()

    assert run(play()) == (f"{LIST} 1", f"{LIST} 2", f"{LIST} 2")


def test_reads_at_the_same_moment_share_one_building(world: World) -> None:
    async def play() -> list[str]:
        world.builder.held = asyncio.Event()
        tasks = [asyncio.create_task(world.ask()) for _ in range(10)]
        await begun(*tasks)
        world.builder.held.set()
        return await asyncio.gather(*tasks)

    assert run(play()) == [f"{LIST} 1"] * 10
    assert world.builder.built == 1


def test_reads_that_come_while_an_older_answer_is_built_share_the_next_one_which_sees_all_of_them(world: World) -> None:
    async def play() -> list[str]:
        held = world.builder.held = asyncio.Event()
        tasks = [asyncio.create_task(world.ask())]
        await begun(*tasks)
        for state in range(2, 12):  # something is committed before each of them
            world.database.state = state
            tasks.append(asyncio.create_task(world.ask()))
            await begun(*tasks)
        assert world.builder.built == 1
        held.set()
        return await asyncio.gather(*tasks)

    assert run(play()) == [f"{LIST} 1"] + [f"{LIST} 11"] * 10
    assert world.builder.built == 2


def test_a_read_that_comes_while_the_next_answer_is_built_waits_for_the_one_after_that(world: World) -> None:
    async def play() -> list[str]:
        first, second = asyncio.Event(), asyncio.Event()
        world.builder.held = first
        tasks = [asyncio.create_task(world.ask())]
        await begun(*tasks)
        world.database.state = 2
        tasks.append(asyncio.create_task(world.ask()))
        await begun(*tasks)
        world.builder.held = second
        first.set()
        answers = [await tasks.pop(0)]
        await begun(*tasks)
        world.database.state = 3
        tasks += [asyncio.create_task(world.ask()) for _ in range(3)]
        await begun(*tasks)
        second.set()
        return answers + await asyncio.gather(*tasks)

    assert run(play()) == [f"{LIST} {state}" for state in (1, 2, 3, 3, 3)]
    assert world.builder.built == 3


def test_whoever_waits_for_an_answer_whose_reader_was_ended_builds_one(world: World) -> None:
    async def play() -> list[str]:
        world.builder.held = asyncio.Event()
        first = asyncio.create_task(world.ask())
        await begun(first)
        world.database.state = 2
        ended = asyncio.create_task(world.ask())
        await begun(first, ended)
        waiting = asyncio.create_task(world.ask())
        await begun(first, ended, waiting)
        ended.cancel()
        await asyncio.wait({ended})
        world.builder.held.set()
        return await asyncio.gather(first, waiting, world.ask())

    assert run(play()) == [f"{LIST} 1", f"{LIST} 2", f"{LIST} 2"]


def test_where_the_version_is_not_known_any_more_the_next_answer_is_kept_for_nobody(world: World) -> None:
    async def play() -> list[str]:
        world.builder.held = asyncio.Event()
        tasks = [asyncio.create_task(world.ask())]
        await begun(*tasks)
        world.database.state = 2
        tasks.append(asyncio.create_task(world.ask()))
        await begun(*tasks)
        world.database.unknown, world.database.state = True, 3
        world.builder.held.set()
        answers = await asyncio.gather(*tasks)
        world.database.unknown, world.database.state = False, 4
        return [*answers, await world.ask()]

    assert run(play()) == [f"{LIST} {state}" for state in (1, 3, 4)]


def test_what_counts_by_itself_is_never_older_than_the_bound(world: World) -> None:
    async def play() -> int:
        await world.ask()
        world.now += 2 * MAX_AGE_S
        await world.ask()
        world.builder.held = asyncio.Event()
        slow = asyncio.create_task(world.ask("/api/v1/experiments/e"))
        await begun(slow)
        world.now += 2 * MAX_AGE_S
        late = asyncio.create_task(world.ask("/api/v1/experiments/e"))
        await begun(slow, late)
        world.builder.held.set()
        await asyncio.gather(slow, late)
        return world.builder.built

    assert run(play()) == 4


def test_another_query_is_another_read(world: World) -> None:
    for query in ("", "?limit=1", "?limit=2", "?limit=1"):
        run(world.ask(LIST + query))

    assert world.builder.built == 3


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", LIST), ("GET", f"{LIST}/e?wait_for=ended"), ("GET", "/api/v1/trials/e/1/logs"), ("GET", "/healthz")],
)
def test_everything_else_passes_as_it_came(world: World, method: str, path: str) -> None:
    for _ in range(2):
        run(world.ask(path, method=method))

    assert world.builder.built == 2


def test_where_nobody_can_tell_what_was_committed_nothing_is_kept(world: World) -> None:
    world.database.unknown = True
    for _ in range(2):
        run(world.ask())

    assert world.builder.built == 2


# ── who asks ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("token", ["", "wrong", AGENT_TOKEN])
def test_without_a_token_that_may_read_nothing_is_given_away(token: str) -> None:
    api = an_api_service()
    api.create()
    assert api.client.get(LIST).status_code == 200

    assert api.as_role(token).get(LIST).status_code in {401, 403}


def test_both_reading_roles_are_given_the_same_bytes(world: World) -> None:
    assert run(world.ask()) == run(world.ask(token=READ_ONLY_TOKEN))
    assert world.builder.built == 1


def test_a_client_that_has_the_answer_is_told_so(world: World) -> None:
    assert run(world.ask(if_none_match='"1"')) == "304"
    assert run(world.ask(if_none_match='"0", "1"')) == "304"
    assert run(world.ask(if_none_match='"0"')) == f"{LIST} 1"
    world.database.state = 2
    assert run(world.ask(if_none_match='"1"')) == f"{LIST} 2"
    assert world.builder.built == 2


# ── failures and bounds ─────────────────────────────────────────────────────────────────────────
def test_a_refusal_is_not_kept_and_those_that_waited_for_it_ask_themselves(world: World) -> None:
    world.builder.status = 404

    async def play() -> list[str]:
        world.builder.held = asyncio.Event()
        tasks = [asyncio.create_task(world.ask()) for _ in range(3)]
        await begun(*tasks)
        world.builder.held.set()
        return [*await asyncio.gather(*tasks), await world.ask()]

    assert run(play()) == ["404"] * 4
    assert world.builder.built == 4


def test_a_long_answer_is_sent_and_not_kept(world: World) -> None:
    world.builder.length = ANSWER_BYTES + 1
    for _ in range(2):
        assert run(world.ask()) == f"{LIST} 1"

    assert world.builder.built == 2


def test_the_bytes_of_all_answers_together_are_bounded(world: World) -> None:
    world.builder.length = ANSWER_BYTES
    fitting = CACHE_BYTES // ANSWER_BYTES
    for number in [*range(fitting + 1), *range(fitting)]:
        run(world.ask(f"{LIST}/{number}"))
    assert world.builder.built == fitting + 1

    run(world.ask(f"{LIST}/{fitting}"))
    assert world.builder.built == fitting + 2
    world.now += 2 * MAX_AGE_S
    for _ in range(2):
        run(world.ask(f"{LIST}/1"))
    assert world.builder.built == fitting + 3


def test_the_number_of_answers_is_bounded(world: World) -> None:
    async def play() -> None:
        for number in range(ANSWERS_LIMIT + 1):
            await world.ask(f"{LIST}/{number}")
        await world.ask(f"{LIST}/{ANSWERS_LIMIT}")

    run(play())

    assert world.builder.built == ANSWERS_LIMIT + 2


# ── the same as without ─────────────────────────────────────────────────────────────────────────
class UnknownVersion(MemoryQueries):
    def version(self) -> int | None:  # type: ignore[override]  # nobody can tell
        return None


@pytest.fixture
def api() -> ApiService:
    """An experiment with a finished and a running trial."""
    api = an_api_service()
    experiment = api.create()
    trials = [
        a_trial(experiment_id=experiment, number=1, status=TrialStatus.SUCCEEDED, parameters={"lr": 0.01}, value=0.9),
        a_trial(experiment_id=experiment, number=2, parameters={"lr": 0.02}, started_at=START),
    ]
    attempt = an_attempt(experiment_id=experiment, number=2)
    metrics = [a_metric(experiment_id=experiment, number=1, sequence=n, step=n) for n in range(1, 4)]
    api.store.commit(
        Changes(
            trials={(experiment, t.number): t for t in trials},
            attempts={attempt.key: attempt},
            metrics=metrics,
            checkpoints=[a_checkpoint(experiment_id=experiment, number=1)],
        )
    )
    return api


def paths_of(experiment: str) -> list[str]:
    one, trial = f"{LIST}/{experiment}", f"/api/v1/trials/{experiment}/1"
    ends = ("", "/trials", "/trials?limit=1", "/table", "/best", "/pareto", "/slices", "/curves", "/journal")
    odd = [f"/api/v1/trials/{experiment}/{number}" for number in ("0", "00001", "3", "9" * 10, "9" * 20, "one")]
    odd += [f"{LIST}/{'x' * 65}", f"{LIST}/a%2Fb", f"{LIST}/", f"{LIST}/é/trials", f"{one}?limit=0", f"{LIST}?limit=0"]
    return [LIST, *(one + end for end in ends), trial, f"{trial}/metrics", f"{trial}/checkpoints", f"{one}x", *odd]


def test_kept_answers_are_those_that_are_built(api: ApiService) -> None:
    queries = UnknownVersion.__new__(UnknownVersion)
    queries.__dict__ |= vars(api.queries)
    experiments = replace(api.services.experiments, queries=queries)
    never = create_app(replace(api.services, queries=queries, experiments=experiments))
    plain = ApiClient(app=never, headers=api.client.headers)
    (experiment,) = (view["id"] for view in plain.get(LIST).json()["items"])

    for path in paths_of(experiment):
        built, first, again = plain.get(path), api.client.get(path), api.client.get(path)
        for answer in (first, again):
            assert answer.status_code == built.status_code, path
            assert answer.content == built.content, path
            assert answer.headers == built.headers, path


def test_whoever_was_told_that_something_is_done_reads_it(api: ApiService) -> None:
    (experiment,) = (view["id"] for view in api.client.get(LIST).json()["items"])
    one = f"{LIST}/{experiment}"

    for verb, status in (("pause", "paused"), ("resume", "running"), ("pause", "paused")):
        api.client.get(one)
        api.client.post(f"{one}/{verb}", json={})
        assert api.client.get(one).json()["status"] == status
        assert api.client.get(LIST).json()["items"][0]["status"] == status
