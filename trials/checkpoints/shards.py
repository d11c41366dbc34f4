"""Checkpoints that several processes of a trial save together, each its own part (``torch.distributed.checkpoint``).

A folder: the files torch writes, and a manifest with the SHA-256 of each, the step, and the states of every rank's
random generators. The digest of the manifest is the digest of the checkpoint. The folder gets its name only when every
rank has written its part and all of it is on the disk; every rank must see the same folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from trials.checkpoints import random_generators, torch_states
from trials.checkpoints.shard_metadata import read_metadata
from trials.checkpoints.shards_apart import bring_together
from trials.checkpoints.verified_files import digest_of, file_name, now_for, replace_file
from trials.files import put_in_place, sync_folder
from trials.wire.records import CheckpointRecord
from trials.wire.shards import MANIFEST

FORMAT = "trials-shards 1"


class ShardedCheckpointError(RuntimeError):
    """Something failed on one rank, and so on all; the text says what, and on which."""


def _nothing() -> None:
    """There is nothing to do before."""


def save_sharded(  # noqa: PLR0913  # each of the last ones may be left out
    folder: Path,
    state: Any,
    *,
    step: int,
    index: int = 0,
    is_apart: bool = False,
    before: Callable[[], None] = _nothing,
) -> CheckpointRecord | None:
    """Every rank calls it, with its part; it returns when everything is on the disk.

    ``is_apart``: ranks of another node have a folder of their own. What they write is brought to that of rank 0.
    ``before``: what each rank has to do first; where it fails on one, nothing is saved on any.

    The record on rank 0, None on the others. ShardedCheckpointError on every rank when it failed on one. TypeError, on
    every rank and before anything is written, when something beside the tensors of one could not be loaded without
    executing code.
    """
    ranks = Ranks()
    ranks.agree(lambda: _begin(state, before))
    draft = folder / f".{step:09d}.shards"
    makes_folder = ranks.rank == 0 or (is_apart and ranks.local == 0)
    ranks.agree(lambda: _make_empty(draft) if makes_folder else None)
    checkpoint = import_module("torch.distributed.checkpoint")
    try:
        writer = checkpoint.FileSystemWriter(str(draft), single_file_per_rank=True, sync_files=True)
        with _alone_is_meant():
            checkpoint.save(state, storage_writer=writer, no_dist=not ranks.is_distributed)
    except checkpoint.api.CheckpointException as error:
        raise ShardedCheckpointError(f"the checkpoint of step {step} was not saved: {error}") from error
    parts = ranks.agree(lambda: (_digests(draft, ranks.rank), random_generators.capture()))
    if is_apart and ranks.is_distributed:
        files = [of_rank for of_rank, _ in parts]
        ranks.agree(lambda: bring_together(draft, files, ranks=ranks))
        if ranks.rank and ranks.local == 0 and not ranks.is_beside_first:
            shutil.rmtree(draft, ignore_errors=True)
    done = ranks.agree(lambda: _complete(draft, parts, step=step, index=index) if ranks.rank == 0 else None)
    record: CheckpointRecord | None = done[0] if ranks.rank == 0 else None
    return record


def load_sharded(path: Path, into: Any) -> tuple[int, int]:
    """Fill the tensors of ``into`` in place, on however many ranks; the step and the index of its parameters.

    The digests were verified. The random generators of rank r go on where those of rank r were.
    """
    ranks = Ranks()
    manifest: dict[str, Any] = {}
    ranks.agree(lambda: manifest.update(read_manifest(path)))
    reader = _reader(str(path), manifest["files"])
    checkpoint = import_module("torch.distributed.checkpoint")
    with _alone_is_meant():
        checkpoint.load(into, storage_reader=reader, planner=_planner(), no_dist=not ranks.is_distributed)
    if ranks.rank < len(manifest["generators"]):
        random_generators.put_back(manifest["generators"][ranks.rank])
    return manifest["step"], manifest.get("index", 0)


@contextlib.contextmanager
def _alone_is_meant() -> Iterator[None]:
    """torch warns of a process without a group; here that is how a trial goes on with one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield


def read_manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((path / MANIFEST).read_bytes())
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{path} is no checkpoint of this version: its format is {manifest.get('format')!r}")
    return manifest


