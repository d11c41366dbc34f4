"""The one loader: what it promises of iterations, positions and ending, over any source of batches."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest

from trials.data import AsyncDataLoader, SharedDataLoader
from trials.data.errors import LoaderClosed, StateError
from trials.data.loader import Loaded, Loader
from trials.data.loader_state import Position


class Counting:
    """A source whose batches are the positions of an epoch of ten, one by one; it writes down what it is asked."""

    order_name = "counted"
    has_state = True

    def __init__(self, *, length: int = 10, empty: tuple[int, ...] = (), bad: tuple[int, ...] = ()) -> None:
        self.length, self.empty, self.bad = length, empty, list(bad)
        self.asked: list[Any] = []
        self._next = 0

    def batches(self) -> int:
        return self.length

    def require_unharmed(self) -> None:
        """Its batches are its own."""

    def require_reachable(self, position: Position, state: Mapping[str, Any]) -> None:
        if position.delivered > self.length or "source" not in state:
            raise StateError("beyond the end")

    def restore(self, source_state: Any) -> None:
        self.asked.append(("restore", source_state))

    def begin(self, position: Position, source_state: Any) -> None:
        self.asked.append(("begin", position.epoch, position.delivered, source_state))
        self._next = position.delivered

    def next(self) -> Loaded | None:
        if self._next == self.length:
            return None
        if self._next in self.bad:
            self.bad.remove(self._next)
            raise LookupError(f"batch {self._next} is damaged")
        self._next += 1
        return Loaded(self._next - 1, self._next, (), f"after {self._next}", self._next - 1 in self.empty)

    def abandon(self) -> None:
        self.asked.append("abandon")

    def close(self, timeout_s: float) -> None:
        self.asked.append(("close", timeout_s))

    def stats(self) -> dict[str, Any]:
        return {"batches": self._next}


def a_loader(source: Counting) -> Loader:
    return Loader(source, dataset=[1, 2, 3], batch_size=1, seed=4)


def test_nothing_begins_before_the_first_batch_is_asked_for() -> None:
    source = Counting()

    iterator = iter(a_loader(source))

    assert source.asked == []
    assert next(iterator) == 0
    assert source.asked == [("begin", 0, 0, None)]


def test_an_epoch_that_was_gone_through_is_not_abandoned_and_the_next_one_follows() -> None:
    source = Counting(length=2)
    loader = a_loader(source)

    assert [*loader, *loader] == [0, 1, 0, 1]
    assert source.asked == [("begin", 0, 0, None), ("begin", 1, 0, None)]


def test_an_iteration_that_begins_ends_the_one_before_and_its_epoch() -> None:
    source = Counting()
    loader = a_loader(source)
    first = iter(loader)
    next(first)

    assert next(iter(loader)) == 0
    assert source.asked == [("begin", 0, 0, None), "abandon", ("begin", 1, 0, None)]
    with pytest.raises(LoaderClosed, match="began another iteration"):
        next(first)


def test_an_iterator_that_gave_nothing_uses_up_no_epoch() -> None:
    loader = a_loader(Counting())

    iter(loader)

    assert next(iter(loader)) == 0
    assert loader.epoch == 0


def test_a_position_counts_batches_that_are_left_out() -> None:
    loader = a_loader(Counting(empty=(0, 1, 3)))

    assert list(islice(loader, 1)) == [2]
    assert loader.state_dict()["delivered"] == 3
    assert list(islice(loader, 2)) == [2, 4]


def test_an_error_stands_in_the_place_of_its_batch_and_moves_no_position() -> None:
    loader = a_loader(Counting(bad=(1,)))
    iterator = iter(loader)
    next(iterator)

    with pytest.raises(LookupError, match="batch 1"):
        next(iterator)

    assert loader.state_dict()["delivered"] == 1
    assert next(iterator) == 1


def test_a_state_holds_the_position_and_what_the_source_said_with_the_last_batch() -> None:
    loader = a_loader(Counting())
    list(islice(loader, 3))
    state = loader.state_dict()
    source = Counting()
    other = a_loader(source)

    other.load_state_dict(state)

    assert (state["delivered"], state["source"]) == (3, "after 3")
    assert list(other) == [3, 4, 5, 6, 7, 8, 9]
    assert source.asked == [("restore", "after 3"), ("begin", 0, 3, "after 3")]


@pytest.mark.parametrize("change", [{"delivered": 11}, {"version": 2}, {"order": "keyed"}], ids=str)
def test_a_state_that_is_refused_leaves_the_loader_as_it_was(change: dict[str, Any]) -> None:
    source = Counting()
    loader = a_loader(source)
    iterator = iter(loader)
    next(iterator)
    before = loader.state_dict()

    with pytest.raises(StateError):
        loader.load_state_dict({**before, **change})

    assert loader.state_dict() == before
    assert next(iterator) == 1
    assert source.asked == [("begin", 0, 0, None)]


def test_a_state_that_is_loaded_ends_the_iteration_under_way() -> None:
    source = Counting()
    loader = a_loader(source)
    iterator = iter(loader)
    next(iterator)

    loader.load_state_dict(loader.state_dict())

    with pytest.raises(LoaderClosed, match="its position was set"):
        next(iterator)
    assert source.asked == [("begin", 0, 0, None), "abandon", ("restore", "after 1")]


def test_a_closed_loader_gives_nothing_more_and_its_source_is_told_how_long_it_may_take() -> None:
    source = Counting()
    loader = a_loader(source)
    iterator = iter(loader)
    next(iterator)

    loader.close(0.25)

    assert source.asked == [("begin", 0, 0, None), "abandon", ("close", 0.25)]
    with pytest.raises(LoaderClosed, match="the loader was closed"):
        next(iterator)
    with pytest.raises(LoaderClosed, match="the loader was closed"):
        iter(loader)


def test_an_epoch_that_is_set_begins_from_its_start_and_the_one_under_way_is_left_alone() -> None:
    source = Counting()
    loader = a_loader(source)
    iterator = iter(loader)
    next(iterator)

    loader.set_epoch(0)
    assert next(iterator) == 1
    loader.set_epoch(5)

    assert next(iter(loader)) == 0
    assert source.asked == [("begin", 0, 0, None), "abandon", ("begin", 5, 0, None)]


@pytest.mark.parametrize("kind", [AsyncDataLoader, SharedDataLoader])
def test_both_public_loaders_are_this_one(kind: type[Loader]) -> None:
    own = {"__iter__", "__len__", "epoch", "set_epoch", "state_dict", "load_state_dict", "close", "stats"}

    assert issubclass(kind, Loader)
    assert own & vars(kind).keys() == set()


def test_a_seed_that_comes_with_a_state_is_that_of_all_batches_after_it() -> None:
    numbers = list(range(40))
    for make in (AsyncDataLoader, SharedDataLoader):
        arguments: dict[str, Any] = {"batch_size": 5, "collate_fn": list}
        if make is AsyncDataLoader:
            arguments["shuffle"] = True
        with make(numbers, seed=1, **arguments) as first, make(numbers, seed=2, **arguments) as second:
            list(islice(first, 2))
            list(islice(second, 2))

            second.load_state_dict(first.state_dict())
            first.load_state_dict(first.state_dict())

            assert [*second, *islice(second, 3)] == [*first, *islice(first, 3)]
