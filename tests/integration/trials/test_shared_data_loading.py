"""Trials that share a producer get, byte for byte, what each would have alone."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from tests.shared_data import Served, epochs_of, flat, loader_of, order, serving
from tests.waiting import wait_until
from trials.data.errors import SampleError, SharingError

pytestmark = pytest.mark.filterwarnings("ignore:.*decodes for itself:RuntimeWarning")
EPOCHS = 2


@pytest.fixture(scope="module", params=["Augmented", "Decoded"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param, {}, order()) as found:
        yield found


@pytest.fixture
def augmented() -> Iterator[Served]:
    with serving("Augmented", {}, order()) as found:
        yield found


def alone(served: Served, **options: Any) -> list[list[bytes]]:
    with loader_of(None, served.name, served.shared, **options) as loader:
        return epochs_of(loader, EPOCHS)


def together(served: Served, *members: dict[str, Any]) -> list[list[list[bytes]]]:
    """What members get that run at the same time."""

    def run(options: dict[str, Any]) -> list[list[bytes]]:
        with loader_of(served, served.name, served.shared, **options) as loader:
            found = epochs_of(loader, EPOCHS)
            assert loader.stats()["hits"] > 0
            return found

    # One thread each; what is drawn from the global generators here would meet, so only the producer may decode.
    with ThreadPoolExecutor(len(members)) as threads:
        return list(threads.map(run, members))


@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_a_trial_that_shares_with_nobody_gets_what_it_gets_alone(served: Served, batch_size: int) -> None:
    options = {"batch_size": batch_size, "seed": 3}

    assert together(served, options)[0] == alone(served, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_alone_the_number_of_workers_changes_nothing(served: Served, workers: int) -> None:
    assert alone(served, num_workers=workers) == alone(served)


def test_coprime_batch_sizes_share_one_producer_and_no_sample_is_lost_or_doubled() -> None:
    with serving("Numbers", {"length": 229}, order()) as found:
        members = [{"batch_size": size, "seed": size, "lag": "wait"} for size in (7, 13, 32)]
        for got, options in zip(together(found, *members), members, strict=True):
            numbers = np.concatenate([np.frombuffer(batch[1], dtype=np.int64) for batch in got])
            first, second = numbers[:229], numbers[229:]
            assert sorted(first) == sorted(second) == list(range(229))
            assert list(first) != list(second)
            assert got == alone(found, **options)


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_groups_order_without_copies_is_the_same(shuffle: bool) -> None:
    with serving("Numbers", {"length": 100}, order(shuffle=shuffle)) as found:
        options = {"own_order": False, "lag": "wait"}
        with loader_of(found, found.name, found.shared, zero_copy=True, **options) as loader:
            got = epochs_of(loader, EPOCHS)
            assert loader.stats()["hit_rate"] > 0.9
        assert got == alone(found, **options)


def test_a_position_taken_while_sharing_goes_on_alone_and_the_other_way_round(served: Served) -> None:
    whole = alone(served)
    for first, second in ((served, None), (None, served)):
        got: list[list[bytes]] = []
        with loader_of(first, served.name, served.shared) as loader:
            iterator = iter(loader)
            got += [flat(next(iterator)) for _ in range(5)]
            state = loader.state_dict()
        with loader_of(second, served.name, served.shared, seed=99) as loader:
            loader.load_state_dict(state)
            got += epochs_of(loader, EPOCHS)
        assert got == whole


def test_a_late_trial_and_a_fast_one_get_what_they_get_alone(served: Served) -> None:
    with loader_of(served, served.name, served.shared, seed=1) as first:
        early = iter(first)
        got = [flat(next(early)) for _ in range(6)]
        late = together(served, {"seed": 2})[0]
        got += [flat(batch) for batch in early] + epochs_of(first, 1)

    assert got == alone(served, seed=1)
    assert late == alone(served, seed=2)


def test_a_slow_trial_stalls_nobody_and_still_gets_everything(augmented: Served) -> None:
    with loader_of(augmented, augmented.name, augmented.shared, seed=1) as slow:
        steps = iter(slow)
        got = [flat(next(steps))]
        assert together(augmented, {"seed": 2})[0] == alone(augmented, seed=2)
        got += [flat(batch) for batch in steps] + epochs_of(slow, 1)

    assert got == alone(augmented, seed=1)


def test_a_trial_that_is_stopped_is_passed_by(augmented: Served) -> None:
    """Its socket stays open, it just says nothing."""
    with loader_of(augmented, augmented.name, augmented.shared, seed=1) as stopped:
        next(iter(stopped))
        assert len(together(augmented, {"seed": 2})[0]) == 30


@pytest.mark.parametrize("workers", [0, 1])
def test_when_the_server_is_killed_the_trial_goes_on_alone_from_the_same_position(
    augmented: Served, workers: int
) -> None:
    whole = alone(augmented)
    with loader_of(augmented, augmented.name, augmented.shared, num_workers=workers) as loader:
        steps = iter(loader)
        got = [flat(next(steps)) for _ in range(3)]
        augmented.kill()
        got += [flat(batch) for batch in steps] + epochs_of(loader, 1)

    assert got == whole


def test_when_a_worker_is_killed_nothing_is_lost(augmented: Served) -> None:
    whole = alone(augmented)
    with loader_of(augmented, augmented.name, augmented.shared) as loader:
        got = []
        for number, batch in enumerate(loader):
            got.append(flat(batch))
            if number % 4 == 0:
                os.kill(augmented.workers()[0], signal.SIGKILL)
                wait_until(lambda: len(augmented.workers()) == 2)
        got += epochs_of(loader, 1)

    assert got == whole


def test_a_sample_that_raises_is_the_error_of_each_trial_in_its_place() -> None:
    with serving("Broken", {}, order(shuffle=False)) as found, loader_of(found, found.name, found.shared) as loader:
        steps = iter(loader)
        assert [flat(next(steps)) for _ in range(2)]
        with pytest.raises(SampleError, match="sample 17") as caught:
            next(steps)

    assert isinstance(caught.value.__cause__, ValueError)


def test_a_sample_of_another_shape_is_decoded_by_the_trial() -> None:
    with serving("Odd", {}, order()) as found:
        options = {"collate_fn": list}
        with loader_of(found, found.name, found.shared, **options) as loader:
            shapes = sorted(sample.shape[0] for batch in loader for sample in batch)
            assert (loader.stats()["hits"], loader.stats()["misses"]) == (49, 2)  # one to see the form

    assert shapes == [4] * 49 + [5]


def test_the_scripts_own_randomness_does_not_depend_on_where_samples_come_from(augmented: Served) -> None:
    drawn = []
    for server in (augmented, None):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        with loader_of(server, augmented.name, augmented.shared) as loader:
            drawn.append([(float(torch.rand(())), random.random(), np.random.random()) for _ in loader])

    assert drawn[0] == drawn[1]


def test_another_dataset_is_refused(augmented: Served) -> None:
    other = type(augmented.name)(factory=augmented.name.factory, arguments={"length": 60})
    with loader_of(augmented, other, augmented.shared) as loader, pytest.raises(SharingError, match="has dataset"):
        next(iter(loader))
