from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from trials.agent import spool as spool_module
from trials.agent.agent import Agent
from trials.agent.spool import SpoolDamagedError, SpoolReader, is_record
from trials.wire.encoding import decode_record
from trials.wire.limits import REPORT_BATCH_LINES
from trials.wire.lines import metric_line
from trials.wire.records import (
    CheckpointRecord,
    CooperationRecord,
    MetricRecord,
    SpoolRecord,
    StopToldRecord,
    encode_record,
)


def line(step: int) -> bytes:
    return metric_line(step=step, values={"loss": float(step)}, at=1.0, final=False) + b"\n"


def steps(lines: tuple[str, ...]) -> list[int | None]:
    return [record.step for record in map(decode_record, lines) if isinstance(record, MetricRecord)]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "reports.jsonl"


def reader_of(spool: Path) -> SpoolReader:
    return SpoolReader(spool, spool.with_name("acknowledged.json"))


@pytest.mark.parametrize(
    "record",
    [
        MetricRecord(step=None, values={"loss": float("nan"), "b": float("-inf")}, at=1.0, final=True),
        MetricRecord(step=3, values={"a": 1.0}, at=1.0),
        CheckpointRecord(step=1, name="a", digest="d" * 64, size=3, at=1.0),
        CooperationRecord(at=2.0),
        StopToldRecord(at=2.0),
    ],
)
def test_every_record_of_the_protocol_is_one_here(record: SpoolRecord) -> None:
    assert is_record(encode_record(record))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[1]",
        b'{"kind":"metric","step":1',
        b'{"kind":"unknown"}',
        b'{"kind":["metric"]}',
        b'{"kind":"metric","step":1.5,"values":{},"at":1,"final":false}',
        b'{"kind":"metric","step":1,"values":{"a":"x"},"at":1,"final":false}',
        b'{"kind":"metric","step":1,"values":{"a":true},"at":1,"final":false}',
        b'{"kind":"metric","st{"kind":"cooperates","at":1.0}',
        b'{"kind":"metric","step":-1,"values":{},"at":1,"final":false}',
        b'{"kind":"metric","step":1,"values":{"a":1' + b"0" * 400 + b'},"at":1,"final":false}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_the_service_could_not_read_is_no_record(text: bytes) -> None:
    assert not is_record(text)


def test_a_spool_that_is_not_there_is_empty(spool: Path) -> None:
    reader = reader_of(spool)

    assert (reader.next_batch().lines, reader.last_sequence(), reader.size()) == ((), 0, 0)


def test_only_whole_lines_count_and_torn_ones_are_passed_over(spool: Path) -> None:
    spool.write_bytes(line(0) + b'{"kind":"metr\n\n' + line(1) + line(2)[:-5])
    reader = reader_of(spool)

    batch = reader.next_batch()

    assert (steps(batch.lines), batch.first_sequence, reader.last_sequence()) == ([0, 1], 1, 2)
    with spool.open("ab") as file:
        file.write(line(2)[-5:])
    assert reader.last_sequence() == 3


def test_reading_goes_on_from_what_was_acknowledged_also_in_part(spool: Path) -> None:
    spool.write_bytes(b"".join(map(line, range(5))))
    reader = reader_of(spool)
    reader.acknowledge(reader.next_batch(), 2)
    assert steps(reader.next_batch().lines) == [2, 3, 4]
    reader.save()

    again = reader_of(spool)

    assert (again.sequence, steps(again.next_batch().lines), again.next_batch().first_sequence) == (2, [2, 3, 4], 3)


def test_a_spool_that_was_emptied_and_written_anew_up_to_where_it_was_taken_is_damaged(spool: Path) -> None:
    spool.write_bytes(line(0) + line(1))
    reader = reader_of(spool)
    reader.acknowledge(reader.next_batch(), 2)
    assert reader.next_batch().lines == ()

    with spool.open("r+b") as file:
        file.write(line(5) + line(6) + line(7))
    with pytest.raises(SpoolDamagedError, match="was changed before byte"):
        reader.next_batch()


