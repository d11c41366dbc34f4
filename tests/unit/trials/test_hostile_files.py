"""Whatever stands in the files of an attempt: reading them ends, raises nothing, and believes nothing impossible."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trials.agent.agent import Agent
from trials.agent.attempts import HeldAttempt, load_attempt
from trials.agent.conversation import Conversation
from trials.agent.forks.servers import ForkServers
from trials.agent.home import Home, tidy
from trials.agent.moving.blobs import INCOMING_KEPT, BlobReceiver, remove_oldest
from trials.agent.moving.fetching import CheckpointFetches
from trials.agent.moving.offers import CheckpointOffers
from trials.agent.spool import SpoolDamagedError, SpoolReader
from trials.agent.supervision.attempt_life import START_AGAIN_S, START_TIMEOUT_S, Supervised
from trials.agent.supervision.parent import Parent
from trials.agent.supervision.records import Records
from trials.agent.supervision.resources import ResourceFile
from trials.agent.supervision.starting import Start
from trials.agent.supervision.stopping import Stopping
from trials.files import read_json
from trials.processes.logs import RotatedLog, read_log
from trials.wire.attempt import AttemptKey
from trials.wire.encoding import encode
from trials.wire.launch import LaunchSpec
from trials.wire.limits import RESOURCES_BYTES
from trials.wire.messages import Launch, Message
from trials.wire.plain import to_plain
from trials.wire.records import CheckpointRecord, ExitRecord, MetricRecord, ProcessRecord, encode_record
from trials.wire.resources import samples_of

KEY = AttemptKey(experiment_id="e1", number=3, attempt=2)
FILES = (
    *("attempt.json", "claim.json", "process.json", "exit.json", "reports.jsonl", "acknowledged.json", "wanted.json"),
    *("stop.json", "imports.json", "parameters.json", "stdout.log", "stdout.log.start", "stdout.log.1", "stderr.log"),
    "resources.jsonl",
    *("checkpoints", "checkpoints/000000001-aaaaaaaaaaaa.ckpt", "wanted-r", "wanted-r/restore.json", "restore"),
)
LAUNCH = Launch(
    key=KEY,
    nonce="n1",
    lineage="l",
    spec=LaunchSpec(command=("python", "t.py"), parameters={}, seed=1, objective="loss"),
)
PROCESS = {"boot_id": "b", "pid": 1 << 21, "start_time": 1}
LINE = encode_record(MetricRecord(step=1, values={"a": 1.0}, at=1.0)) + b"\n"
SAVED = CheckpointRecord(step=1, name="000000001-aaaaaaaaaaaa.ckpt", digest="a" * 64, size=3, at=1.0)


def lay_out(home: Home) -> Path:
    """An attempt that runs, as its agent and its parent have laid it out."""
    home.make()
    folder = home.attempt_folder(KEY, "n1")
    folder.mkdir(parents=True)
    (folder / "attempt.json").write_text(encode(LAUNCH))
    (folder / "claim.json").write_text(json.dumps(PROCESS))
    (folder / "reports.jsonl").write_bytes(LINE * 3 + encode_record(SAVED) + b"\n")
    home.put_live("n1", folder)
    return folder


def put(path: Path, what: bytes | str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
    path.parent.mkdir(exist_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
        (path / "in").touch()
    elif what == "endless":
        path.symlink_to("/dev/zero")
    elif what == "loop":
        path.symlink_to(path.name)
    elif what == "terabyte":
        path.touch()
        os.truncate(path, 1 << 40)
    elif what == "secret":
        path.write_bytes(b"{}")
        path.chmod(0)
    elif isinstance(what, bytes):
        path.write_bytes(what)


class Heard:
    """Where a conversation would send to."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def send(self, *messages: Message) -> None:
        for message in messages:
            encode(message)
        self.messages += messages

    async def send_blob(self, announcement: Message, data: bytes, *, chunk: int) -> None:
        raise AssertionError("no checkpoint here is what its record says")


