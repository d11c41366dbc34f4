"""The metadata of a sharded checkpoint: what torch writes is read, and nothing in it is executed or changed."""

from __future__ import annotations

import copyreg
import io
import pickle
import struct
from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import metadata as torch_metadata
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from trials.checkpoints.shard_metadata import DEPTH_MAX, MetadataError, read_metadata

MODULE = b"torch.distributed.checkpoint.metadata"
FILES = frozenset({"__0_0.distcp"})


def metadata_of_two() -> Metadata:
    size = torch.Size([6, 4])
    properties = TensorProperties(dtype=torch.bfloat16, memory_format=torch.channels_last)
    chunk = ChunkStorageMetadata(offsets=torch.Size([0, 0]), sizes=size)
    return Metadata(
        state_dict_metadata={
            "model.w": TensorStorageMetadata(properties=properties, size=size, chunks=[chunk]),
            "step": BytesStorageMetadata(),
        },
        planner_data={"model.w": ("model", "w"), "step": ("step",), "names.1": ("names", 1)},
        storage_data={
            MetadataIndex("model.w", torch.Size([0, 0]), 0): _StorageInfo("__0_0.distcp", 0, 96),
            MetadataIndex("step"): _StorageInfo("__0_0.distcp", 96, 5),
        },
        storage_meta=StorageMeta(checkpoint_id=Path("/somewhere"), save_id="s", modules=["torch"]),
    )


def read(data: bytes) -> Any:
    return read_metadata(io.BytesIO(data), files=FILES)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_what_torch_writes_is_read_as_it_was(protocol: int) -> None:
    written = metadata_of_two()

    found = read(pickle.dumps(written, protocol))

    assert found == written
    assert [type(index.offset) for index in found.storage_data] == [torch.Size, type(None)]
    assert pickle.dumps(found, 4) == pickle.dumps(pickle.loads(pickle.dumps(written, 4)), 4)


class AsBefore(pickle.Pickler):
    """Python before 3.11.4 wrote a member of an enumeration by its name."""

    def reducer_override(self, value: Any) -> Any:
        return (getattr, (type(value), value.name)) if isinstance(value, Enum) else NotImplemented


def test_a_member_that_was_written_by_its_name_is_read_as_it_was() -> None:
    written, file = metadata_of_two(), io.BytesIO()
    AsBefore(file, 4).dump(written)
    assert b"getattr" in file.getvalue()

    assert read(file.getvalue()) == written


# ── hostile ones ────────────────────────────────────────────────────────────────────────────────
def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def stack_global(module: str, name: str) -> bytes:
    return text(module) + text(name) + b"\x93"


def called(function: bytes, command: str) -> bytes:
    return function + text(command) + b"\x85R"


