"""Streams of events: nothing is missed, nothing is told twice, and nobody waits for a reader."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, START, StillClock, a_checkpoint, a_trial, an_experiment
from tests.memory_store import MemoryStore
from tuner_service.dispatcher.changes import TOUCHED_LIMIT, Changes, SearchSpaceRevision
from tuner_service.domain.errors import NotFoundError, UnavailableError
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import Trial, TrialStatus
from tuner_service.service import beginnings, events
from tuner_service.service.events import OUTBOX_LIMIT, EventHub, Stream
from tuner_service.service.patches import ALL

OTHER_ID = "other"
TIMEOUT_S = 10.0


class World:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.hub = EventHub(queries=self.store.queries, lineage="memory", clock=StillClock())

    def commit(self, *trials: Trial, tell: bool = True, experiment_id: str = EXPERIMENT_ID, **fields: Any) -> int:
        changes = Changes(
            experiments=fields.pop("experiments", {experiment_id: an_experiment(id=experiment_id)}),
            trials={(trial.experiment_id, trial.number): trial for trial in trials},
            **fields,
        )
        sequence = self.store.commit(changes)
        if tell:
            self.hub.committed(changes, sequence)
        return sequence

    def remove(self, experiment_id: str = EXPERIMENT_ID) -> int:
        return self.commit(experiments={}, deleted_experiments=[experiment_id])

    async def open(
        self, topic: str = EXPERIMENT_ID, last: str = "", may_go_on: Callable[[], bool] = lambda: True
    ) -> Reader:
        stream = self.hub.open(topic, may_go_on)
        return Reader(stream, await self.hub.begin(stream, last))


class Reader:
    """What one stream was told, as a client sees it."""

    def __init__(self, stream: Stream, first: bytes) -> None:
        self.stream = stream
        self.told = parsed(first)

    async def more(self) -> list[dict[str, Any]]:
        """What comes next; [] at the end."""
        events = await asyncio.wait_for(self.stream.next(), TIMEOUT_S)
        found = [] if events is None else parsed(events)
        self.told += found
        return found

    async def until(self, sequence: int) -> None:
        while self.told[-1]["data"].get("sequence", -1) < sequence:
            assert await self.more()

    @property
    def names(self) -> list[str]:
        return [event["event"] for event in self.told]

    @property
    def ids(self) -> list[int]:
        return [int(event["id"].partition("-")[0]) for event in self.told if event["event"] != "heartbeat"]


def parsed(events: bytes) -> list[dict[str, Any]]:
    blocks = [block for block in events.decode().split("\n\n") if block]
    found = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append({"event": fields["event"], "id": fields.get("id", ""), "data": json.loads(fields["data"])})
    return found


def rows(event: dict[str, Any], experiment_id: str = EXPERIMENT_ID) -> dict[int, dict[str, Any]]:
    columns = event["data"]["trials"][experiment_id]
    return {
        number: {name: column[place] for name, column in columns.items()}
        for place, number in enumerate(columns["number"])
    }


def running(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        try:
            await scenario(world)
        finally:
            world.hub.close()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PATCHES_PER_S", 1_000.0)


# ── beginning ───────────────────────────────────────────────────────────────────────────────────
def test_a_new_stream_begins_at_the_last_commit() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        reader = await world.open()
        assert reader.told == [{"event": "begin", "id": "1-memory", "data": {"sequence": 1}}]

    running(scenario)


def test_a_commit_is_told_with_the_rows_it_changed_and_its_sequence() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        reader = await world.open()
        sequence = world.commit(a_trial(number=3, last_step=7, last_value=0.5))

        (event,) = await reader.more()

        assert (event["event"], event["id"]) == ("patch", f"{sequence}-memory")
        (experiment,) = event["data"]["experiments"]
        assert (experiment["id"], experiment["line"]) == (EXPERIMENT_ID, an_experiment().next_line - 1)
        row = rows(event)[3]
        assert (row["status"], row["step"], row["last_value"]) == ("running", 7, 0.5)
        assert row["parameters"] == a_trial().parameters

    running(scenario)


def test_parameters_are_told_once_and_again_when_they_are_others() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        reader = await world.open()
        trial = a_trial(number=1)
        told = []
        for step in range(1, 4):
            trial = replace(trial, last_step=step)
            world.commit(trial)
            told.append(rows((await reader.more())[0])[1]["parameters"])
        world.commit(replace(trial, further_parameters=({"lr": 9.0},), wanted_index=1))
        told.append(rows((await reader.more())[0])[1]["parameters"])

        assert told == [trial.parameters, None, None, {"lr": 9.0}]

    running(scenario)


def test_what_is_no_number_is_told_as_json_has_it() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        reader = await world.open()
        world.commit(a_trial(number=1, last_value=float("nan"), value=float("-inf")))

        row = rows((await reader.more())[0])[1]

        assert (row["last_value"], row["value"]) == ("NaN", "-Infinity")

    running(scenario)


def test_a_stream_of_one_experiment_hears_nothing_of_others_and_that_of_all_hears_of_no_trial() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        world.commit(experiment_id=OTHER_ID)
        one, everything = await world.open(), await world.open(ALL)
        world.commit(a_trial(experiment_id=OTHER_ID), experiment_id=OTHER_ID)
        (event,) = await everything.more()
        sequence = world.commit(a_trial())
        await one.until(sequence)

        assert [e["id"] for e in event["data"]["experiments"]] == [OTHER_ID]
        assert "trials" not in event["data"]
        assert one.ids == [2, sequence]

    running(scenario)


def test_checkpoints_search_spaces_quota_groups_and_agents_are_named() -> None:
    async def scenario(world: World) -> None:
        world.commit(a_trial(number=2))
        one, everything = await world.open(), await world.open(ALL)
        space = SearchSpaceRevision(experiment_id=EXPERIMENT_ID, line=1, search_space={}, at=START)
        group = QuotaGroup(name="g", gpus=1.0, borrows=True)
        world.commit(checkpoints=[a_checkpoint(number=2)], search_spaces=[space], quota_groups={"g": group})
        (of_one,), (of_all,) = await one.more(), await everything.more()
        world.hub.cluster_changed()
        (cluster,) = await everything.more()

        assert of_one["data"]["checkpoints"] == {EXPERIMENT_ID: [2]}
        assert of_one["data"]["search_spaces"] == [EXPERIMENT_ID]
        assert "quota_groups" not in of_one["data"]
        assert of_all["data"]["quota_groups"] is True
        assert "checkpoints" not in of_all["data"]
        assert cluster == {"event": "cluster", "id": "", "data": {}}

    running(scenario)


# ── nothing missed, nothing twice ───────────────────────────────────────────────────────────────
def test_what_was_committed_between_opening_and_reading_is_told_once() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        stream = world.hub.open(EXPERIMENT_ID, lambda: True)
        before = world.commit(a_trial(number=1))
        reader = Reader(stream, await world.hub.begin(stream, "1-memory"))
        after = world.commit(a_trial(number=2))
        await reader.until(after)

        assert reader.ids == [before, after]
        assert list(rows(reader.told[0])) == [1]
        assert 2 in rows(reader.told[1])

    running(scenario)


def test_a_commit_that_was_read_before_it_was_told_is_not_told_again() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        changes = Changes(experiments={EXPERIMENT_ID: an_experiment()})
        sequence = world.store.commit(changes)
        reader = await world.open(last="1-memory")
        world.hub.committed(changes, sequence)
        later = world.commit()
        await reader.until(later)

        assert reader.ids == [sequence, later]

    running(scenario)


def test_a_reader_that_comes_back_gets_what_it_missed_in_one_patch() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        world.commit(a_trial(number=1))
        world.commit(a_trial(number=2), a_trial(number=3))
        world.commit(replace(a_trial(number=2), status=TrialStatus.SUCCEEDED))
        (event,) = (await world.open(last="2-memory")).told

        assert event["id"] == "4-memory"
        assert {number: row["status"] for number, row in rows(event).items()} == {2: "succeeded", 3: "running"}
        assert all(row["parameters"] for row in rows(event).values())

    running(scenario)


def test_a_reader_that_missed_nothing_gets_an_empty_patch() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        for topic in (ALL, EXPERIMENT_ID):
            assert (await world.open(topic, last="1-memory")).told == [
                {"event": "patch", "id": "1-memory", "data": {"sequence": 1}}
            ]

    running(scenario)


def test_commits_that_come_together_are_one_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PATCHES_PER_S", 4.0)

    async def scenario(world: World) -> None:
        world.commit()
        reader = await world.open()
        for step in range(100):
            sequence = world.commit(a_trial(number=1, last_step=step))
        await reader.until(sequence)

        assert len(reader.told) <= 3
        assert rows(reader.told[-1])[1]["step"] == 99

    running(scenario)


def test_every_reader_ends_with_what_the_rows_say_whenever_it_came_and_broke_off() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        reader, state = await world.open(), {}
        for step in range(200):
            world.commit(a_trial(number=step % 7, last_step=step))
            if step % 13 == 0:
                for event in await reader.more():
                    state |= {n: row["step"] for n, row in rows(event).items()}
            if step % 31 == 0:
                last = reader.told[-1]["id"]
                world.hub.close_stream(reader.stream)
                reader = await world.open(last=last)
                if "trials" in reader.told[0]["data"]:
                    state |= {n: row["step"] for n, row in rows(reader.told[0]).items()}
        sequence = world.commit(a_trial(number=0, last_step=1_000))
        while reader.ids[-1] < sequence:
            for event in await reader.more():
                state |= {n: row["step"] for n, row in rows(event).items()}

        stored = {trial.number: trial.last_step for trial in world.store.queries.trials(EXPERIMENT_ID, after=-1)}
        assert state == stored
        assert reader.ids == sorted(set(reader.ids))

    running(scenario)


# ── gaps ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "last", ["2-memory", "1-other", "1", "-memory", "-1-memory", "x", "1-memory-", "9" * 30 + "-memory", "¹-memory"]
)
def test_an_id_that_is_none_of_this_database_is_a_gap(last: str) -> None:
    async def scenario(world: World) -> None:
        world.commit()
        (event,) = (await world.open(last=last)).told
        assert (event["event"], event["data"]) == ("gap", {"sequence": 1, "reason": "unknown"})

    running(scenario)


def test_commits_that_are_not_kept_any_more_are_a_gap_and_the_stream_goes_on() -> None:
    async def scenario(world: World) -> None:
        world.store.queries.commits_kept = 2
        for _ in range(5):
            world.commit()
        assert (await world.open(last="3-memory")).names == ["patch"]
        reader = await world.open(last="2-memory")
        await reader.until(world.commit())

        assert reader.names == ["gap", "patch"]
        assert reader.told[0]["data"]["reason"] == "too_old"

    running(scenario)


def test_more_trials_than_a_patch_holds_are_a_gap_live_and_replayed() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        reader = await world.open()
        many = [a_trial(number=number) for number in range(TOUCHED_LIMIT + 1)]
        sequence = world.commit(*many)
        await reader.until(sequence)
        await reader.until(world.commit(many[0]))
        back = await world.open(last="1-memory")

        assert reader.names == ["begin", "gap", "patch"]
        assert (reader.told[1]["data"]["reason"], back.told[0]["data"]["reason"]) == ("too_many", "too_many")

    running(scenario)


def test_more_experiments_than_a_patch_holds_are_a_gap_live_and_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (events, beginnings):
        monkeypatch.setattr(module, "EXPERIMENTS_LIMIT", 2)

    async def scenario(world: World) -> None:
        world.commit()
        reader = await world.open(ALL)
        sequence = world.commit(experiments={f"e{n}": an_experiment(id=f"e{n}") for n in range(3)})
        await reader.until(sequence)

        assert reader.told[-1]["data"]["reason"] == "too_many"
        assert (await world.open(ALL, last="1-memory")).told[0]["data"]["reason"] == "too_many"

    running(scenario)


def test_the_stream_of_an_experiment_that_is_removed_ends_with_a_gap() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        one, everything = await world.open(), await world.open(ALL)
        world.remove()
        (event,), (of_all,) = await one.more(), await everything.more()

        assert (event["event"], event["data"]["reason"]) == ("gap", "removed")
        assert await one.more() == []
        assert of_all["data"] == {"sequence": 2, "removed": [EXPERIMENT_ID]}
        assert (await world.open(ALL, last="1-memory")).told == [of_all]

    running(scenario)


def test_who_comes_back_to_an_experiment_that_is_gone_is_told_so() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        world.remove()
        reader = await world.open(last="1-memory")

        assert reader.told[0]["data"]["reason"] == "removed"
        assert await reader.more() == []
        with pytest.raises(NotFoundError):
            await world.open()

    running(scenario)


def test_a_reader_that_does_not_read_is_dropped_with_a_gap_and_keeps_nobody_waiting() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        slow, quick = await world.open(), await world.open()
        for step in range(OUTBOX_LIMIT + 1):
            sequence = world.commit(a_trial(number=1, last_step=step))
            await quick.until(sequence)

        (event,) = await slow.more()

        assert (event["event"], event["data"]["reason"]) == ("gap", "slow")
        assert await slow.more() == []
        assert quick.names == ["begin", *["patch"] * (OUTBOX_LIMIT + 1)]

    running(scenario)


# ── bounds and ends ─────────────────────────────────────────────────────────────────────────────
def test_there_are_so_many_streams_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_STREAMS", 2)

    async def scenario(world: World) -> None:
        world.commit()
        first, _ = await world.open(), await world.open(ALL)
        with pytest.raises(UnavailableError, match="2 streams"):
            await world.open()
        world.hub.close_stream(first.stream)
        world.hub.close_stream(first.stream)
        assert world.hub.count == 1
        await world.open()

    running(scenario)


def test_heartbeats_carry_the_newest_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.01)

    async def scenario(world: World) -> None:
        world.commit()
        reader = await world.open()
        sequence = world.commit(experiment_id=OTHER_ID)
        while reader.told[-1]["data"]["sequence"] < sequence:
            await reader.more()

        assert set(reader.names) == {"begin", "heartbeat"}
        assert reader.told[-1]["id"] == f"{sequence}-memory"

    running(scenario)


def test_the_stream_of_who_was_signed_out_ends() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        may = [True]
        one, other = await world.open(may_go_on=lambda: may[0]), await world.open()
        may[0] = False
        world.hub.end_those_who_may_not()

        assert await one.more() == []
        await other.until(world.commit())

    running(scenario)


def test_every_stream_ends_when_the_service_does() -> None:
    async def scenario(world: World) -> None:
        world.commit()
        readers = [await world.open(), await world.open(ALL)]
        world.hub.close()

        assert [await reader.more() for reader in readers] == [[], []]
        with pytest.raises(UnavailableError):
            await world.open()

    running(scenario)


def test_what_goes_wrong_while_telling_ends_the_streams_so_that_they_come_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        world.commit()
        reader = await world.open()
        monkeypatch.setattr(events, "patch_event", lambda *_, **__: 1 / 0)
        world.commit()
        assert await reader.more() == []

    running(scenario)
    assert "events_not_told" in caplog.text


def test_without_a_reader_nothing_is_kept_and_no_thread_is_there() -> None:
    world = World()
    for number in range(3):
        world.commit(a_trial(number=number))

    assert world.hub._pending is None
    assert world.hub._thread is None


def test_where_no_thread_can_be_had_the_next_reader_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario(world: World) -> None:
        world.commit()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(RuntimeError, match="new thread"):
                world.hub.open(EXPERIMENT_ID, lambda: True)
        reader = await world.open()
        world.commit()
        assert len(await reader.more()) == 1

    running(scenario)


# ── what a reader of rows is told ───────────────────────────────────────────────────────────────
def test_the_newest_commit_is_known_at_once_whether_anybody_listens_or_not() -> None:
    async def story() -> None:
        world = World()
        alone = world.commit()
        assert world.hub.newest == alone
        await world.open()
        heard = world.commit()
        assert world.hub.newest == heard
        assert world.hub.sequence_in(world.hub.event_id(heard)) == heard
        assert world.hub.sequence_in(world.hub.event_id(heard + 1)) is None, "nobody was told that yet"
        assert world.hub.sequence_in(f"{heard}-another") is None
        world.hub.close()

    asyncio.run(story())