async def look_at_everything(home: Home, folder: Path) -> HeldAttempt | None:
    """All that an agent and a parent of trials do with files that a trial may have written."""
    heard = Heard()
    home.live()
    home.lost()
    servers = ForkServers(home, on_lost=lambda _: None)
    servers._learning["n1"] = "e1"
    servers._refused = cast("Any", dict.fromkeys((), "none here"))
    servers._start = cast("Any", lambda _: None)
    servers.note_end("n1", folder)
    held = load_attempt(folder)
    if held is not None:
        fetches = CheckpointFetches(home, blobs=cast("Any", None), send=heard.send)
        offers = CheckpointOffers(home, send=heard.send, send_blob=heard.send_blob)
        held.look()
        assert held.exit is None or isinstance(held.exit, ExitRecord)
        assert held.process is None or 0 < held.process.pid <= 1 << 22
        encode_observed = held.observed()
        assert encode_observed.spooled >= 0
        if held.damage is None:
            await fetches.look(held)
            try:
                batch = held.spool.next_batch()
            except SpoolDamagedError as error:
                held.note_damage(str(error))
            else:
                await offers.offer(held, batch)
                held.spool.acknowledge(batch, batch.last_sequence)
        await fetches.close()
    stopping = Stopping(str(folder))
    stopping.look()
    stopping.order(grace_s=0.0, reason="stopped")
    log = RotatedLog(f"{folder}/stdout.log", limit=100)
    for _ in range(3):
        log.write(b"x" * 150)
    log.close()
    data, end, size = read_log(f"{folder}/stdout.log", offset=-50, limit=100)
    assert len(data) <= 100
    assert 0 <= end <= max(size, end)
    used = ResourceFile(str(folder))
    for at_s in (1.0, 2.0):
        used.note(at_s, memory_bytes=1, processor_s=0.5, processes=1)
    data, _, _ = read_log(f"{folder}/resources.jsonl", offset=0, limit=RESOURCES_BYTES)
    assert len(samples_of(data.decode(errors="replace"))) <= 2
    records = Records(str(folder))
    for _ in range(2):
        records.write("exit.json", {"cause": "exited"}, durable=False)
    assert not records.is_waiting("exit.json")
    with suppress(OSError):  # as the agent does
        tidy(folder)
    home.remove_experiment("e1")
    assert not os.path.lexists(home.attempts / "e1")
    return held


@pytest.mark.parametrize("what", ["nothing", "pipe", "folder", "endless", "loop", "terabyte", "secret"])
@pytest.mark.parametrize("name", FILES)
def test_what_no_file_should_be_is_passed_over_or_damage(tmp_path: Path, name: str, what: str) -> None:
    home = Home(tmp_path)
    folder = lay_out(home)
    put(folder / name, what)

    begun = time.monotonic()
    asyncio.run(look_at_everything(home, folder))
    assert time.monotonic() - begun < 60, "it ends, and nothing of it is read to an end that it does not have"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=20),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=10), part, max_size=3),
    max_leaves=8,
)
WORDS = (
    "boot_id pid start_time orders groups sequence offset id number step grace_s reason modules key nonce spec cause "
    "code signal tail started_at ended_at process checkpoints kind"
)
NAMES = st.sampled_from(WORDS.split())
OBJECTS = st.dictionaries(NAMES, JSON, max_size=8)
DEEP = st.sampled_from([b"[" * 50_000, b'{"a":' * 50_000, b"9" * 6_000, b'{"pid":' + b"9" * 6_000 + b"}", b'"\\ud800"'])
CONTENT = (
    st.binary(max_size=200)
    | OBJECTS.map(lambda value: json.dumps(value).encode())
    | OBJECTS.map(lambda value: json.dumps(value).encode("utf-16"))
    | DEEP
)


def mutated(data: bytes) -> st.SearchStrategy[bytes]:
    """What was right, with some bytes changed, cut off, doubled."""
    places = st.integers(0, len(data))
    return st.tuples(places, places, st.binary(max_size=6)).map(lambda cut: data[: cut[0]] + cut[2] + data[cut[1] :])


