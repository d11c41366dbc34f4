"""Data-parallel training: which part of each global batch a rank takes.

A *global batch* is what all ranks train on in one iteration: ``world_size`` times ``batch_size`` consecutive positions
of the epoch, and each rank takes a run of them. A position in a checkpoint is one of the epoch, not of a rank: it is
the same for every rank, and it may be gone on from with another number of ranks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

ENV_RANK = "RANK"
ENV_WORLD_SIZE = "WORLD_SIZE"
WORLD_LIMIT = 1 << 20


class Share(NamedTuple):
    """Of one global batch: this rank takes ``begin`` to ``end``, and all together reach ``behind``."""

    begin: int
    end: int
    behind: int


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which of how many processes this is, that train one model on one epoch."""

    rank: int = 0
    world_size: int = 1

    def share(self, begin: int, *, length: int, batch_size: int, drop_last: bool) -> Share | None:
        """Of the global batch that begins at position ``begin``; None at the end of the epoch.

        It depends on what is left of the epoch, never on where the epoch was begun. Every position belongs to exactly
        one rank. All ranks have equally many batches: where fewer samples than ranks would be left for the last
        one, the one before leaves it a sample for each. That is impossible with a ``batch_size`` of 1, and where
        fewer samples than ranks are left in all: there ``begin == end`` for the ranks that get none.
        """
        left, whole = length - begin, self.world_size * batch_size
        if left <= 0 or (drop_last and left < whole):
            return None
        size, over = min(left, whole), left - whole
        if batch_size > 1 and not drop_last and 0 < over < self.world_size:
            size = left - self.world_size
        each, more = divmod(size, self.world_size)
        first = begin + self.rank * each + min(self.rank, more)
        return Share(first, first + each + (self.rank < more), begin + size)

    def shares(self, begin: int, *, length: int, batch_size: int, drop_last: bool) -> Iterator[Share]:
        """Those that have samples for this rank, to the end of the epoch."""
        share = self.share(begin, length=length, batch_size=batch_size, drop_last=drop_last)
        while share is not None:
            if share.begin < share.end:
                yield share
            share = self.share(share.behind, length=length, batch_size=batch_size, drop_last=drop_last)

    def batches(self, *, length: int, batch_size: int, drop_last: bool) -> int:
        """Of this rank in a whole epoch."""
        full, left = divmod(length, self.world_size * batch_size)
        if drop_last or left == 0:
            return full
        is_even = left >= self.world_size or (batch_size > 1 and full > 0)
        return full + int(is_even or self.rank < left)


ALONE = Ranks()


def given_ranks(rank: int | None, world_size: int | None) -> Ranks | None:
    """As a script says it; None where it does not. ValueError for what no world of processes can be."""
    if rank is None and world_size is None:
        return None
    if world_size is None:
        raise ValueError(f"rank={rank} goes with world_size: write rank=…, world_size=…")
    return _checked(0 if rank is None and world_size == 1 else rank, world_size, of="rank and world_size")


def known_ranks(environment: Mapping[str, str] | None = None) -> Ranks:
    """Of this process: torch.distributed's where it is initialised; else of RANK and WORLD_SIZE, which torchrun and
    task groups set; else the one process of its world."""
    torch: Any = sys.modules.get("torch")
    distributed = None if torch is None else getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Ranks(distributed.get_rank(), distributed.get_world_size())
    variables = os.environ if environment is None else environment
    if ENV_RANK not in variables or ENV_WORLD_SIZE not in variables:
        return ALONE
    found = [variables[name] for name in (ENV_RANK, ENV_WORLD_SIZE)]
    numbers = [int(text) if text.strip().isdecimal() else text for text in found]
    return _checked(numbers[0], numbers[1], of=f"the variables {ENV_RANK} and {ENV_WORLD_SIZE}")


def _checked(rank: Any, world_size: Any, *, of: str) -> Ranks:
    sound = type(rank) is int and type(world_size) is int and 0 <= rank < world_size <= WORLD_LIMIT
    if not sound:
        raise ValueError(
            f"{of} are whole numbers with 0 <= rank < world size <= {WORLD_LIMIT}, not {rank!r} and {world_size!r}; "
            "rank=0, world_size=1 gives this process the whole epoch"
        )
    return Ranks(rank, world_size)