def test_a_long_spool_comes_in_batches(spool: Path) -> None:
    count = REPORT_BATCH_LINES * 2 + 7
    spool.write_bytes(b"".join(map(line, range(count))))
    reader = reader_of(spool)
    seen: list[int | None] = []
    while (batch := reader.next_batch()).lines:
        assert batch.first_sequence == len(seen) + 1
        seen += steps(batch.lines)
        reader.acknowledge(batch, batch.last_sequence)

    assert seen == list(range(count))


def test_the_service_may_have_more_or_less_than_the_agent_knew(spool: Path) -> None:
    spool.write_bytes(b"".join(map(line, range(10))))
    reader = reader_of(spool)

    asyncio.run(reader.move_to(7))
    assert steps(reader.next_batch().lines) == [7, 8, 9]
    asyncio.run(reader.move_to(3))
    assert steps(reader.next_batch().lines) == list(range(3, 10))
    asyncio.run(reader.move_to(1_000))
    assert reader.next_batch().lines == ()


def test_a_stretch_without_line_ends_does_not_stop_what_follows(spool: Path) -> None:
    spool.write_bytes(b"\0" * (3 << 20) + b"\n" + line(1))

    assert steps(reader_of(spool).next_batch().lines) == [1]


def test_records_that_come_after_more_lines_of_anything_than_a_message_holds_are_found(spool: Path) -> None:
    spool.write_bytes(b"{}\n" * (REPORT_BATCH_LINES + 3) + line(1) + b"7\n" + line(2))

    batch = reader_of(spool).next_batch()

    assert steps(batch.lines) == [1, 2]
    assert batch.ends[-1] == spool.stat().st_size


def test_lines_that_only_make_sense_together_are_no_records(spool: Path) -> None:
    whole = line(1).rstrip(b"\n")
    middle = whole.index(b",") + 1
    spool.write_bytes(whole[:middle] + b"\n" + whole[middle:] + b"\n" + whole + b"," + whole + b"\n" + line(2))

    assert steps(reader_of(spool).next_batch().lines) == [2]


def test_an_attempt_that_the_service_has_whole_is_not_damaged_by_the_agents_own_tidying(spool: Path) -> None:
    spool.write_bytes(line(0) + line(1))
    reader = reader_of(spool)
    reader.acknowledge(reader.next_batch(), 2)
    agent, held = MagicMock(), MagicMock(folder=spool.parent, spool=reader)
    agent.held = {"n1": held}
    agent._run = lambda work, **_: asyncio.run(work)

    Agent.forget(agent, "n1")

    assert agent.held == {}
    assert spool.stat().st_size == 0
    assert (reader.size(), reader.last_sequence()) == (reader.offset, 2)  # whoever ends it by force may look again


def test_an_attempt_that_runs_is_not_forgotten_whatever_the_service_says(spool: Path) -> None:
    spool.write_bytes(line(0))
    agent, held = MagicMock(), MagicMock(folder=spool.parent, spool=reader_of(spool), exit=None)
    agent.held = {"n1": held}

    Agent.forget(agent, "n1")

    assert agent.held == {"n1": held}
    assert spool.read_bytes() == line(0)


@pytest.mark.parametrize("work", [SpoolReader.count, lambda reader: reader.move_to(30)], ids=["count", "move"])
def test_a_long_spool_is_looked_through_while_others_have_their_turn(
    spool: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[SpoolReader], Awaitable[object]]
) -> None:
    """An agent has one loop, and follows all its trials in it."""
    monkeypatch.setattr(spool_module, "REPORT_BATCH_LINES", 3)
    spool.write_bytes(b"".join(map(line, range(30))))
    reader, turns = reader_of(spool), 0

    async def read() -> None:
        nonlocal turns
        task = asyncio.ensure_future(work(reader))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(read())
    assert reader.last_sequence() == 30
    assert turns >= 10
