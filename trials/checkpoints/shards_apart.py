"""Bringing together what ranks of several nodes have written, each in a folder of its node."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

PIECE_BYTES = 16 << 20  # of a file, in one message of the process group


class SomeRanks(Protocol):
    """``per_node``: so many are on each node, those of rank 0's node first."""

    rank: int
    count: int
    per_node: int


def bring_together(draft: Path, files: Sequence[Mapping[str, Mapping[str, Any]]], *, ranks: SomeRanks) -> None:
    """Send to rank 0, whose ``draft`` has them all when this returns, what other nodes' ranks have written.

    ``files``: by rank, name and size of each. All ranks call it. OSError, on rank 0 or on the sender, only once the
    other has got what it waits for: a rank that stopped in the middle would let the others wait for ever.
    """
    problem: OSError | None = None
    for sender in range(ranks.per_node, ranks.count):
        for name, entry in sorted(files[sender].items()):
            try:
                if ranks.rank == sender:
                    _send(draft / name, int(entry["size"]))
                elif ranks.rank == 0:
                    _receive(draft / name, int(entry["size"]), sender=sender)
            except OSError as error:
                problem = error
    if problem is not None:
        raise problem


def _pieces(size: int) -> list[int]:
    return [min(PIECE_BYTES, size - begin) for begin in range(0, size, PIECE_BYTES)]


def _send(path: Path, size: int) -> None:
    """A piece that cannot be read is sent as none, so that its receiver need not wait."""
    distributed = import_module("torch.distributed")
    problem: OSError | None = None
    for number, piece in enumerate(_pieces(size)):
        data = b""
        try:
            with path.open("rb") as file:
                file.seek(number * PIECE_BYTES)
                data = file.read(piece)
        except OSError as error:
            problem = error
        distributed.send_object_list([data], dst=0)
    if problem is not None:
        raise problem


def _receive(path: Path, size: int, *, sender: int) -> None:
    """On the disk when this returns. What cannot be written is received all the same."""
    distributed = import_module("torch.distributed")
    problem: OSError | None = None
    try:
        path.write_bytes(b"")  # also that of a rank which had nothing to write: the manifest names it
    except OSError as error:
        problem = error
    for piece in _pieces(size):
        given: list[Any] = [None]
        distributed.recv_object_list(given, src=sender)
        try:
            if len(given[0]) != piece:
                raise OSError(f"rank {sender} could not read {path.name}")
            with path.open("ab") as file:
                file.write(given[0])
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            problem = error
    if problem is not None:
        raise problem