class Ranks:
    """The processes of the default group; one alone where there is none."""

    def __init__(self) -> None:
        self._distributed = import_module("torch.distributed")
        self.is_distributed = bool(self._distributed.is_available() and self._distributed.is_initialized())
        self.rank = int(self._distributed.get_rank()) if self.is_distributed else 0
        self.count = int(self._distributed.get_world_size()) if self.is_distributed else 1
        # As torchrun and the agent give them; each node has as many ranks.
        self.local = int(os.environ.get("LOCAL_RANK", "0")) if self.is_distributed else 0
        self.per_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if self.is_distributed else 1

    @property
    def is_beside_first(self) -> bool:
        """Whether it is on the node of rank 0."""
        return self.rank < self.per_node

    def agree(self, work: Any) -> list[Any]:
        """What ``work`` returned on each rank. On all ShardedCheckpointError, when it failed on one, whatever it was.

        TypeError instead, where that is what it was on each on which it failed.
        """
        outcome: Any = None
        problem: Exception | None = None
        try:
            outcome = work()
        except Exception as error:  # whatever it is: a rank that leaves here lets the others wait for it
            if not self.is_distributed:
                raise
            problem = error
        failure = "" if problem is None else f"rank {self.rank}: {_in_words(problem)}"
        outcomes = self._gathered((outcome, failure, isinstance(problem, TypeError)))
        failures = {text: is_of_type for _, text, is_of_type in outcomes if text}
        if failures:
            kind = TypeError if all(failures.values()) else ShardedCheckpointError
            raise kind("; ".join(failures)) from problem
        return [value for value, _, _ in outcomes]

    def _gathered(self, value: Any) -> list[Any]:
        if not self.is_distributed:
            return [value]
        values: list[Any] = [None] * self.count
        self._distributed.all_gather_object(values, value)
        return values


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, OSError | TypeError) else f"{type(error).__name__}: {error}"


# ── writing ─────────────────────────────────────────────────────────────────────────────────────
def _begin(state: Any, before: Callable[[], None]) -> None:
    before()
    _require_loadable(state)


def _make_empty(draft: Path) -> None:
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)


def _require_loadable(state: Any) -> None:
    buffer = io.BytesIO()
    torch_states.save(_without_tensors(state), buffer)
    buffer.seek(0)
    torch_states.require_loadable(buffer)


def _without_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_tensors(item) for item in value]
    return None if isinstance(value, import_module("torch").Tensor) else value


def _digests(draft: Path, rank: int) -> dict[str, dict[str, Any]]:
    """Of the files this rank has written; the first one has written the metadata, too."""
    names = list(draft.glob(f"__{rank}_*")) + ([draft / ".metadata"] if rank == 0 else [])
    return {path.name: {"digest": digest_of(path), "size": path.stat().st_size} for path in names}


def _complete(draft: Path, parts: list[Any], *, step: int, index: int) -> CheckpointRecord:
    files = {name: entry for of_rank, _ in parts for name, entry in sorted(of_rank.items())}
    manifest = {
        "format": FORMAT,
        "step": step,
        "index": index,
        "world_size": len(parts),
        "files": files,
        "generators": [states for _, states in parts],
    }
    data = json.dumps(manifest, separators=(",", ":")).encode()
    replace_file(draft / MANIFEST, data)
    digest = hashlib.sha256(data).hexdigest()
    target = draft.parent / file_name(step, digest)
    if target.exists():  # the very same was saved before
        shutil.rmtree(draft)
        os.utime(target)  # an order to remove it that is on its way is about the first time
        sync_folder(str(target.parent))
    else:
        put_in_place(str(draft), str(target))
    size = len(data) + sum(entry["size"] for entry in files.values())
    return CheckpointRecord(step=step, name=target.name, digest=digest, size=size, at=now_for(target))


# ── reading ─────────────────────────────────────────────────────────────────────────────────────
def _reader(path: str, files: Collection[str]) -> Any:
    filesystem = import_module("torch.distributed.checkpoint.filesystem")

    class Reader(filesystem.FileSystemReader):  # type: ignore[misc,name-defined]  # torch is imported only here
        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002  # torch's signature
            with Path(path, ".metadata").open("rb") as file:
                metadata = read_metadata(file, files=frozenset(files))
            if metadata.storage_meta is None:
                metadata.storage_meta = import_module("torch.distributed.checkpoint.metadata").StorageMeta()
            metadata.storage_meta.load_id = self.load_id
            return metadata

    return Reader(path)


def _planner() -> Any:
    planner = import_module("torch.distributed.checkpoint.default_planner")
    nested = import_module("torch.distributed.checkpoint._nested_dict")

    class Planner(planner.DefaultLoadPlanner):  # type: ignore[misc,name-defined]  # torch is not typed here
        def load_bytes(self, read_item: Any, value: Any) -> None:
            """As torch's own, but nothing in the bytes is executed."""
            found = torch_states.load(value)
            name = read_item.dest_index.fqn
            if self.flatten_state_dict:
                nested.set_element(self.original_state_dict, self.mappings[name], found)
            else:
                self.state_dict[name] = found

    return Planner()