RIGHT = {
    "attempt.json": encode(LAUNCH).encode(),
    "claim.json": json.dumps(PROCESS | {"orders": "/tmp/x", "groups": "/x"}).encode(),
    "process.json": json.dumps(PROCESS).encode(),
    "exit.json": json.dumps(to_plain(ExitRecord(cause="exited", code=0, tail="x")) | {"process": PROCESS}).encode(),
    "reports.jsonl": LINE * 2 + encode_record(SAVED) + b"\n",
    "acknowledged.json": b'{"sequence":1,"offset":70}',
    "wanted.json": b'{"id":"r","number":1,"step":3}',
    "stop.json": b'{"grace_s":3.0,"reason":"stopped"}',
    "imports.json": b'{"modules":["json","os.path"]}',
}


@settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(
        st.sampled_from(sorted(RIGHT)).flatmap(lambda name: st.tuples(st.just(name), CONTENT | mutated(RIGHT[name]))),
        min_size=1,
        max_size=4,
    )
)
def test_no_content_of_any_file_ends_what_reads_it(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, bytes]]
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    folder = lay_out(home)
    for name, data in files:
        put(folder / name, data)

    asyncio.run(look_at_everything(home, folder))
    shutil.rmtree(home.path)


# ── single rules ────────────────────────────────────────────────────────────────────────────────
def a_held(tmp_path: Path) -> HeldAttempt:
    folder = lay_out(Home(tmp_path))
    held = load_attempt(folder)
    assert held is not None
    assert held.damage is None
    return held


def exit_text(**fields: Any) -> bytes:
    return json.dumps(to_plain(ExitRecord(cause="exited", code=0)) | fields).encode()


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (shutil.rmtree, "its folder was removed or renamed"),
        (lambda folder: folder.rename(folder.with_name("x")), "its folder was removed or renamed"),
        (lambda folder: shutil.rmtree(folder.parent.parent), "its folder was removed or renamed"),
        (lambda folder: (folder / "reports.jsonl").unlink(), "reports.jsonl was removed"),
        (lambda folder: os.truncate(folder / "reports.jsonl", 10), "reports.jsonl was cut from 412 bytes to 10"),
        (lambda folder: put(folder / "exit.json", b"["), "exit.json is damaged"),
        (lambda folder: put(folder / "exit.json", "pipe"), "exit.json cannot be read: it is no plain file"),
        (lambda folder: put(folder / "exit.json", exit_text(ended_at=1e999)), "exit.json is damaged: ended_at is inf"),
        (lambda folder: put(folder / "exit.json", exit_text(code=1 << 60)), "exit.json is damaged: code is 1152"),
        (lambda folder: put(folder / "exit.json", exit_text(code="0")), "exit.json is damaged: exit.json.code"),
        (
            lambda folder: put(folder / "exit.json", exit_text(cause="node_on_fire")),
            "exit.json is damaged: exit.json.cause: 'node_on_fire' is not a valid ExitCause",
        ),
        (
            lambda folder: put(folder / "exit.json", exit_text(isolation="container")),
            "exit.json is damaged: exit.json.isolation: 'container' is not a valid Isolation",
        ),
    ],
)
def test_what_is_damaged_is_named_and_is_how_the_attempt_ended(
    tmp_path: Path, harm: Callable[[Path], object], what: str
) -> None:
    held = a_held(tmp_path)

    harm(held.folder)
    held.look()
    assert held.damage is not None
    assert held.damage.startswith(what)

    held.end_damaged()
    assert held.exit is not None
    assert (held.exit.cause, held.exit.tail) == ("files_damaged", held.damage)
    held.write_end()
    again = HeldAttempt(held.folder, key=KEY, nonce="n1", lineage="")
    again.look()
    assert again.exit == held.exit, "a later agent finds it so, too"


def test_of_a_trial_that_is_alive_no_end_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = a_held(tmp_path)
    held.process = ProcessRecord(boot_id="b", pid=9, start_time=9)
    monkeypatch.setattr("trials.agent.attempts.is_alive", lambda _: True)

    put(held.folder / "exit.json", exit_text())
    held.look()

    assert (held.damage, held.exit) == ("exit.json was written while the trial ran", None)


def test_a_home_that_was_moved_as_a_whole_is_no_damage_of_its_attempts(tmp_path: Path) -> None:
    held = a_held(tmp_path / "home")

    (tmp_path / "home").rename(tmp_path / "elsewhere")
    held.look()

    assert (held.damage, held.exit) == (None, None)
    assert not (tmp_path / "home").exists()


