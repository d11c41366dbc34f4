"""States as torch writes them: arrays in them are read back as they were, and never as addresses."""

from __future__ import annotations

import io
import math
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

from trials.checkpoints import torch_states


def read_back(state: Any) -> Any:
    file = io.BytesIO(b"before")
    file.seek(0, io.SEEK_END)
    torch_states.save(state, file)
    file.seek(6)
    torch_states.require_loadable(file)
    file.seek(6)
    return torch_states.load(file)


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "<f2", ">f4", "f8", "c16", "S5", "<U3"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_an_array_is_read_back_as_it_was(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)

    for given in (array, array.T, array.astype(dtype)[...]):
        found = read_back({"a": given})["a"]
        assert type(found) is np.ndarray
        assert (found.dtype, found.shape, found.tolist()) == (given.dtype, given.shape, given.tolist())
        assert found.flags.writeable
        assert found.flags.f_contiguous == given.flags.f_contiguous


def test_arrays_are_found_wherever_they_stand_and_stay_the_same_object() -> None:
    array, number, kind = np.arange(3), np.float32(0.5), np.dtype(">i4")
    weights = torch.nn.Parameter(torch.ones(2))
    weights.note = array  # type: ignore[attr-defined]
    state = {"list": [array, (number, [array])], "o": OrderedDict(a=kind), kind: 1, "w": weights, number: "n"}

    found = read_back(state)

    assert list(found) == ["list", "o", kind, "w", number]
    assert found["list"][0] is found["list"][1][1][0]
    assert (found["list"][1][0], type(found["list"][1][0])) == (number, np.float32)
    assert (type(found["o"]), found["o"]["a"]) == (OrderedDict, kind)
    assert found["w"].note.tolist() == [0, 1, 2]
    assert torch.equal(found["w"], weights)


def test_a_list_that_holds_itself_is_read_back() -> None:
    state: list[Any] = [np.arange(2)]
    state.append(state)

    found = read_back(state)

    assert found[1] is found
    assert found[0].tolist() == [0, 1]


class Pickled:
    """Pickles as what it is told to."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def kind(code: Any, flags: int = 0, version: int = 3) -> Pickled:
    return Pickled(np.dtype, (code, False, True), (version, "<", None, None, None, -1, -1, flags))


RECONSTRUCT = np.empty(0).__reduce__()[0]
SCALAR = np.float64(0).__reduce__()[0]
ADDRESS = b"\x41" * 8


def array_of(dtype: Any, data: Any, subtype: Any = np.ndarray) -> Pickled:
    return Pickled(RECONSTRUCT, (subtype, (0,), b"b"), (1, (1,), dtype, False, data))


@pytest.mark.parametrize(
    "hostile",
    [
        array_of(kind("O8"), [1]),
        array_of(kind("O8"), ADDRESS),
        array_of(kind("V8", flags=63), ADDRESS),
        array_of(kind([("f", "O")]), ADDRESS),
        array_of(kind("f8"), [1.0]),
        array_of(kind("f8"), b"short"),
        array_of("f8", ADDRESS),
        Pickled(RECONSTRUCT, (np.ndarray, (0,), b"b")),
        Pickled(SCALAR, (kind("O8"), ADDRESS)),
        Pickled(SCALAR, ("f8", ADDRESS)),
        Pickled(SCALAR, (kind("f8"), b"short")),
        Pickled(np.ndarray, ((1,), "O", ADDRESS)),
    ],
)
def test_an_array_that_is_no_plain_data_is_refused(hostile: Pickled) -> None:
    file = io.BytesIO()
    torch.save({"a": hostile}, file)
    file.seek(0)

    with pytest.raises((pickle.UnpicklingError, TypeError, ValueError)):
        torch_states.load(file)


def test_numbers_that_are_said_to_be_objects_are_numbers() -> None:
    file = io.BytesIO()
    torch.save({"a": array_of(kind("f8", flags=63), ADDRESS)}, file)
    file.seek(0)

    found = torch_states.load(file)["a"]

    assert not found.dtype.hasobject
    assert found.tobytes() == ADDRESS
