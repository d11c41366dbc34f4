"""The file format of a checkpoint: its image in memory, which the script cannot change any more, and reading it back.

Two forms, told apart by their first line:

* ``trials-checkpoint 1``: a line of JSON (encoding, step, generators, …), then the state as JSON, as bytes, or as
  torch writes it;
* ``trials-checkpoint 2``: a block of 4096 bytes that begins with that line and a line of JSON saying where the index
  is; then the memory of tensors and arrays, each at a multiple of 64, large ones at a multiple of 4096 bytes; then the
  index, which is JSON: the tree of ``state_tree.py`` and the place of each piece. What did not change lies at
  the same place in the next checkpoint, so that its bytes can be stored once.
"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from trials.checkpoints import random_generators, torch_states
from trials.checkpoints.state_tree import (
    TOO_DEEP,
    Flattened,
    Piece,
    Restoring,
    UnsupportedStateError,
    flatten,
    memory_of,
)

MAGIC_STREAM = b"trials-checkpoint 1\n"
MAGIC_PIECES = b"trials-checkpoint 2\n"
BLOCK_BYTES = 4096
HEADER_LIMIT_BYTES = 256 << 20  # of the JSON in a checkpoint; a longer one is not read
_SMALL_ALIGNMENT = 64
_JSON_SCALARS = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    step: int
    state: Any
    index: int = 0  # of the parameters it was saved under


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """``parts``, one after the other, are the file once ``wait`` has returned: copies from devices may still run."""

    step: int
    parts: tuple[bytes | memoryview, ...]
    events: tuple[Any, ...] = ()  # of CUDA

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)

    def wait(self) -> None:
        for event in self.events:
            event.synchronize()


class Imaging:
    """Makes images. An image is good until the next one is made: their memory is used again."""

    def __init__(self) -> None:
        self._memory = _Memory()

    def capture(self, state: Any, *, step: int, index: int = 0) -> Image:
        """The script may change everything in ``state`` when this returns.

        Tensors on CUDA devices are copied by their current streams, which the script does not wait for. TypeError
        when ``state`` could not be read back as it is.
        """
        header = {"step": step, **({"index": index} if index else {}), "generators": random_generators.capture()}
        if isinstance(state, bytes):
            return _stream_image(step, {"encoding": "bytes", **header}, state)
        if (text := _as_json(state)) is not None:
            return _stream_image(step, {"encoding": "json", **header}, text)
        try:
            flattened = flatten(state)
        except UnsupportedStateError as error:
            if "torch" not in sys.modules:
                raise TypeError(
                    f"{error} cannot be saved and read back the same; use dicts, lists, numbers, text, arrays and "
                    "None, or pass bytes that the script makes itself, or import torch"
                ) from None
            return _stream_image(step, {"encoding": "torch", **header}, _as_torch_writes_it(state, error.where))
        return self._pieces_image(step, header, flattened)

    def _pieces_image(self, step: int, header: dict[str, Any], flattened: Flattened) -> Image:
        places, end = _places(flattened.pieces)
        content = _json({**header, "pieces": places, "state": flattened.tree})
        total = _up(end + len(content), BLOCK_BYTES)
        first = MAGIC_PIECES + _json({"at": end, "size": len(content)}) + b"\n"
        on_devices = any(_is_on_cuda(piece.source) for piece in flattened.pieces)
        view = self._memory.of(total, pinned=on_devices)
        view[:BLOCK_BYTES] = first.ljust(BLOCK_BYTES, b"\0")
        events = _copy(flattened.pieces, places, view)
        view[end : end + len(content)] = content
        view[end + len(content) : total] = bytes(total - end - len(content))
        return Image(step=step, parts=(view[:total],), events=events)


def _as_torch_writes_it(state: Any, where: str) -> bytes:
    buffer = io.BytesIO()
    try:
        torch_states.save(state, buffer)
        buffer.seek(0)
        torch_states.require_loadable(buffer)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise TypeError(f"the state cannot be saved, from {where} on: {error}") from error
    return buffer.getvalue()


def _stream_image(step: int, header: dict[str, Any], payload: bytes) -> Image:
    return Image(step=step, parts=(MAGIC_STREAM + _json(header) + b"\n", payload))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _as_json(state: Any) -> bytes | None:
    """None where JSON would not give it back the same."""
    try:
        return _json(state) if _is_json(state) else None
    except RecursionError as error:
        raise TypeError(TOO_DEEP) from error


def _is_json(value: Any) -> bool:
    """Whether JSON gives back the very same, as it would not of a tuple or of a key that is a number."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_is_json, value.values()))
    return all(map(_is_json, value)) if kind is list else kind in _JSON_SCALARS


