"""References that a coordinator hands out: files that actors wrote, loaded by a worker where they are needed."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from trials.compression import decompressor
from trials.data.errors import BrokenReferenceError

TRIES = 5
TRIES_LIMIT = 1000
FIRST_PAUSE_S = 0.01  # doubled after each try: a file may be read while its writer is just replacing it
PAUSE_LIMIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Called without arguments, it loads what it names: a function of a data source.

    ``unroll_split_begin`` cuts ``unroll_len`` steps out of a trajectory (one step, not a list, where that is 1), and
    ``meta`` is put into every step, or into the whole sample, that is a dict.
    """

    path: Path
    compressor: str = "none"  # none, zlib, lz4
    unroll_len: int = 1
    unroll_split_begin: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[bytes], Any] | None = None  # of the decompressed bytes; torch.load with weights_only
    tries: int = TRIES
    first_pause_s: float = FIRST_PAUSE_S

    def __post_init__(self) -> None:
        if not 1 <= self.tries <= TRIES_LIMIT:
            raise ValueError(f"tries is a number from 1 to {TRIES_LIMIT}, not {self.tries!r}")
        if not 0 <= self.first_pause_s <= PAUSE_LIMIT_S:
            raise ValueError(f"first_pause_s is from 0 to {PAUSE_LIMIT_S:g} seconds, not {self.first_pause_s!r}")

    def __call__(self) -> Any:
        """BrokenReferenceError names a file that is still missing or torn after ``tries``. Between them it waits
        ``first_pause_s``, and twice as long each time, up to PAUSE_LIMIT_S."""
        loaded = self._loaded()
        begin = self.unroll_split_begin
        if begin is None:
            return self._with_meta(loaded)
        steps = loaded[begin : begin + self.unroll_len]
        if len(steps) < self.unroll_len:
            raise BrokenReferenceError(
                f"{self.path} has {len(loaded)} steps, and steps {begin} to {begin + self.unroll_len} were asked for"
            )
        if self.unroll_len == 1:
            return self._with_meta(steps[0])
        return [self._with_meta(step) for step in steps]

    def _loaded(self) -> Any:
        decompress = decompressor(self.compressor)
        read = self.read or _torch_load
        pause_s = self.first_pause_s
        for left in reversed(range(self.tries)):
            try:
                return read(decompress(self.path.read_bytes()))
            except Exception as error:
                if left == 0:
                    raise BrokenReferenceError(
                        f"{self.path} could not be read in {self.tries} tries: {type(error).__name__}: {error}. "
                        "Its writer may have died, or removed it too early."
                    ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_LIMIT_S)
        raise AssertionError("unreachable: the last try returns or raises")

    def _with_meta(self, sample: Any) -> Any:
        return {**sample, **self.meta} if isinstance(sample, dict) else sample


def references(
    metas: Sequence[Mapping[str, Any]],
    *,
    folder: str | os.PathLike[str],
    tries: int = TRIES,
    first_pause_s: float = FIRST_PAUSE_S,
) -> list[Reference]:
    """For descriptions as DI-engine's coordinator hands them out: each with a ``data_id``, the name of its file.

    ValueError for one without it.
    """
    for meta in metas:
        if not isinstance(meta, Mapping) or "data_id" not in meta:
            raise ValueError(f"a description has a data_id, the name of its file in {folder}, unlike {meta!r:.200}")
    return [
        Reference(
            path=Path(folder) / str(meta["data_id"]),
            compressor=str(meta.get("compressor", "none")),
            unroll_len=int(meta.get("unroll_len", 1)),
            unroll_split_begin=meta.get("unroll_split_begin"),
            meta=meta,
            tries=tries,
            first_pause_s=first_pause_s,
        )
        for meta in metas
    ]


def _torch_load(data: bytes) -> Any:
    return import_module("torch").load(io.BytesIO(data), weights_only=True)
