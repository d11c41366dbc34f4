from __future__ import annotations

import contextlib
import io
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner_service.dispatcher import importing
from tuner_service.dispatcher.items import Queue, ResultsImported
from tuner_service.domain.trial import TrialOutcome, TrialStatus
from tuner_service.workers import protocol
from tuner_service.workers.messages import Told, command_to_wire
from tuner_service.workers.protocol import (
    DTYPES,
    FRAME_LIMIT_BYTES,
    LENGTH,
    FrameError,
    decode_payload,
    encode_frame,
    encode_frames,
    pack,
    read_frame,
)


def journey(value: Any) -> Any:
    frame = read_frame(io.BytesIO(encode_frame([pack(value)])))
    assert frame is not None
    return frame[0]


def same(left: Any, right: Any) -> bool:
    """Equal with types, NaN being equal to itself."""
    return repr(left) == repr(right) and type(left) is type(right)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.sampled_from(["__tuple__", "__ndarray__", "__scalar__", "dtype"]), inner)
        | st.dictionaries(st.integers() | st.tuples(st.integers()), inner)
    ),
    max_leaves=20,
)


@given(plain)
def test_every_plain_value_survives_the_journey(value: Any) -> None:
    assert same(journey(value), value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, (1, (2,)), {"a": (math.nan,)}, {1: {(2,): 3}}])
def test_what_json_loses_survives(value: Any) -> None:
    assert same(journey(value), value)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_numpy_scalars_and_arrays_survive_with_their_type(dtype: str) -> None:
    scalar = np.ones((), dtype=dtype)[()]
    assert type(journey({"x": [scalar]})["x"][0]) is type(scalar)
    for shape in [(), (3,), (2, 0), (2, 2)]:
        array = np.ones(shape, dtype=dtype)
        returned = journey((array,))[0]
        assert returned.dtype == array.dtype
        assert returned.shape == array.shape
        assert np.array_equal(returned, array)


def test_an_array_may_hold_nan() -> None:
    assert np.array_equal(journey(np.array([math.nan, math.inf])), np.array([math.nan, math.inf]), equal_nan=True)


class Secret:
    pass


@pytest.mark.parametrize(
    "value", [Secret(), {1, 2}, b"x", 1j, np.array([Secret()]), np.datetime64("2020-01-01"), np.array(["x"]), print]
)
def test_what_is_no_plain_value_cannot_be_sent(value: Any) -> None:
    with pytest.raises(FrameError):
        encode_frame([pack({"x": value})])


@pytest.mark.parametrize(
    "hostile",
    [
        {"__instance_type__": ["os", "system"], "attributes": {"command": "true"}},
        {"__instance_type__": [None, "Secret"], "attributes": {}},
        {"__enum__": {"__enum_instance_type__": ["signal", "Signals"], "name": "SIGKILL"}},
        {"__complex__": [1, 2]},
        {"__set__": [1]},
        {"__pathlib__": "/etc/passwd"},
        {"__datetime__": None, "year": 2020},
        {"__decimal__": "1"},
        {"__bytes_b64__": "AAAA"},
        {"__slice__": True, "start": 0, "stop": 1, "step": 1},
        {"__pandas_dataframe__": []},
        {"__tuple__": [1], "more": 2},
        {"__ndarray__": [1]},
    ],
)
def test_marks_that_are_not_ours_stay_plain_dicts(hostile: dict[str, Any]) -> None:
    assert decode_payload(json.dumps([hostile]).encode()) == [hostile]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"{}",
        b"3",
        b"[1,",
        b"[1] // comment",
        b"\x1f\x8b\x08\x00",
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 150 + b"]" * 150,
        b"[" + b"9" * 5_000 + b"]",
        b'[{"__tuple__": 3}]',
        b'[{"__mapping__": [[1]]}]',
        b'[{"__mapping__": [[[1], 2]]}]',
        b'[{"__mapping__": 3}]',
        b'[{"__ndarray__": [1], "dtype": "object", "shape": [1]}]',
        b'[{"__ndarray__": [1], "dtype": ["int64"], "shape": [1]}]',
        b'[{"__ndarray__": [1], "dtype": "int64", "shape": [1000000000000]}]',
        b'[{"__ndarray__": [1], "dtype": "int64", "shape": [-1]}]',
        b'[{"__ndarray__": [1], "dtype": "int64", "shape": null}]',
        b'[{"__ndarray__": [[1], [1, 2]], "dtype": "int64", "shape": [2]}]',
        b'[{"__ndarray__": [1e400], "dtype": "int8", "shape": [1]}]',
        b'[{"__scalar__": {"a": 1}, "dtype": "float64"}]',
        b'[{"__scalar__": [1, 2], "dtype": "float64"}]',
        b'[{"__scalar__": 300, "dtype": "uint8"}]',
    ],
)
def test_a_hostile_payload_is_refused_with_a_frame_error(payload: bytes) -> None:
    with pytest.raises(FrameError):
        decode_payload(payload)


@given(st.binary(max_size=200))
def test_any_bytes_either_are_a_frame_or_raise_a_frame_error(payload: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert isinstance(decode_payload(payload), list)


def test_a_frame_that_is_announced_too_long_is_not_read() -> None:
    with pytest.raises(FrameError, match="announced"):
        read_frame(io.BytesIO(LENGTH.pack(FRAME_LIMIT_BYTES + 1)))


@pytest.mark.parametrize("cut", [1, 3, 5, 8])
def test_a_stream_that_ends_inside_a_frame_is_told_from_one_that_ends_between_two(cut: int) -> None:
    frame = encode_frame(["something"])
    with pytest.raises(FrameError, match="ended inside"):
        read_frame(io.BytesIO(frame[:cut]))
    assert read_frame(io.BytesIO(b"")) is None


def test_values_nested_too_deeply_are_not_packed() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(FrameError, match="nested"):
        pack(endless)


def test_many_objects_become_several_frames_in_order() -> None:
    megabyte = "x" * (10 << 20)
    frames = encode_frames([f"{i}{megabyte}" for i in range(8)])
    assert len(frames) > 1
    stream = io.BytesIO(b"".join(frames))
    got = []
    while (objects := read_frame(stream)) is not None:
        got += [text[0] for text in objects]
    assert got == [str(i) for i in range(8)]


def test_one_object_that_is_too_large_is_refused() -> None:
    with pytest.raises(FrameError, match=str(protocol.FRAME_LIMIT_BYTES)):
        encode_frames(["x" * (FRAME_LIMIT_BYTES + 1)])


@pytest.mark.parametrize("text", ["a", "é", "𝔘"])
def test_results_from_elsewhere_are_measured_as_they_are_sent(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame has a limit in bytes, and is ASCII."""
    monkeypatch.setattr(importing, "IMPORTED_LINE_BYTES", 10_000)
    outcomes = [
        TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters={"text": text * 100}, value=n / 3)
        for n in range(200)
    ]
    parts = [line.outcomes for line in importing.lines_of(outcomes)]

    assert [outcome for part in parts for outcome in part] == outcomes
    sent = [Told(queue=Queue.TUNER, item=ResultsImported(line=1, outcomes=part)) for part in parts]
    sizes = [len(encode_frame([command_to_wire(told)])) for told in sent]
    assert max(sizes) <= 10_000 + 500
    assert min(sizes[:-1]) >= 10_000 - 1_500