def test_what_becomes_of_the_files_after_all_was_taken_changes_nothing(tmp_path: Path) -> None:
    held = a_held(tmp_path)
    put(held.folder / "exit.json", exit_text())
    held.look()
    batch = held.spool.next_batch()
    held.spool.acknowledge(batch, batch.last_sequence)

    shutil.rmtree(held.folder)
    held.look()

    assert held.damage is None
    assert held.exit is not None
    assert held.exit.cause == "exited"


def test_a_spool_that_was_emptied_and_written_anew_up_to_the_same_place_is_found_out(tmp_path: Path) -> None:
    reader = SpoolReader(tmp_path / "r", tmp_path / "a")
    (tmp_path / "r").write_bytes(LINE * 5)
    batch = reader.next_batch()
    reader.acknowledge(batch, 3)
    reader.next_batch()

    os.truncate(tmp_path / "r", 0)
    (tmp_path / "r").write_bytes(LINE.replace(b"1.0", b"2.0") * 9)

    with pytest.raises(SpoolDamagedError, match="changed before byte"):
        reader.next_batch()


def test_a_long_stretch_without_records_is_passed_over_in_turns(tmp_path: Path) -> None:
    reader = SpoolReader(tmp_path / "r", tmp_path / "a")
    (tmp_path / "r").write_bytes(LINE)
    os.truncate(tmp_path / "r", 100 << 20)
    with (tmp_path / "r").open("ab") as file:
        file.write(b"\n" + LINE)

    turns, taken = 0, 0
    while taken < 2:
        batch = reader.next_batch()
        turns += 1
        taken += len(batch.lines)
        reader.acknowledge(batch, batch.last_sequence)

    assert (reader.sequence, turns) == (2, 8)


def test_an_exception_that_nobody_has_foreseen_ends_one_attempt_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> tuple[HeldAttempt, list[str]]:
        home = Home(tmp_path)
        lay_out(home)
        agent = Agent(home)
        held = a_held_by(agent, home)
        conversation = Conversation(agent, cast("Any", None), agent_id="a", on_welcome=lambda _: None)
        told: list[str] = []

        async def tell(held: HeldAttempt) -> None:
            if held.damage is None:
                raise KeyError("nobody knows")
            told.append("" if held.exit is None else held.exit.cause)

        conversation._tell, conversation._lineage = cast("Any", tell), "l"
        conversation._take_up(held)
        async with asyncio.timeout(30):
            while not told or told[-1] != "files_damaged":
                await asyncio.sleep(0)
        await conversation._close()
        await agent.close()
        return held, told

    held, _ = asyncio.run(scene())

    assert held.exit is not None
    assert held.exit.tail == "the agent could not follow its files: KeyError('nobody knows')"
    assert "Traceback" in caplog.text


def a_held_by(agent: Agent, home: Home) -> HeldAttempt:
    held = load_attempt(home.live()["n1"])
    assert held is not None
    held.order_stop = cast("Any", lambda **_: None)  # no process here
    held.kill_all = cast("Any", lambda: None)
    agent.held["n1"] = held
    return held


def test_a_long_record_is_none(tmp_path: Path) -> None:
    (tmp_path / "r").write_text(json.dumps({"a": "x" * (1 << 20)}))

    assert read_json(str(tmp_path / "r")) is None
    assert read_json(str(tmp_path / "r"), limit=2 << 20) is not None


def test_a_log_that_was_removed_goes_on_in_a_new_file(tmp_path: Path) -> None:
    log = RotatedLog(str(tmp_path / "log"), limit=10)
    log.write(b"12345")
    (tmp_path / "log").unlink()
    log.write(b"67890abc")
    log.close()

    assert read_log(str(tmp_path / "log"), offset=10, limit=10)[0] == b"abc"