# ── memory ──────────────────────────────────────────────────────────────────────────────────────
class _Memory:
    """Host memory for one image, kept for the next: a page that is touched for the first time costs a copy more."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | Any | None = None
        self._view = memoryview(b"")
        self._pinned = False

    def of(self, size: int, *, pinned: bool) -> memoryview:
        """At least ``size`` bytes, from which CUDA devices copy without the processor if ``pinned``."""
        if len(self._view) < size or pinned != self._pinned:
            self._view, self._memory = memoryview(b""), None  # given back before as much is asked for anew
            self._view, self._memory = _pinned(size) if pinned else _mapped(size)
            self._pinned = pinned
        return self._view[:size]


def _mapped(size: int) -> tuple[memoryview, mmap.mmap]:
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them: small pages do
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory), memory


def _pinned(size: int) -> tuple[memoryview, Any]:
    tensor = import_module("torch").empty(size, dtype=import_module("torch").uint8, pin_memory=True)
    return memory_of(tensor), tensor


def _up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


def _places(pieces: list[Piece]) -> tuple[list[list[int]], int]:
    """[begin, size] of each in the file, and where they end."""
    places, end = [], BLOCK_BYTES
    for piece in pieces:
        begin = _up(end, BLOCK_BYTES if piece.size >= BLOCK_BYTES else _SMALL_ALIGNMENT)
        places.append([begin, piece.size])
        end = begin + piece.size
    return places, end


def _copy(pieces: list[Piece], places: list[list[int]], view: memoryview) -> tuple[Any, ...]:
    """Every piece to its place, and what to wait for until those of devices are there."""
    torch = sys.modules.get("torch")
    target = None if torch is None else torch.frombuffer(view, dtype=torch.uint8)
    devices: dict[Any, None] = {}
    for piece, (begin, size) in zip(pieces, places, strict=True):
        if not size:
            continue
        if torch is None or target is None or not isinstance(piece.source, torch.Tensor):
            view[begin : begin + size] = _bytes_of(piece.source)
            continue
        device = piece.source.device
        with torch.no_grad():
            source = torch.empty(0, dtype=torch.uint8, device=device)
            source.set_(piece.source.untyped_storage(), piece.low, (size,), (1,))
            target[begin : begin + size].copy_(source, non_blocking=device.type == "cuda")
        if device.type == "cuda":
            devices[device] = None
    return tuple(_recorded(torch, device) for device in devices)


def _recorded(torch: Any, device: Any) -> Any:
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


def _is_on_cuda(source: Any) -> bool:
    return getattr(getattr(source, "device", None), "type", "") == "cuda"


def _bytes_of(source: Any) -> Any:
    return source if isinstance(source, bytes | bytearray) else memoryview(source.view("u1"))


# ── reading ─────────────────────────────────────────────────────────────────────────────────────
def read_image(path: Path) -> Restored:
    """What ``path`` holds, whose digest was verified; sets the random generators. ValueError for another file."""
    header, state = read_state(path)
    random_generators.put_back(header["generators"])
    return Restored(step=header["step"], state=state, index=header.get("index", 0))


def read_state(path: Path) -> tuple[Mapping[str, Any], Any]:
    """The header and the state of ``path``; sets nothing. ValueError for a file of another kind."""
    with path.open("rb") as file:
        magic = file.readline(len(MAGIC_STREAM))
        if magic == MAGIC_STREAM:
            return _read_stream(file)
        if magic == MAGIC_PIECES:
            return _read_pieces(file)
    raise ValueError(f"{path} is no checkpoint of this version: it begins differently")


def _read_stream(file: BinaryIO) -> tuple[Mapping[str, Any], Any]:
    header = json.loads(file.readline(HEADER_LIMIT_BYTES))
    if header["encoding"] == "torch":
        state = torch_states.load(file)
    else:
        state = file.read()
        if header["encoding"] == "json":
            state = json.loads(state)
    return header, state


def _read_pieces(file: BinaryIO) -> tuple[Mapping[str, Any], Any]:
    where = json.loads(file.readline(BLOCK_BYTES))
    if where["size"] > HEADER_LIMIT_BYTES:
        raise ValueError(f"the checkpoint's index has {where['size']} bytes; at most {HEADER_LIMIT_BYTES} are read")
    file.seek(where["at"])
    header = json.loads(file.read(where["size"]))
    places = header["pieces"]

    def read(index: int, into: memoryview) -> None:
        begin, size = places[index]
        file.seek(begin)
        if file.readinto(into) != size:  # type: ignore[attr-defined]  # every file opened for bytes has it
            raise ValueError("the checkpoint is shorter than its index says")

    return header, Restoring([size for _, size in places], read).decode(header["state"])
