"""What an agent remembers, and what is sent to it or left for it, has a bound: whatever a trial or a service does."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trials.agent.conversation import Conversation
from trials.agent.home import Home
from trials.agent.moving import fetching, offers
from trials.agent.moving.blobs import BLOB_LIMIT_BYTES, BlobMissingError, BlobReceiver
from trials.agent.moving.fetching import CheckpointFetches
from trials.agent.moving.offers import CheckpointOffers
from trials.agent.sharing import requests
from trials.agent.sharing.requests import NotServedError, RequestSocket
from trials.agent.sharing.servers import SERVERS_MAX, DataServers
from trials.agent.supervision.matching import IDLE_MATCHERS_MAX, Matcher, Matchers
from trials.agent.supervision.output import BACKLOG_BYTES, MetricsPattern
from trials.tasks import instance, meeting
from trials.tasks.instance import OutputTooLargeError, output_bytes
from trials.tasks.meeting import Meeting, Place
from trials.wire.attempt import AttemptKey
from trials.wire.files import FILE_WANTED, FOLDER_CHECKPOINTS
from trials.wire.limits import NOT_UNDERSTOOD_LIMIT
from trials.wire.messages import BlobSent, Message, NotUnderstood
from trials.wire.records import CheckpointRecord

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)


class Said:
    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, *messages: Message) -> None:
        self.messages += messages


# ── what it remembers ───────────────────────────────────────────────────────────────────────────
def test_of_what_scripts_have_asked_for_the_newest_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "ASKED_REMEMBERED", 2)
    held = cast("Any", SimpleNamespace(folder=tmp_path, key=KEY, nonce="n"))
    made = CheckpointFetches(Home(tmp_path), blobs=cast("Any", None), send=Said())

    async def ask() -> None:
        for number in range(4):
            wanted = {"id": f"r{number}", "number": 1, "step": None}
            (tmp_path / FILE_WANTED).write_text(json.dumps(wanted))
            await made.look(held)

    asyncio.run(ask())

    assert list(made._asked) == ["r2", "r3"]


def test_of_the_checkpoints_that_were_stored_the_newest_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "STORED_REMEMBERED", 2)
    home = Home(tmp_path)
    folder = home.attempt_folder(KEY, "n")
    (folder / FOLDER_CHECKPOINTS).mkdir(parents=True)
    made = CheckpointOffers(home, send=Said(), send_blob=cast("Any", None))

    async def stored(_data: bytes, _record: CheckpointRecord) -> bool:
        return True

    monkeypatch.setattr(made, "_store", stored)

    async def offer() -> None:
        for step in range(4):
            data = f"{step}".encode()
            (folder / FOLDER_CHECKPOINTS / f"c{step}").write_bytes(data)
            digest = hashlib.sha256(data).hexdigest()
            record = CheckpointRecord(step=step, name=f"c{step}", digest=digest, size=1, at=1.0)
            await made._offer(cast("Any", SimpleNamespace(folder=folder, nonce="n")), record)

    asyncio.run(offer())

    assert [where.rpartition("/")[2] for where, _ in made._stored] == ["c2", "c3"]


def test_of_the_processes_that_match_output_so_many_are_kept_for_trials_to_come() -> None:
    ended: list[int] = []

    def matcher(number: int) -> Matcher:
        return cast("Matcher", SimpleNamespace(pattern=str(number), pid=number, end=lambda: ended.append(number)))

    matchers = Matchers(set())
    for number in range(IDLE_MATCHERS_MAX + 2):
        matchers.give_back(matcher(number))

    assert ended == [0, 1], "those that were used longest ago"


# ── what comes ──────────────────────────────────────────────────────────────────────────────────
def test_a_blob_that_is_longer_than_any_may_be_is_not_taken(tmp_path: Path) -> None:
    async def receive() -> None:
        blobs = BlobReceiver(tmp_path, ask=cast("Any", Said()))
        waiting = asyncio.ensure_future(blobs.get("a" * 64))
        await asyncio.sleep(0)
        blobs.begin(BlobSent(digest="a" * 64, size=BLOB_LIMIT_BYTES + 1))
        with pytest.raises(BlobMissingError, match="over the limit"):
            await waiting

    asyncio.run(receive())

    assert list(tmp_path.iterdir()) == []


def test_a_service_that_says_nothing_that_is_understood_is_told_so_for_a_while(tmp_path: Path) -> None:
    """Two that do not understand what the other says of that would go on for ever."""
    agent: Any = SimpleNamespace(home=Home(tmp_path), held={}, storing=None)
    said = Said()

    async def hear() -> None:
        conversation = Conversation(agent, cast("Any", None), agent_id="a", on_welcome=lambda _: None)
        conversation._send = said  # type: ignore[assignment, method-assign]
        for _ in range(NOT_UNDERSTOOD_LIMIT + 3):
            await conversation._receive('{"kind": "of another version"}')

    asyncio.run(hear())

    assert [type(message) for message in said.messages] == [NotUnderstood] * NOT_UNDERSTOOD_LIMIT


class Connection:
    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def setblocking(self, is_blocking: bool) -> None: ...

    def sendall(self, data: bytes) -> None: ...

    def fileno(self) -> int:
        return id(self)

    def accept(self) -> tuple[Connection, None]:
        return self, None


def test_of_those_who_want_to_join_a_group_and_say_nothing_so_many_are_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "PENDING_LIMIT", 2)
    monkeypatch.setattr("socket.create_server", lambda *_, **__: Connection())
    here, come = Meeting(Place(node=0, nodes=2, address="127.0.0.1", port=1, key="k")), [Connection() for _ in range(3)]
    for connection in come:
        here._listening = cast("Any", connection)
        here._let_in()

    assert [connection.is_closed for connection in come] == [False, False, True]


def test_of_the_trials_that_ask_for_shared_data_at_once_so_many_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "ASKING_MAX", 2)
    monkeypatch.setattr(requests, "is_own_user", lambda _: True)

    async def ask() -> None:
        asked = RequestSocket(tmp_path, cast("Any", None), serve=cast("Any", None))
        asked._own = cast("Any", SimpleNamespace(socket=None))
        come, heard = [Connection() for _ in range(3)], list[Connection]()

        async def converse(connection: Connection) -> None:
            heard.append(connection)

        monkeypatch.setattr(asked, "_converse", converse)
        for connection in come:
            monkeypatch.setattr(requests, "accepted", lambda _, one=connection: one)
            asked._accept()
        await asyncio.gather(*asked._asking)
        assert (heard, come[2].is_closed) == (come[:2], True)

    asyncio.run(ask())


def test_an_output_that_a_command_has_written_is_read_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "OUTPUT_LIMIT_BYTES", 10)
    (tmp_path / "small.json").write_bytes(b"[1,2,3,45]")
    (tmp_path / "large.json").write_bytes(b"[1,2,3,456]")

    assert output_bytes(tmp_path, "small") == ("json", b"[1,2,3,45]")
    with pytest.raises(OutputTooLargeError):
        output_bytes(tmp_path, "large")


def test_so_much_output_waits_to_be_matched_and_no_more_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = MetricsPattern(
        r"loss=(?P<loss>\S+)",
        spool=str(tmp_path / "reports.jsonl"),
        acknowledged=str(tmp_path / "acknowledged.json"),
        matchers=Matchers(set()),
    )
    monkeypatch.setattr(pattern, "go_on", lambda: None)  # the one that matches is busy
    line = b"x" * 1_023 + b"\n"
    for _ in range(BACKLOG_BYTES // len(line)):
        pattern.feed(line)
    assert not pattern.is_behind()
    pattern.feed(line)
    assert pattern.is_behind()
    pattern.close()


def test_there_are_so_many_servers_of_shared_data_and_no_more(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    servers = DataServers(home, lambda _: None, memory_bytes=1 << 40)
    some = SimpleNamespace(memory_bytes=1)
    servers._servers.update({str(number): cast("Any", some) for number in range(SERVERS_MAX - 1)})

    assert servers._granted(1 << 20) > 0
    servers._servers["one more"] = cast("Any", some)
    with pytest.raises(NotServedError, match="loads for itself"):
        servers._granted(1 << 20)