DOTTED = stack_global(MODULE.decode(), "os.system")
META_CLASS = stack_global(MODULE.decode(), "Metadata")
HOSTILE = {
    "a dotted name of an allowed module": called(DOTTED, "touch was_run"),
    "a dotted name through a class": called(
        stack_global(MODULE.decode(), "Metadata.__init__.__globals__"), "touch was_run"
    ),
    "a module beside it": called(stack_global(MODULE.decode(), "os"), "touch was_run"),
    "a name of torch with a dot": called(stack_global("torch", "os.system"), "touch was_run"),
    "an attribute of torch that is no type of numbers": stack_global("torch", "load"),
    "GLOBAL": called(b"c" + MODULE + b"\nos.system\n", "touch was_run"),
    "INST": b"(" + text("touch was_run") + b"i" + MODULE + b"\nos.system\n",
    "OBJ": b"(" + DOTTED + text("touch was_run") + b"o",
    "NEWOBJ": called(DOTTED, "touch was_run")[:-1] + b"\x81",
    "os itself": called(stack_global("posix", "system"), "touch was_run"),
    "builtins": called(stack_global("builtins", "eval"), "open('was_run', 'w')"),
    "getattr of what is no enumeration": stack_global("builtins", "getattr") + META_CLASS + text("__init__") + b"\x86R",
    "getattr of a dotted enumeration": stack_global("builtins", "getattr")
    + stack_global(MODULE.decode(), "_MEM_FORMAT_ENCODING")
    + text("__class__")
    + b"\x86R",
    "a reduction with what is allowed": META_CLASS + text("x") + b"\x85R",
    "a persistent id": text("os.system") + b"Q",
    "a persistent id as text": b"Pos.system\n",
    "an extension that nobody registered": b"\x82\x01",
    "BUILD of a class": META_CLASS + b"N}" + text("__setstate__") + DOTTED + b"s\x86b",
    "BUILD of a class with what is allowed": META_CLASS + b"N}" + text("__init__") + META_CLASS + b"s\x86b",
    "BUILD of a type of torch": stack_global("torch", "float32") + b"N}" + text("x") + text("y") + b"s\x86b",
    "an attribute that is none": META_CLASS + b")\x81}" + text("__class__") + META_CLASS + b"sb",
    "a memo that is none": b"h\x07",
    "a memo of a class called later": META_CLASS + b"\x940h\x00" + text("x") + b"\x85R",
    "values in values": b"]" * 5_000 + b"a" * 4_999,
    "a number as the size": stack_global("torch", "Size") + text("ab") + b"\x85R",
    "a set": b"\x8f",
    "bytes": b"C\x01x",
    "the end too early": b"",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("depth", ["alone", "inside"])
def test_nothing_that_a_pickle_says_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, depth: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {name: dict(vars(getattr(torch_metadata, name))) for name in torch_metadata.__all__}
    inside = META_CLASS + b")\x81}" + text("planner_data") + body + b"sb"

    with pytest.raises(MetadataError):
        read(b"\x80\x04" + (body if depth == "alone" else inside) + b".")

    assert not list(tmp_path.iterdir())
    assert before == {name: dict(vars(getattr(torch_metadata, name))) for name in torch_metadata.__all__}


@pytest.mark.parametrize("value", ["hello", 3, None, ["Metadata"], {"storage_data": {}}])
def test_another_value_than_metadata_is_refused(value: object) -> None:
    with pytest.raises(MetadataError):
        read(pickle.dumps(value))


class Registered:
    made = 0

    def __init__(self) -> None:
        Registered.made += 1


@pytest.fixture
def registered() -> Iterator[int]:
    """A class that the process itself has given a code, and found by it before."""
    code = 0xF3
    copyreg.add_extension(__name__, "Registered", code)
    pickle.loads(b"\x80\x02\x82" + bytes([code]) + b".")
    yield code
    copyreg.remove_extension(__name__, "Registered", code)


def test_a_class_that_the_process_knows_by_a_code_is_not_made(registered: int) -> None:
    with pytest.raises(MetadataError, match=r"Registered, which is not loaded"):
        read(b"\x80\x02\x82" + bytes([registered]) + b")R.")

    assert Registered.made == 0


@pytest.mark.parametrize("path", ["../../secret", "/etc/passwd", "__1_0.distcp", ""])
def test_data_is_read_from_the_files_of_the_checkpoint_only(path: str) -> None:
    hostile = metadata_of_two()
    hostile.storage_data[MetadataIndex("step")] = _StorageInfo(path, 0, 5)

    with pytest.raises(MetadataError, match="which is no file of the checkpoint"):
        read(pickle.dumps(hostile))


def test_a_subclass_or_another_container_is_refused() -> None:
    hostile = metadata_of_two()
    hostile.planner_data = OrderedDict(a=1)

    with pytest.raises(MetadataError, match=r"collections\.OrderedDict"):
        read(pickle.dumps(hostile))


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9])
def test_metadata_that_is_cut_is_damaged(cut: float) -> None:
    data = pickle.dumps(metadata_of_two())

    with pytest.raises(MetadataError):
        read(data[: int(len(data) * cut)])


@pytest.mark.parametrize(("levels", "fits"), [(DEPTH_MAX - 3, True), (10 * DEPTH_MAX, False)])
def test_values_in_values_are_followed_so_deep_and_no_deeper(levels: int, fits: bool) -> None:
    deep = metadata_of_two()
    value: Any = "w"
    for _ in range(levels):
        value = (value,)
    deep.planner_data = {"model.w": value}

    if fits:
        assert read(pickle.dumps(deep)).planner_data == {"model.w": value}
    else:
        with pytest.raises(MetadataError, match=f"values {DEPTH_MAX} deep"):
            read(pickle.dumps(deep))
