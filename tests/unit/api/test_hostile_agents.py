"""An agent that says whatever its protocol allows about what it was not given: it reaches nothing of anybody else's."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.api_service import ADMIN_TOKEN, ApiClient, ApiService, DirectRunner, a_body, an_api_service
from trials.wire.attempt import AttemptKey
from trials.wire.checkpoints import CheckpointsWanted
from trials.wire.devices import DevicesChanged, NodeDevice
from trials.wire.encoding import encode
from trials.wire.limits import CHECKPOINT_INLINE_BYTES
from trials.wire.messages import (
    PROTOCOL_VERSION,
    BlobOffered,
    BlobWanted,
    Exited,
    FromAgent,
    Hello,
    LogChunk,
    Message,
    NodeResources,
    NotUnderstood,
    ObservedAttempt,
    Pong,
    Prepared,
    Reports,
    Started,
)
from trials.wire.nodes import NodeChanged, NodeFacts
from trials.wire.outputs import OutputOffered
from trials.wire.records import ExitCause, ExitRecord, MetricRecord, ProcessRecord
from trials.wire.remote_files import DIGEST, LOOK, OFFSET, SIZE
from tuner_service.api import agents
from tuner_service.api.app import create_app
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.items import Queue, Suggested, SuggestionRequested, Taken
from tuner_service.domain.errors import TunerServiceError
from tuner_service.domain.resources import Device
from tuner_service.domain.trial import Attempt, Part
from tuner_service.service.access import Role
from tuner_service.service.cluster import AgentHub
from tuner_service.service.experiments import Services
from tuner_service.service.node_files import NodeFiles
from tuner_service.service.perform import Performer

GOOD, EVIL = "good-node", "evil-node"
SECRET, CODE = "hunter2", b"the code of somebody else"
PROCESS = ProcessRecord(boot_id="b", pid=17, start_time=1)
GONE = ExitRecord(cause=ExitCause.EXITED, code=0)
ANSWERING = ("Asked._", "_Connection._send", "_take_output")  # tasks that still say something to an agent
HEADERS = {SIZE: "4", DIGEST: hashlib.sha256(b"evil").hexdigest(), OFFSET: "0"}


class Acting(DirectRunner):
    """As the real one: what follows is done. Its algorithm workers answer at once."""

    def __init__(self, api: ApiService, hub: AgentHub) -> None:
        super().__init__(api.store)
        self.performer = Performer(
            hub=hub, workers=self, lineage=api.store.lineage, removed=api.services.node_files.remove
        )
        self.on_committed = api.runner.on_committed

    @property
    def dispatcher(self) -> Dispatcher:
        return self._dispatcher

    def submit(self, command: c.Command) -> Future[None]:
        answer: Future[None] = Future()
        try:
            effects = self._dispatcher.handle(command)
        except TunerServiceError as exc:
            answer.set_exception(exc)
            return answer
        changes = self._dispatcher.take_changes()
        if changes:
            self.on_committed(changes, self._store.commit(changes))
        answer.set_result(None)
        for effect in effects:
            self.performer.perform(effect)
        return answer

    def start(self, order: e.StartWorker) -> None:
        self.submit(c.WorkerReady(at=0.0, experiment_id=order.experiment_id, generation=order.generation))

    def deliver(self, order: e.Deliver) -> None:
        line = order.item.line
        is_asked = isinstance(order.item, SuggestionRequested)
        answer = Suggested(line=line, parameters={"lr": 0.01}) if is_asked else Taken(line=line)
        names: dict[str, Any] = {"experiment_id": order.experiment_id, "generation": order.generation}
        self.submit(c.QueueAnswered(at=0.0, queue=Queue.TUNER, answers=(answer,), **names))

    def ping(self, order: e.PingWorker) -> None: ...

    def stop(self, experiment_id: str) -> None: ...

    def close(self) -> None: ...


@dataclass(kw_only=True)
class Socket:
    """The hostile agent's channel to the application, without a network."""

    app: Any
    token: str
    heard: list[dict[str, Any] | bytes] = field(default_factory=list)
    reads: bool = True
    _says: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    _asked: int = 0

    def __post_init__(self) -> None:
        self._says.put_nowait({"type": "websocket.connect"})

    async def run(self, agent_id: str) -> None:
        path = f"/api/v1/agents/{agent_id}/channel"
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {self.token}".encode())]
        scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers}
        await self.app(scope | {"subprotocols": [], "client": ("10.0.0.9", 1)}, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        self._asked += 1
        return await self._says.get()

    async def _send(self, message: dict[str, Any]) -> None:
        if not self.reads:
            await asyncio.Event().wait()
        if message.get("bytes") is not None:
            self.heard.append(message["bytes"])
        elif message.get("text") is not None:
            found = json.loads(message["text"])
            self.heard += found if isinstance(found, list) else [found]

    async def say(self, *said: Message | bytes) -> list[dict[str, Any] | bytes]:
        """What is heard after it, once all of it was taken and answered."""
        self.heard.clear()
        for message in said:
            frame = {"bytes": message} if isinstance(message, bytes) else {"text": encode(message)}
            await self._says.put({"type": "websocket.receive", **frame})
        await self.quiet()
        return list(self.heard)

    async def quiet(self) -> None:
        """Until it waits for the next frame, and what runs beside it has ended."""
        for _ in range(1_000):
            others = asyncio.all_tasks() - {asyncio.current_task()}
            before = (len(self.heard), self._says.qsize(), self._asked)
            for _ in range(20):
                await asyncio.sleep(0)
            pending = [task for task in others if any(name in repr(task) for name in ANSWERING)]
            if pending:
                await asyncio.wait(pending)
            elif before == (len(self.heard), self._says.qsize(), self._asked) and self._says.empty():
                return
        raise AssertionError(f"its frames are not taken: {self.heard}")


@dataclass(kw_only=True)
class World:
    """Two nodes, each with a trial of an experiment of its own; one node is hostile."""

    api: ApiService
    runner: Acting
    client: ApiClient
    socket: Socket
    files: NodeFiles
    home: Path
    services: Services
    theirs: str = ""
    own: str = ""

    def attempt(self, experiment_id: str) -> Attempt:
        (found,) = self.api.queries.live_attempts(experiment_id)
        return found

    def rows(self, experiment_id: str) -> list[Any]:
        """Everything that the database has of it."""
        q = self.api.queries
        return [
            q.experiment(experiment_id), q.trials(experiment_id), q.attempts(experiment_id),
            q.checkpoints(experiment_id, 1), q.journal(experiment_id), q.metrics(experiment_id, 1),
            q.search_space(experiment_id), sorted(q._blobs.items()),
        ]  # fmt: skip

    def kept(self) -> dict[str, bytes]:
        """Every file of the service."""
        return {str(p): p.read_bytes() for p in sorted(self.home.rglob("*")) if p.is_file()}


def a_file(node: str) -> dict[str, Any]:
    body = a_body(budget={"trials": 1, "parallel": 1})
    body["trial"] |= {"resources": {"labels": {"who": node}}, "keep": {"last": 1, "best": 0}}
    if node == GOOD:
        body["trial"]["environment"] = {"KEY": {"secret": "aws"}}
        body["trial"]["code"] = {"files": [{"path": "train.py", "content": CODE.decode()}]}
    return body


def a_hello(**facts: Any) -> Hello:
    return Hello(
        version=PROTOCOL_VERSION, agent_id=EVIL, boot_id="b", host="h", pid=1,
        resources=NodeResources(cpus=2, memory_bytes=1 << 30),
        node=NodeFacts(is_joined=True, labels={"who": EVIL}, **facts),
    )  # fmt: skip


async def a_world(*, hello: Hello | None = None) -> World:
    api = an_api_service()
    hub = AgentHub()
    runner = Acting(api, hub)
    experiments = replace(api.services.experiments, runner=runner, hub=hub)
    services = replace(api.services, experiments=experiments, runner=runner, hub=hub)
    app = create_app(services)
    client = ApiClient(app=app, headers={"authorization": f"Bearer {ADMIN_TOKEN}"})
    token, _ = services.tokens.add(EVIL, Role.AGENT, lasts_s=None, by="home")
    files = services.node_files
    world = World(
        api=api, runner=runner, client=client, socket=Socket(app=app, token=token), files=files, home=files._home,
        services=services,
    )  # fmt: skip
    device = Device(uuid="GPU-good", name="A100", memory_bytes=1 << 34)
    runner.submit(
        c.AgentConnected(
            at=1.0, agent_id=GOOD, cpus=2, memory_bytes=1 << 30, attempts=(), devices=(device,), labels={"who": GOOD}
        )
    )
    world._channel = asyncio.create_task(world.socket.run(EVIL))  # type: ignore[attr-defined]  # kept from the collector
    await world.socket.say(hello or a_hello())
    for node in (GOOD, EVIL):
        answer = await client.ask("POST", "/api/v1/experiments", json=a_file(node))
        assert answer.status_code == 201, answer.text
        world.theirs, world.own = world.theirs or answer.json()["id"], answer.json()["id"]
    for experiment_id, agent in ((world.theirs, GOOD), (world.own, EVIL)):
        attempt = world.attempt(experiment_id)
        assert attempt.agent_id == agent
        names: dict[str, Any] = {"agent_id": agent, "key": attempt.key, "nonce": attempt.nonce}
        runner.submit(c.AttemptStarted(at=2.0, process=PROCESS, **names))
    _bring_on(world)
    await world.socket.quiet()
    return world


def _bring_on(world: World) -> None:
    """What the good node's trial has by now: a secret, a report, a checkpoint in the database and one in files."""
    attempt = world.attempt(world.theirs)
    place = f"{attempt.key.experiment_id}/1/1-{attempt.nonce}"
    for path, data in (("secrets/aws", SECRET), (f"nodes/checkpoints/{place}/large.ckpt", "large"),
                       (f"nodes/logs/{place}/stdout", "their output")):  # fmt: skip
        (world.home / path).parent.mkdir(parents=True, exist_ok=True)
        (world.home / path).write_text(data)
    world.runner.submit(c.BlobReceived(at=3.0, digest=hashlib.sha256(b"small").hexdigest(), data=b"small"))
    record = MetricRecord(step=1, values={"accuracy": 0.5}, at=3.0)
    names: dict[str, Any] = {"agent_id": GOOD, "key": attempt.key, "nonce": attempt.nonce}
    world.runner.submit(c.ReportsReceived(at=3.0, first_sequence=1, records=(record,), **names))


def a_checkpoint(step: int, data: bytes, size: int | None = None) -> str:
    digest = hashlib.sha256(data).hexdigest()
    record = {"step": step, "name": f"{step}-{digest[:12]}.ckpt", "digest": digest, "at": 4.0}
    return json.dumps({"kind": "checkpoint", "size": len(data) if size is None else size, **record})


LINES = (
    json.dumps({"kind": "metric", "step": 2, "values": {"accuracy": 0.99}, "at": 4.0, "final": False}),
    json.dumps({"kind": "metric", "step": None, "values": {"accuracy": 0.99}, "at": 4.0, "final": True}),
    json.dumps({"kind": "notice", "code": "evil", "message": "was here", "at": 4.0}),
    json.dumps({"kind": "parameters_wanted", "index": 1, "at": 4.0}),
    a_checkpoint(2, b"small"),
)


def lies(world: World) -> Iterator[Message]:
    """Every message, about each attempt and nonce but its own attempt by its own nonce."""
    theirs, own = world.attempt(world.theirs), world.attempt(world.own)
    nowhere = AttemptKey(experiment_id="../" + world.theirs, number=1, attempt=1)
    for key, nonce in itertools.product((theirs.key, own.key, nowhere), (theirs.nonce, own.nonce, "", "../x")):
        if (key, nonce) == (own.key, own.nonce):
            continue
        names: dict[str, Any] = {"key": key, "nonce": nonce}
        yield Started(process=PROCESS, **names)
        for first in (1, 2):
            yield Reports(first_sequence=first, lines=LINES, **names)
        for last in (0, 1, 6):
            yield Exited(exit=GONE, last_sequence=last, **names)
        yield Prepared(address="10.0.0.9", host="h", port=29_500, world_key="evil", **names)
        yield OutputOffered(size=0, pieces=(), message="evil", **names)
        yield CheckpointsWanted(request_id="1", nonce=nonce, experiment_id=key.experiment_id, number=1)
        yield CheckpointsWanted(request_id="1", nonce=nonce, experiment_id=world.theirs, number=0)
    for digest in sorted(world.api.queries._blobs):
        yield BlobWanted(digest=digest)
        yield BlobOffered(digest=digest, size=0)
    yield from (LogChunk(request_id=str(n), data="evil", end=4, size=4) for n in range(3))
    taken = NodeDevice(uuid="GPU-good", name="A100", memory_bytes=1 << 34, occupied=True, lost="evil")
    yield DevicesChanged(devices=(taken,), peaks={theirs.nonce: 1 << 50})
    yield NodeChanged(node=NodeFacts(is_joined=True, labels={"who": GOOD}, drained=True, trouble="evil"))
    observed = ObservedAttempt(key=theirs.key, nonce=theirs.nonce, lineage="memory", process=None, exit=GONE, spooled=9)
    yield replace(a_hello(), agent_id=GOOD, attempts=(observed,))
    yield Pong()
    yield NotUnderstood(about="launch", reason="evil")


def test_whatever_it_says_of_others_changes_nothing_of_theirs_and_is_answered_with_nothing_of_theirs() -> None:
    async def attack() -> None:
        world = await a_world()
        theirs, own, files = world.rows(world.theirs), world.rows(world.own), world.kept()
        said: set[type] = set()
        for message in lies(world):
            answers = await world.socket.say(message)
            said.add(type(message))
            assert world.rows(world.theirs) == theirs, message
            assert world.kept() == files, message
            if isinstance(message, NodeChanged):
                own = world.rows(world.own)  # what it says of itself counts
            assert world.rows(world.own) == own, "nor is its own trial changed, by a nonce that is not its own"
            told = json.dumps([a if isinstance(a, dict) else a.decode(errors="replace") for a in answers])
            for hidden in (SECRET, CODE.decode(), "small", "large.ckpt", world.attempt(world.theirs).nonce[:12]):
                is_echo = hidden in encode(message)
                assert hidden not in told or is_echo, (message, told)
        assert said == set(get_args(FromAgent))
        assert GOOD in world.runner.dispatcher.state.agents

    asyncio.run(attack())


@pytest.mark.parametrize("is_alive", [True, False], ids=["it runs", "it has ended"])
def test_a_hello_that_claims_others_attempts_takes_none_of_them(is_alive: bool) -> None:
    async def attack() -> None:
        world = await a_world()
        theirs, attempt = world.rows(world.theirs), world.attempt(world.theirs)
        claimed = ObservedAttempt(
            key=attempt.key, nonce=attempt.nonce, lineage="memory", process=PROCESS if is_alive else None,
            exit=None if is_alive else GONE, spooled=0,
        )  # fmt: skip
        own = world.attempt(world.own)
        ours = ObservedAttempt(key=own.key, nonce=own.nonce, lineage="memory", process=PROCESS, exit=None, spooled=0)
        again = Socket(app=world.socket.app, token=world.socket.token)
        channel = asyncio.create_task(again.run(EVIL))
        answers = await again.say(replace(a_hello(), attempts=(claimed, ours)))

        assert world.rows(world.theirs) == theirs
        assert world.attempt(world.own) is not None, "its own goes on"
        kinds = [answer["kind"] for answer in answers if isinstance(answer, dict)]
        assert kinds[0] == "welcome"
        assert attempt.nonce not in answers[0]["acknowledged"]  # type: ignore[call-overload]  # it is a welcome
        channel.cancel()

    asyncio.run(attack())


def revoke(world: World) -> None:
    world.services.tokens.revoke(EVIL)
    world.services.hub.close_those_who_may_not()


def expire(world: World) -> None:
    world.services.tokens.revoke(EVIL)  # whoever looks for tokens that are no longer good has not looked yet


def remove(world: World) -> None:
    world.services.hub.hang_up(EVIL)


@pytest.mark.parametrize("send_away", [revoke, expire, remove])
def test_one_that_does_not_read_is_obeyed_no_more_once_it_is_hung_up_on(
    send_away: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "LAST_WORDS_S", 0.0)

    async def attack() -> None:
        world = await a_world()
        world.socket.reads = False
        await world.socket.say(a_hello())  # which is answered; that is where the channel stands still
        own = world.attempt(world.own)
        before = world.rows(world.own)
        send_away(world)
        frame = encode(Reports(key=own.key, nonce=own.nonce, first_sequence=1, lines=LINES))
        world.socket._says.put_nowait({"type": "websocket.receive", "text": frame})

        await asyncio.wait_for(world._channel, 30)  # type: ignore[attr-defined]  # see a_world
        assert EVIL not in {agent.agent_id for agent in world.services.hub.agents()}
        assert world.rows(world.own) == before

    asyncio.run(attack())


def test_a_part_of_somebody_elses_trial_of_several_nodes_is_not_ready_by_its_word() -> None:
    async def attack() -> None:
        world = await a_world()
        attempt = world.attempt(world.theirs)
        parts = tuple(Part(agent_id=f"{GOOD}-{n}", nonce=attempt.nonce if n == 0 else f"n{n}") for n in range(2))
        xs = world.runner.dispatcher.state.experiments[world.theirs]
        xs.attempts[1] = replace(attempt, parts=parts)
        before = xs.attempts[1]
        for nonce in ("n1", attempt.nonce):
            await world.socket.say(
                Prepared(key=attempt.key, nonce=nonce, address="10.0.0.9", host="h", port=1, world_key="evil"),
                Started(key=attempt.key, nonce=nonce, process=PROCESS),
                Exited(key=attempt.key, nonce=nonce, exit=GONE, last_sequence=0),
            )
            assert xs.attempts[1] == before

    asyncio.run(attack())


def places(world: World) -> dict[str, str]:
    """Areas and paths of files that are another's, or nobody's."""
    attempt = world.attempt(world.theirs)
    own = world.attempt(world.own)
    place = f"{world.theirs}/1/1-{attempt.nonce}"
    return {
        f"checkpoints/{place}/large.ckpt": "another's checkpoint",
        f"checkpoints/{world.theirs}": "all of another's",
        f"checkpoints/{world.own}/../{place}/large.ckpt": "by way of its own",
        f"checkpoints/{world.own}/1/1-{attempt.nonce}/x.ckpt": "its own trial, another's nonce",
        f"checkpoints/{world.own}/2/1-{own.nonce}/x.ckpt": "another trial of its experiment",
        f"logs/{place}/stdout": "another's log",
        f"logs/{world.own}/1/1-{own.nonce}/../../../../{place}/stdout": "by way of its own",
        "secrets/aws": "a secret of another experiment",
        "secrets/../tuner.db": "the database",
        "secrets/": "all secrets",
        "own/../token": "the home's token",
        "own/token": "likewise",
        "assets/../secrets/aws": "a secret by way of assets",
        "staging/../../secrets/aws": "likewise",
        "nodes/checkpoints": "no area",
        "%2e%2e/secrets/aws": "encoded dots",
    }


def test_files_of_others_are_neither_given_nor_taken() -> None:
    async def attack() -> None:
        world = await a_world()
        client = ApiClient(app=world.client.app, headers={"authorization": f"Bearer {world.socket.token}"})
        before = world.kept()
        ways: list[tuple[str, dict[str, Any]]] = [
            ("GET", {}),
            ("GET", {"headers": {LOOK: "1"}}),
            ("GET", {"headers": {SIZE: "5", DIGEST: hashlib.sha256(b"large").hexdigest()}}),
            ("GET", {"headers": {"range": "bytes=0-3"}}),
            ("PUT", {"headers": HEADERS, "content": b"evil"}),
        ]
        for path, what in places(world).items():
            for method, request in ways:
                answer = await client.ask(method, f"/api/v1/agents/{EVIL}/files/{path}", **request)
                is_upload_of_its_own = method == "PUT" and path.startswith("staging")
                assert answer.status_code in {400, 403, 404, 405, 422}, (what, method, answer.status_code)
                assert is_upload_of_its_own or world.kept() == before, (what, method)
                assert SECRET not in answer.text, what
                assert not {SIZE, OFFSET} & answer.headers.keys(), (what, method)
                other = await client.ask(method, f"/api/v1/agents/{GOOD}/files/{path}", **request)
                assert other.status_code in {403, 404}, (what, method, other.status_code)
        assert world.kept() == before

    asyncio.run(attack())


def test_a_folder_of_its_own_is_no_file() -> None:
    async def ask() -> None:
        world = await a_world()
        client = ApiClient(app=world.client.app, headers={"authorization": f"Bearer {world.socket.token}"})
        place = f"checkpoints/{world.own}/1/1-{world.attempt(world.own).nonce}/x.ckpt"
        (world.home / "nodes" / place).mkdir(parents=True)

        answer = await client.ask("GET", f"/api/v1/agents/{EVIL}/files/{place}")

        assert answer.status_code == 404

    asyncio.run(ask())


def lying_places(world: World) -> list[str]:
    attempt, own = world.attempt(world.theirs), world.attempt(world.own)
    theirs = f"{world.theirs}/1/1-{attempt.nonce}"
    mine = f"{world.own}/1/1-{own.nonce}"
    home = world.home / "nodes" / "checkpoints"
    return [
        f"tuner:///checkpoints/{theirs}/large.ckpt",
        f"tuner:///checkpoints/{world.theirs}",
        f"tuner:///checkpoints/{mine}/../../../{theirs}/large.ckpt",
        f"tuner:///checkpoints/{mine}/",
        f"tuner:///checkpoints/{mine}/a/b",
        f"tuner:///checkpoints/{world.own}",
        "tuner:///secrets/aws",
        f"{home}/{theirs}/large.ckpt",
        f"{home}/{world.theirs}",
        f"{home}/{mine}/../../../{theirs}",
        f"file://{home}/{theirs}/large.ckpt",
        f"file://{world.home}/secrets/aws",
        "http://169.254.169.254/latest/meta-data",
        "s3://bucket/of/another",
        "/etc/passwd",
        "",
    ]


@pytest.mark.parametrize("is_joined", [True, False], ids=["joined", "as if it shared the folder"])
def test_a_place_of_another_for_its_own_checkpoint_is_not_believed_and_nothing_there_is_removed(
    is_joined: bool,
) -> None:
    async def attack() -> None:
        hello = a_hello()
        world = await a_world(hello=replace(hello, node=replace(hello.node, is_joined=is_joined)))
        own, before = world.attempt(world.own), world.kept()
        names: dict[str, Any] = {"key": own.key, "nonce": own.nonce}
        large = CHECKPOINT_INLINE_BYTES + 1
        for number, place in enumerate(lying_places(world), start=1):
            digest = hashlib.sha256(f"{number}".encode()).hexdigest()
            line = a_checkpoint(number, f"{number}".encode(), large)
            await world.socket.say(Reports(first_sequence=number, lines=(line,), locations={digest: place}, **names))
            (found,) = world.api.queries.checkpoints(world.own, 1)  # those before were dropped, and their bytes
            assert (found.step, found.location) == (number, None), place
            assert world.kept() == before, place

    asyncio.run(attack())


@pytest.mark.parametrize(
    ("store", "is_joined", "told", "kept"),
    [
        ("", True, "tuner:///checkpoints/e/1/2-n/3-abc.ckpt", "HOME/nodes/checkpoints/e/1/2-n/3-abc.ckpt"),
        ("/shared", True, "tuner:///checkpoints/e/1/2-n/3-abc.ckpt", "/shared/e/1/2-n/3-abc.ckpt"),
        ("/shared", False, "/shared/e/1/2-n/3-abc.ckpt", "/shared/e/1/2-n/3-abc.ckpt"),
        ("s3://b/p", True, "s3://b/p/e/1/2-n/3-abc.ckpt", "s3://b/p/e/1/2-n/3-abc.ckpt"),
        ("s3://b/p", False, "s3://b/p/e/1/2-n/3-abc.ckpt", "s3://b/p/e/1/2-n/3-abc.ckpt"),
        ("", False, f"HOME/checkpoints/{'a' * 64}", f"HOME/checkpoints/{'a' * 64}"),
        ("/shared", False, "/shared/e/1/2-other/3-abc.ckpt", None),
        ("/shared", False, f"HOME/checkpoints/{'a' * 64}", None),
        ("s3://b/p", True, "s3://b/p/e/1/3-n/3-abc.ckpt", None),
        ("s3://b/p", True, "s3://b/pp/e/1/2-n/3-abc.ckpt", None),
        ("s3://b/p", True, "tuner:///checkpoints/e/1/2-n/3-abc.ckpt", None),
        ("s3://b/p", True, "s3://b/p/e/1/2-n/..", None),
    ],
)
def test_a_checkpoint_lies_where_the_service_said_that_those_of_its_attempt_are_put(
    tmp_path: Path, store: str, is_joined: bool, told: str, kept: str | None
) -> None:
    api = an_api_service()
    files = NodeFiles(tmp_path, api.queries, checkpoint_store=store, asset_store="", staging=tmp_path / "in")
    key = AttemptKey(experiment_id="e", number=1, attempt=2)
    in_home: Callable[[str], str] = lambda text: text.replace("HOME", str(tmp_path))  # noqa: E731  # two words

    found = files.incoming(in_home(told), key, "n", is_joined=is_joined)

    assert found == (None if kept is None else in_home(kept))
