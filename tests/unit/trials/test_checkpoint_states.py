"""What a state may hold, and that it is read back exactly as it was when it was saved."""

from __future__ import annotations

import json
import math
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trials.checkpoints.file_format import BLOCK_BYTES, MAGIC_PIECES, Image, Imaging, read_image
from trials.checkpoints.state_tree import Restoring


def image_of(state: Any, imaging: Imaging | None = None) -> Image:
    return (imaging or Imaging()).capture(state, step=3, index=1)


def read_back(folder: Path, state: Any) -> Any:
    path = folder / "file.ckpt"
    path.write_bytes(b"".join(image_of(state).parts))
    found = read_image(path)
    assert (found.step, found.index) == (3, 1)
    return found.state


@pytest.mark.parametrize(
    "state",
    [
        {"a": [1, 2.5, None, "x", True], "b": {"c": float("inf")}},
        b"\0bytes\n",
        "text",
        3,
        {1: (2, {3}), None: frozenset({"x"}), (1, 2): 2j, "bytes": b"x" * 9_000, "array": bytearray(b"short")},
        {"large": -(2**200), "minus": -0.0, "\ud800": "\ud800"},
        OrderedDict(b=(1,), a=(2,)),
        {"size": torch.Size([1, 2]), "dtype": torch.bfloat16, "device": torch.device("cuda:1")},
    ],
)
def test_a_state_is_read_back_as_it_was(tmp_path: Path, state: Any) -> None:
    found = read_back(tmp_path, state)

    assert repr(found) == repr(state)
    assert type(found) is type(state)


def test_memory_stands_at_multiples_of_64_and_of_a_block_where_it_is_large() -> None:
    """The file can be mapped, whatever it holds."""
    sizes = [5, 70, 130, BLOCK_BYTES + 1]
    arrays = [np.frombuffer(random.Random(size).randbytes(size), dtype="u1").copy() for size in sizes]

    data = b"".join(image_of(arrays).parts)

    places = [data.index(array.tobytes()) for array in arrays]
    assert [place % 64 for place in places] == [0] * 4
    assert places[3] % BLOCK_BYTES == 0


def test_nan_is_read_back(tmp_path: Path) -> None:
    assert math.isnan(read_back(tmp_path, {"x": math.nan, 1: 2})["x"])


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "<f2", ">f4", "f8", "c16"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_an_array_is_read_back_as_it_was(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)

    for given in (array, array.T, array[..., ::2] if shape else array, array.dtype.type(1)):
        found = read_back(tmp_path, [given])[0]
        assert type(found) is type(given)
        assert found.dtype.newbyteorder("=") == given.dtype.newbyteorder("=")
        assert found.shape == given.shape
        np.testing.assert_array_equal(found, given)
    assert read_back(tmp_path, [array.T])[0].flags.f_contiguous


TENSORS = {
    "plain": torch.arange(12.0).reshape(3, 4),
    "scalar": torch.tensor(2.5),
    "empty": torch.empty(0, 5),
    "bool": torch.tensor([True, False]),
    "bfloat16": torch.arange(5, dtype=torch.bfloat16),
    "complex": torch.full((3,), 1 + 2j),
    "expanded": torch.ones(3, 1).expand(3, 5),
    "transposed": torch.arange(6.0).reshape(2, 3).T,
    "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "parameter": torch.nn.Parameter(torch.ones(2)),
    "needs a gradient": torch.ones(2, requires_grad=True),
    "thin": torch.arange(10_000.0).reshape(100, 100)[3:5, ::7],
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_is_read_back_as_it_was(tmp_path: Path, name: str) -> None:
    tensor = TENSORS[name]

    found = read_back(tmp_path, [tensor])[0]

    assert type(found) is type(tensor)
    assert (found.dtype, found.shape, found.requires_grad) == (tensor.dtype, tensor.shape, tensor.requires_grad)
    assert torch.equal(found, tensor)
    if name != "thin":
        assert found.stride() == tensor.stride()


def test_tied_weights_are_tied_again_and_a_thin_view_does_not_drag_its_storage_along(tmp_path: Path) -> None:
    storage = torch.arange(100_000.0)
    tied = read_back(
        tmp_path, {"whole": storage[10:20], "part": storage[12:14], "bytes": storage[11:12].view(torch.int8)}
    )

    tied["whole"][2] = -1.0
    assert tied["part"][0] == -1.0
    assert tied["bytes"].tolist() == storage[11:12].view(torch.int8).tolist()
    assert image_of({"thin": storage[5:6]}).size < 100_000


def test_a_module_and_its_optimizer_are_read_back_with_their_versions(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()

    found = read_back(tmp_path, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})

    assert found["model"]._metadata == model.state_dict()._metadata
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])


