"""What crosses between a trial and a shared data server, and where samples lie in the memory between them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.data.core.sample_layout import Layout
from trials.data.errors import SharingError
from trials.data.sharing.group_order import GroupOrder
from trials.data.sharing.producer import plan
from trials.data.sharing.producer_protocol import (
    Answered,
    Ask,
    Geometry,
    Hello,
    Refused,
    Welcome,
    decode,
    decode_answer,
    decode_ask,
    encode,
    encode_answer,
    encode_ask,
    require_private,
)
from trials.data.sharing.ring import Ring, make_ring, page_slots, require_possible, require_sealed, seal_ring
from trials.wire.plain import ProtocolError

SAMPLE = (np.arange(12, dtype=np.float32).reshape(3, 4), 5, {"flag": True, "half": np.float16(0.5)})
LAYOUT = Layout.of(SAMPLE)
assert LAYOUT is not None
GEOMETRY = Geometry(windows=2, capacity=page_slots(LAYOUT.leaves), cached=3, leaves=LAYOUT.leaves)


def a_group(length: int = 1000, block: int = 16) -> GroupOrder:
    return GroupOrder(length=length, shuffle=True, block=block, dataset="d", group_seed=0)


def a_sample(number: int) -> tuple[Any, ...]:
    return (np.full((3, 4), number, dtype=np.float32), number, {"flag": number % 2 == 0, "half": np.float16(number)})


@pytest.mark.parametrize(
    "message",
    [
        Hello(version=1, fingerprint="f", is_waited_for=True, pid=3),
        Welcome(version=1, geometry=GEOMETRY, per_epoch=False),
        Refused(reason="another dataset"),
    ],
)
def test_a_message_is_read_as_it_was_written(message: Any) -> None:
    assert decode(encode(message)) == message


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**61), st.integers(0, 2**61), st.booleans())
def test_a_record_is_read_as_it_was_written(number: int, first: int, size: int, waits: bool) -> None:
    ask = Ask(number=number, first=first, last=first + size, waits=waits)
    assert decode_ask(encode_ask(ask)) == ask
    answer = Answered(number=number, window=None if waits else size % 16)
    assert decode_answer(encode_answer(answer)) == answer


@given(st.binary(max_size=64))
def test_garbage_is_no_message_and_raises_nothing_else(data: bytes) -> None:
    for read in (decode, decode_ask, decode_answer):
        with pytest.raises(ProtocolError):
            read(data)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_an_ask_that_makes_no_sense_is_refused(first: int, last: int) -> None:
    data = encode_ask(Ask(number=1, first=first, last=last, waits=True))
    if 0 <= first <= last <= 2**62:
        assert decode_ask(data).last == last
    else:
        with pytest.raises(ProtocolError):
            decode_ask(data)


def test_samples_are_read_from_the_ring_as_they_were_written_also_over_its_end() -> None:
    descriptor = make_ring(GEOMETRY)
    writer = Ring(GEOMETRY, descriptor, is_writer=True)
    seal_ring(descriptor)
    require_sealed(descriptor, GEOMETRY)
    reader = Ring(GEOMETRY, descriptor)
    os.close(descriptor)
    assert LAYOUT is not None
    first = GEOMETRY.capacity - 3
    for position in range(first, first + 7):
        values = LAYOUT.values(a_sample(position))
        assert values is not None
        writer.write(writer.slot(1, position), LAYOUT, values)
    cached = writer.cache_slot(2)
    assert cached is not None
    writer.copy(writer.slot(1, first), cached)

    run = reader.run(1, first, 7)
    assert run[1].tolist() == list(range(first, first + 7))
    assert [batch[0, 0] for batch in run[0]] == [float(position) for position in range(first, first + 7)]

    slots = np.array([reader.slot(1, first + 6), cached, reader.slot(1, first + 1)])
    out = [np.empty((3, leaf.size), dtype=np.uint8) for leaf in GEOMETRY.leaves]
    reader.gather(slots, out)
    assert out[1].view(np.int64).reshape(-1).tolist() == [first + 6, first, first + 1]
    assert reader.cache_slot(3) is None


def test_arrays_of_the_ring_stay_valid_after_it_is_gone() -> None:
    descriptor = make_ring(GEOMETRY)
    ring = Ring(GEOMETRY, descriptor, is_writer=True)
    os.close(descriptor)
    run = ring.run(0, 0, 2)
    del ring

    run[0][:] = 7
    assert run[0].sum() == 7 * 24


@pytest.mark.parametrize(
    "changes", [{"windows": 0}, {"windows": 1000}, {"capacity": 0}, {"capacity": 3}, {"cached": -1}, {"leaves": ()}]
)
def test_a_ring_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    fields = {"windows": 2, "capacity": GEOMETRY.capacity, "cached": 3, "leaves": GEOMETRY.leaves} | changes

    with pytest.raises(SharingError):
        require_possible(Geometry(**fields))


def test_memory_that_could_shrink_under_a_reader_is_refused() -> None:
    descriptor = make_ring(GEOMETRY)
    with pytest.raises(SharingError):
        require_sealed(descriptor, GEOMETRY)
    os.close(descriptor)


@pytest.mark.parametrize("memory_bytes", [1 << 20, 4 << 20, 64 << 20, 1 << 30])
def test_windows_and_cache_stay_within_the_memory_they_may_take(memory_bytes: int) -> None:
    assert LAYOUT is not None
    found = plan(LAYOUT, order=a_group(), memory_bytes=memory_bytes)

    require_possible(found)
    assert found.capacity >= 2 * 16
    assert found.windows * found.capacity * sum(64 for _ in found.leaves) + found.cached * 256 <= memory_bytes
    assert found.cached <= 1000


def test_a_memory_that_is_too_small_says_what_is_needed() -> None:
    layout = Layout.of(np.zeros((512, 512), dtype=np.float32))
    assert layout is not None

    with pytest.raises(SharingError, match="needs 32 MiB for two blocks of 16 samples of 1048576 bytes"):
        plan(layout, order=a_group(), memory_bytes=1 << 20)


def test_every_index_stands_once_in_an_epoch_and_blocks_are_the_same_for_every_trial() -> None:
    group = a_group(length=2100, block=16)
    for epoch in (0, 1):
        stream = group.indices_of_stream(epoch * 2100, 2100)
        assert sorted(stream) == list(range(2100))
        for seed in (1, 2):
            own = group.indices(epoch, group.places(epoch, 0, 2100, own_seed=seed))
            assert list(own) != list(stream)
            for block in range(0, 2100, 16):
                assert set(own[block : block + 16]) == set(stream[block : block + 16])
            parts = [group.places(epoch, begin, min(begin + 700, 2100), own_seed=seed) for begin in range(0, 2100, 700)]
            assert list(group.indices(epoch, np.concatenate(parts))) == list(own)


def test_a_folder_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    require_private(tmp_path / "own")
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open").chmod(0o755)

    with pytest.raises(PermissionError, match="chmod 700"):
        require_private(tmp_path / "open")