# ── parents of trials ───────────────────────────────────────────────────────────────────────────
def a_supervised(tmp_path: Path, parent: Parent, nonce: str) -> Supervised:
    folder = tmp_path / nonce
    folder.mkdir()
    spec = {"command": ["true"], "parameters": {}, "objective": "", "seed": 0}
    local = {"python": "python", "paths": [], "wake": str(tmp_path / "wake")}
    key = {"experiment_id": "e", "number": 1, "attempt": 1}
    return Supervised(str(folder), {"nonce": nonce, "spec": spec, "local": local, "key": key}, parent=parent)


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Parent:
    """One that starts nothing: whatever is to be started raises ``parent.error``."""
    waker = SimpleNamespace(descriptor=os.open(os.devnull, os.O_RDONLY), drain=lambda: None)
    monkeypatch.setattr("trials.agent.supervision.parent.Waker", lambda _: waker)

    def start(_: Start) -> int:
        raise made.error  # type: ignore[attr-defined]  # the test's own

    made = Parent(start=start, isolation="fork")
    made.makes_groups = False
    made.wake_agent = lambda nonce, path: None  # type: ignore[method-assign]  # there is no agent
    return made


def test_what_goes_wrong_with_one_attempt_ends_that_one_in_its_parent(
    tmp_path: Path, parent: Parent, capsys: pytest.CaptureFixture[str]
) -> None:
    def harm(_: Supervised) -> float:
        raise KeyError("nobody knows")

    first = a_supervised(tmp_path, parent, "n1")
    first.begin = lambda: None  # type: ignore[method-assign]  # it runs already
    first._next = harm
    other = a_supervised(tmp_path, parent, "n2")
    parent.attempts["n2"] = other
    other.step = lambda: 1.0  # type: ignore[method-assign]  # one that runs

    parent.take(first)
    while "n1" in parent.attempts:
        parent.turn(most_s=0.0)

    record = read_json(f"{tmp_path}/n1/exit.json") or {}
    assert (record["cause"], record["tail"]) == (
        "files_damaged",
        "its parent could not follow it: KeyError('nobody knows')",
    )
    assert list(parent.attempts) == ["n2"]
    assert "Traceback" in capsys.readouterr().err


def test_a_start_that_finds_no_process_to_spare_is_tried_again(
    tmp_path: Path, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent.error = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")  # type: ignore[attr-defined]
    before = len(list(Path("/proc/self/fd").iterdir()))
    supervised = a_supervised(tmp_path, parent, "n1")
    parent.take(supervised)
    assert supervised.step() == START_AGAIN_S
    assert not (tmp_path / "n1" / "exit.json").exists()

    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + START_TIMEOUT_S)
    supervised.step()

    record = read_json(f"{tmp_path}/n1/exit.json") or {}
    assert (record["cause"], "temporarily unavailable" in record["tail"]) == ("launch_failed", True)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_a_launch_uses_is_not_removed_to_make_room(tmp_path: Path) -> None:
    async def ask(_: str) -> None:
        """There is no service here."""

    blobs = BlobReceiver(tmp_path, ask=ask)
    for number in range(INCOMING_KEPT + 3):
        (tmp_path / f"d{number}").touch()
        os.utime(tmp_path / f"d{number}", (number, number))

    with blobs.holding("d0"), blobs.holding("d0", "d2"):
        remove_oldest(tmp_path, keep=INCOMING_KEPT, but=blobs.held())
    assert {path.name for path in tmp_path.iterdir()} >= {"d0", "d2"}
    assert not (tmp_path / "d1").exists()

    remove_oldest(tmp_path, keep=INCOMING_KEPT, but=blobs.held())
    assert len(list(tmp_path.iterdir())) == INCOMING_KEPT


def test_a_trial_of_thousands_of_processes_takes_a_tenth_of_its_parent(
    tmp_path: Path, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking at what it uses takes half a second each time."""
    clock, looks = [1000.0], 0

    def sample(_: object) -> None:
        nonlocal looks
        looks += 1
        clock[0] += 0.5

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    supervised = a_supervised(tmp_path, parent, "n1")
    supervised._everyone = list  # type: ignore[method-assign]  # there are none here
    supervised._usage.sample = sample  # type: ignore[method-assign]
    for _ in range(1_000):
        clock[0] += 0.1
        supervised._keep_limits()

    assert looks * 0.5 < 0.11 * (clock[0] - 1000)
    assert looks > 15