def test_what_only_torch_can_write_is_written_by_torch(tmp_path: Path) -> None:
    sparse = torch.eye(3).to_sparse()

    assert torch.equal(read_back(tmp_path, {"sparse": sparse})["sparse"].to_dense(), torch.eye(3))


def test_what_could_execute_code_is_refused_when_it_is_saved() -> None:
    with pytest.raises(TypeError, match=r"random\.Random, which cannot be loaded without executing code"):
        image_of({"generator": __import__("random").Random(), "w": torch.ones(1)})


@pytest.mark.parametrize("beside", [{1: ()}, {"epoch": 3}])  # the second could be JSON
def test_a_state_that_holds_itself_is_refused(beside: dict[Any, Any]) -> None:
    state = dict(beside)
    state["itself"] = state

    with pytest.raises(TypeError, match="nested too deeply"):
        image_of(state)


def test_the_script_may_change_everything_once_it_is_copied(tmp_path: Path) -> None:
    state = {"w": torch.ones(1_000), "a": np.ones(1_000), "l": [1, (2,)], "b": bytearray(b"x" * 9_000)}
    image = image_of(state)
    state["w"].zero_()
    state["a"][:] = 0
    state["l"].append(3)  # type: ignore[attr-defined]  # it is a list
    state["b"][:] = b"y" * 9_000

    (tmp_path / "file.ckpt").write_bytes(b"".join(image.parts))
    found = read_image(tmp_path / "file.ckpt").state

    assert (found["w"].sum(), found["a"].sum(), found["l"], found["b"][:1]) == (1_000, 1_000, [1, (2,)], b"x")


def test_memory_is_used_again_and_grows_with_the_state(tmp_path: Path) -> None:
    imaging = Imaging()
    for size in (10, 100_000, 50, 200_000):
        (tmp_path / "file.ckpt").write_bytes(b"".join(image_of({"w": torch.full((size,), float(size))}, imaging).parts))
        found = read_image(tmp_path / "file.ckpt").state["w"]
        assert torch.equal(found, torch.full((size,), float(size)))


def test_what_did_not_change_has_the_same_bytes_at_the_same_place() -> None:
    """So that pieces of it are stored once."""
    frozen = torch.randn(100_000)
    first, second = (image_of({"step": 10**n, "frozen": frozen, "head": torch.randn(10)}) for n in (1, 9))

    pieces = [{bytes(i.parts[0][at : at + 65_536]) for at in range(0, i.size, 65_536)} for i in (first, second)]
    assert len(pieces[0] & pieces[1]) >= 400_000 // 65_536 - 1


def test_a_file_of_another_kind_or_with_an_unknown_part_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "file.ckpt"
    other.write_bytes(b"something else\n")
    with pytest.raises(ValueError, match="no checkpoint of this version"):
        read_image(other)
    with pytest.raises(ValueError, match="'lambda', which this version does not know"):
        Restoring([], lambda index, into: None).decode({"t": "lambda"})
    huge = MAGIC_PIECES + json.dumps({"at": 0, "size": 10**12}).encode() + b"\n"
    other.write_bytes(huge)
    with pytest.raises(ValueError, match="at most"):
        read_image(other)
