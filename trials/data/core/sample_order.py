"""Shuffling: which index stands at which position of an epoch, as a function of a key, for any positions at once.

The shuffle is a keyed permutation: a Feistel network over a grid of rows × columns that is hardly larger than the
dataset (Black, Rogaway: Ciphers with Arbitrary Finite Domains, 2002), and cycle walking for what falls outside.
It needs no list, so a position is found without those before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trials.data.core.keys import WORD, derive

Positions = NDArray[np.int64]
_Words = NDArray[np.uint64]

ROUNDS = 8
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_FACTOR_1, _FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Order(Protocol):
    """Every index of ``range(length)`` stands at exactly one position of ``range(length)``."""

    @property
    def length(self) -> int: ...

    def indices(self, positions: Positions) -> Positions:
        """The index at each of ``positions``, which are int64 and inside ``range(length)``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialOrder:
    length: int

    def indices(self, positions: Positions) -> Positions:
        return positions


@dataclass(frozen=True, kw_only=True)
class KeyedOrder:
    """The shuffle of (``seed``, ``epoch``)."""

    length: int
    seed: int
    epoch: int

    def indices(self, positions: Positions) -> Positions:
        return self._permutation.of(positions)

    @cached_property
    def _permutation(self) -> Permutation:
        return Permutation(length=self.length, key=derive("order", self.seed, self.epoch))


@dataclass(frozen=True, kw_only=True)
class TorchOrder:
    """torch's own: ``RandomSampler(dataset, generator=torch.Generator().manual_seed(seed + epoch))``.

    It costs a list of ``length`` numbers for each epoch. torch must be installed.
    """

    length: int
    seed: int
    epoch: int

    def indices(self, positions: Positions) -> Positions:
        return self._permutation[positions]

    @cached_property
    def _permutation(self) -> Positions:
        import torch

        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        permutation: Positions = torch.randperm(self.length, generator=generator).numpy()
        return permutation


@dataclass(frozen=True, kw_only=True)
class BlockOrder:
    """Blocks in the order of a group; inside a block the permutation of one of its trials.

    The group's order is a shuffle of the whole dataset, keyed by (``dataset``, ``group_seed``, ``epoch``), whoever
    shares it; a block is a run of it, so that a dataset sorted by class has no block of one class. Trials with seeds
    of their own want the same samples at about the same time.
    """

    length: int
    block: int  # samples in each block but the last
    dataset: str  # its fingerprint
    group_seed: int
    seed: int  # of the trial
    epoch: int

    def indices(self, positions: Positions) -> Positions:
        """The index at each position; block of a position: ``positions // block``."""
        return self.indices_of_places(self.places(positions))

    def places(self, positions: Positions) -> Positions:
        """Where in the group's order the sample of each of the trial's positions stands: in the same block."""
        rank = positions // self.block
        inside = positions - rank * self.block
        full = rank < self.full_blocks
        own = np.empty_like(positions)
        own[full] = self._inside.of(inside[full], tweak=rank[full])
        if not full.all():
            own[~full] = self._inside_last.of(inside[~full], tweak=rank[~full])
        return rank * self.block + own

    def indices_of_places(self, places: Positions) -> Positions:
        """The index at each place of the group's order, the same for every trial."""
        return self._group.of(places)

    @property
    def full_blocks(self) -> int:
        return self.length // self.block

    @cached_property
    def _group(self) -> Permutation:
        return Permutation(length=self.length, key=derive("group order", self.dataset, self.group_seed, self.epoch))

    @cached_property
    def _inside(self) -> Permutation:
        return Permutation(length=self.block, key=derive("inside a block", self.seed, self.epoch))

    @cached_property
    def _inside_last(self) -> Permutation:
        key = derive("inside the last block", self.seed, self.epoch)
        return Permutation(length=self.length % self.block, key=key)


class Permutation:
    """A permutation of ``range(length)`` that is chosen by a key of 128 bits."""

    def __init__(self, *, length: int, key: int) -> None:
        self._length = length
        self._columns = max(min(length, 2), math.isqrt(length), 1)
        self._rows = -(-length // self._columns)
        halves = (key & WORD, key >> 64)
        self._keys = [np.uint64(derive("round", *halves, number) & WORD) for number in range(ROUNDS)]

    def of(self, positions: Positions, *, tweak: Positions | None = None) -> Positions:
        """Where each position goes. Positions with another ``tweak`` are permuted independently.

        int64 of any length in and out. What leaves ``range(length)`` is permuted again until it is back
        inside: fewer than one in √length does.
        """
        tweaks = np.zeros(1, dtype=np.uint64) if tweak is None else _scrambled(tweak.astype(np.uint64))
        found = self._once(positions.astype(np.uint64), tweaks)
        outside = np.flatnonzero(found >= self._length)
        while outside.size:
            found[outside] = self._once(found[outside], tweaks if tweak is None else tweaks[outside])
            outside = outside[found[outside] >= self._length]
        return found.astype(np.int64)

    def _once(self, values: _Words, tweaks: _Words) -> _Words:
        columns, rows = np.uint64(self._columns), np.uint64(self._rows)
        row, column = np.divmod(values, columns)
        for number, key in enumerate(self._keys):
            if number % 2 == 0:
                row = (row + _scrambled(column ^ key ^ tweaks) % rows) % rows
            else:
                column = (column + _scrambled(row ^ key ^ tweaks) % columns) % columns
        result: _Words = row * columns + column
        return result


def _scrambled(values: _Words) -> _Words:
    """SplitMix64's finaliser of each word."""
    values = (values ^ (values >> _SHIFT_1)) * _FACTOR_1
    values = (values ^ (values >> _SHIFT_2)) * _FACTOR_2
    return values ^ (values >> _SHIFT_3)


def shuffle_named(name: str, *, dataset: str = "") -> Callable[..., Order]:
    """The shuffle that ``order=`` names: ``keyed``, ``torch``, or ``blocks SIZE GROUP_SEED``, as trials share it.

    ``dataset`` is the fingerprint that the order of blocks depends on.
    """
    blocks = re.fullmatch(r"blocks ([1-9]\d{0,9}) (-?\d{1,19})", name)
    if blocks is not None:
        return partial(BlockOrder, block=int(blocks[1]), group_seed=int(blocks[2]), dataset=dataset)
    orders: dict[str, Callable[..., Order]] = {"keyed": KeyedOrder, "torch": TorchOrder}
    if name not in orders:
        raise ValueError(f"order is {' or '.join(map(repr, orders))}, not {name!r}")
    return orders[name]
