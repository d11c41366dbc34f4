"""States that lie in checkpoints already: every later version of the loader goes on from them at the same sample.

``RECORDED`` was written when states got their format number 1, and is never written again: a loader that cannot go on
from one of these breaks the checkpoints of everybody.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from tests.data_samples import Coordinator, Numbers, PlainStream, Stream, jittered
from trials.data import AsyncDataLoader, SharedDataLoader, Sharing
from trials.data.errors import StateError
from trials.data.loader_state import VERSION
from trials.data.sharing.producer_main import SharedOrder

TAKEN = 4  # batches, before a state was taken
EPOCHS_TRIED = 4
SHOWN = 4  # batches after it: they cross the end of the epoch


class EvenNumbers:
    """A sampler with a name of its own, which is part of a state."""

    def __len__(self) -> int:
        return 15

    def __iter__(self) -> Any:
        return iter(range(0, 30, 2))


class StatefulCoordinator(Coordinator):
    """A data source that can be told where to go on."""

    def state_dict(self) -> dict[str, list[int]]:
        return {"asked": list(self.asked)}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self.asked = list(state["asked"])


def a_shared_loader(**options: Any) -> SharedDataLoader:
    order = SharedOrder(block_size=8, group_seed=5, **options.pop("order", {}))
    fields: dict[str, Any] = {"batch_size": 6, "seed": 11, "transform": jittered, "collate_fn": numbers}
    return SharedDataLoader(Numbers(30), sharing=Sharing(order=order), **(fields | options))


def a_loader(dataset: Any = None, **options: Any) -> AsyncDataLoader:
    fields: dict[str, Any] = {"batch_size": 6, "seed": 11, "transform": jittered, "collate_fn": numbers}
    return AsyncDataLoader(Numbers(30) if dataset is None else dataset, **(fields | options))


LOADERS: dict[str, Callable[[], AsyncDataLoader | SharedDataLoader]] = {
    "keyed shuffle": lambda: a_loader(shuffle=True),
    "torch's shuffle": lambda: a_loader(shuffle=True, order="torch"),
    "shuffle of blocks": lambda: a_loader(shuffle=True, order="blocks 8 5"),
    "in order, whole batches": lambda: a_loader(batch_size=7, drop_last=True),
    "sampler": lambda: a_loader(batch_size=2, sampler=EvenNumbers()),
    "batch sampler": lambda: a_loader(batch_size=1, batch_sampler=[[5, 3], [1], [9, 8, 7], [0], [2, 4], [6]]),
    "iterable with a state": lambda: a_loader(Stream()),
    "iterable without a state": lambda: a_loader(PlainStream()),
    "data source": lambda: a_loader(StatefulCoordinator(6, functions=False), transform=None, collate_fn=plain),
    "shared, own order": a_shared_loader,
    "shared, the group's order": lambda: a_shared_loader(own_order=False),
    "shared, in order": lambda: a_shared_loader(order={"shuffle": False}),
}


def numbers(samples: list[Any]) -> list[list[int]]:
    """A batch as plain numbers: of each sample its index, and what ``jittered`` drew for it."""
    return [[int(sample[1] if isinstance(sample, tuple) else sample), drawn] for sample, _, drawn in samples]


def plain(samples: list[Any]) -> list[int]:
    return [int(sample) for sample in samples]


def batches_of(loader: Any, count: int) -> list[Any]:
    """So many, from epoch after epoch; fewer where a data source has come to its end."""
    found: list[Any] = []
    for _ in range(EPOCHS_TRIED):
        found += islice(loader, count - len(found))
        if len(found) == count:
            break
    return found


RECORDED: dict[str, Any] = json.loads(r"""
{
  "keyed shuffle": {
   "state": {"version": 1, "dataset": "a9acea2a90a334ca", "seed": 11,
     "epoch": 0, "delivered": 24, "batch_size": 6, "order": "keyed"},
   "next": [
    [[20,943],[10,944],[26,445],[5,304],[6,135],[25,92]],
    [[3,409],[1,532],[7,562],[29,624],[28,133],[26,291]],
    [[27,418],[25,816],[0,536],[20,266],[13,187],[14,799]],
    [[21,471],[6,528],[4,79],[24,164],[10,533],[5,544]]]},
  "torch's shuffle": {
   "state": {"version": 1, "dataset": "a9acea2a90a334ca", "seed": 11,
     "epoch": 0, "delivered": 24, "batch_size": 6, "order": "torch"},
   "next": [
    [[13,539],[4,311],[5,304],[23,98],[18,799],[19,876]],
    [[3,409],[29,624],[8,946],[15,620],[13,187],[16,813]],
    [[9,413],[24,164],[20,266],[7,562],[6,528],[0,536]],
    [[5,544],[1,532],[27,418],[21,471],[26,291],[10,533]]]},
  "shuffle of blocks": {
   "state": {"version": 1, "dataset": "a9acea2a90a334ca", "seed": 11,
     "epoch": 0, "delivered": 24, "batch_size": 6, "order": "blocks 8 5"},
   "next": [
    [[26,445],[22,548],[24,643],[29,621],[2,615],[16,660]],
    [[6,528],[9,413],[27,418],[12,528],[24,164],[21,471]],
    [[11,101],[18,483],[0,536],[13,187],[5,544],[17,397]],
    [[26,291],[15,620],[25,816],[4,79],[10,533],[19,904]]]},
  "in order, whole batches": {
   "state": {"version": 1, "dataset": "a9acea2a90a334ca", "seed": 11,
     "epoch": 0, "delivered": 28, "batch_size": 7, "order": "sequential"},
   "next": [
    [[0,536],[1,532],[2,106],[3,409],[4,79],[5,544],[6,528]],
    [[7,562],[8,946],[9,413],[10,533],[11,101],[12,528],[13,187]],
    [[14,799],[15,620],[16,813],[17,397],[18,483],[19,904],[20,266]],
    [[21,471],[22,732],[23,377],[24,164],[25,816],[26,291],[27,418]]]},
  "sampler": {
   "state": {"version": 1, "dataset": "a9acea2a90a334ca", "seed": 11,
     "epoch": 0, "delivered": 8, "batch_size": 2, "order": "sampler EvenNumbers"},
   "next": [
    [[16,660],[18,799]],
    [[20,943],[22,548]],
    [[24,643],[26,445]],
    [[28,967]]]},
  "batch sampler": {
   "state": {"version": 1, "dataset": "a9acea2a90a334ca", "seed": 11,
     "epoch": 0, "delivered": 4, "batch_size": 1, "order": "batch_sampler list"},
   "next": [
    [[2,615],[4,311]],
    [[6,135]],
    [[5,544],[3,409]],
    [[1,532]]]},
  "iterable with a state": {
   "state": {"version": 1, "dataset": "c6deb69bd1418623", "seed": 11,
     "epoch": 0, "delivered": 24, "batch_size": 6, "order": "iterable", "source": {"next": 24}},
   "next": [
    [[24,643],[25,92],[26,445],[27,731],[28,967],[29,621]],
    [[0,536],[1,532],[2,106],[3,409],[4,79],[5,544]],
    [[6,528],[7,562],[8,946],[9,413],[10,533],[11,101]],
    [[12,528],[13,187],[14,799],[15,620],[16,813],[17,397]]]},
  "iterable without a state": {
   "state": {"version": 1, "dataset": "66f348ec6c78261e", "seed": 11,
     "epoch": 0, "delivered": 24, "batch_size": 6, "order": "iterable", "source": null},
   "next": [
    [[24,643],[25,92],[26,445],[27,731],[28,967],[29,621]],
    [[0,536],[1,532],[2,106],[3,409],[4,79],[5,544]],
    [[6,528],[7,562],[8,946],[9,413],[10,533],[11,101]],
    [[12,528],[13,187],[14,799],[15,620],[16,813],[17,397]]]},
  "data source": {
   "state": {"version": 1, "dataset": "8c20cabf771ecacb", "seed": 11,
     "epoch": 0, "delivered": 24, "batch_size": 6, "order": "source", "source": {"asked": [6, 6, 6, 6]}},
   "next": [
    [576,625,676,729,784,841],
    [900,961,1024,1089,1156,1225]]},
  "shared, own order": {
   "state": {"version": 1, "dataset": "a9acea2a90a334ca", "seed": 11,
     "epoch": 0, "delivered": 24, "batch_size": 6, "order": "blocks 8 5"},
   "next": [
    [[26,445],[22,548],[24,643],[29,621],[2,615],[16,660]],
    [[6,528],[9,413],[27,418],[12,528],[24,164],[21,471]],
    [[11,101],[18,483],[0,536],[13,187],[5,544],[17,397]],
    [[26,291],[15,620],[25,816],[4,79],[10,533],[19,904]]]},
  "shared, the group's order": {
   "state": {"version": 1, "dataset": "a9acea2a90a334ca", "seed": 11,
     "epoch": 0, "delivered": 24, "batch_size": 6, "order": "blocks of the group 8 5"},
   "next": [
    [[2,615],[26,445],[29,621],[24,643],[22,548],[16,660]],
    [[12,528],[11,101],[27,418],[6,528],[9,413],[18,483]],
    [[21,471],[24,164],[13,187],[26,291],[25,816],[5,544]],
    [[17,397],[15,620],[4,79],[0,536],[10,533],[14,799]]]},
  "shared, in order": {
   "state": {"version": 1, "dataset": "a9acea2a90a334ca", "seed": 11,
     "epoch": 0, "delivered": 24, "batch_size": 6, "order": "sequential"},
   "next": [
    [[24,643],[25,92],[26,445],[27,731],[28,967],[29,621]],
    [[0,536],[1,532],[2,106],[3,409],[4,79],[5,544]],
    [[6,528],[7,562],[8,946],[9,413],[10,533],[11,101]],
    [[12,528],[13,187],[14,799],[15,620],[16,813],[17,397]]]}
}
""")


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_goes_on_from_a_recorded_state(name: str) -> None:
    recorded = RECORDED[name]

    with LOADERS[name]() as loader:
        loader.load_state_dict(recorded["state"])

        assert batches_of(loader, SHOWN) == recorded["next"]


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_still_gives_the_state_that_was_recorded(name: str) -> None:
    with LOADERS[name]() as loader:
        batches_of(loader, TAKEN)

        assert json.loads(json.dumps(loader.state_dict())) == RECORDED[name]["state"]


@pytest.mark.parametrize("name", LOADERS)
def test_a_state_of_another_format_is_refused_and_says_which_is_read(name: str) -> None:
    state = {**RECORDED[name]["state"], "version": VERSION + 1}

    with LOADERS[name]() as loader, pytest.raises(StateError, match=f"version {VERSION} is needed, not {VERSION + 1}"):
        loader.load_state_dict(state)
