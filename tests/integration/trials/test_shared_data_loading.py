"""Trials that share a producer get, byte for byte, what each would have alone."""

from __future__ import annotations

import gc
import json
import mmap
import os
import random
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.shared_data import DatasetName, Served, batches_of, epochs_of, flat, loader_of, order, serving
from tests.waiting import wait_until
from trials.data import AsyncDataLoader
from trials.data.core.sample_layout import Layout
from trials.data.errors import SampleError, SharingError
from trials.data.sharing.producer_client import greeting
from trials.data.sharing.producer_main import order_of
from trials.data.sharing.producer_protocol import encode, receive_with_descriptor

EPOCHS = 2


@pytest.fixture(scope="module", params=["Augmented", "Decoded"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param, {}, order()) as found:
        yield found


@pytest.fixture
def drawn() -> Iterator[Served]:
    """One that a test may kill."""
    with serving("Drawn", {}, order()) as found:
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


def test_batches_that_are_kept_stay_as_they_were(served: Served) -> None:
    """Memory of batches is used again, but only of those that the trial has let go of."""
    with loader_of(served, served.name, served.shared) as loader:
        kept = [(batch, flat(batch)) for _ in range(EPOCHS) for batch in loader]

    assert [flat(batch) for batch, _ in kept] == [as_given for _, as_given in kept] == alone(served)


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


def test_a_position_taken_while_sharing_goes_on_in_an_async_data_loader_and_the_other_way_round() -> None:
    """Of a dataset whose decoding draws nothing: what is drawn there is keyed by the group's seed when it is shared."""
    with serving("Decoded", {}, order()) as found:
        dataset, whole = found.name.make(), alone(found, seed=4)

        def other() -> AsyncDataLoader:
            options = {"shuffle": True, "seed": 4, "transform": dataset.transform, "order": "blocks 16 0"}
            return AsyncDataLoader(dataset, 7, **options)

        with loader_of(found, found.name, found.shared, seed=4) as first, other() as second:
            got = [flat(next(iter(first))) for _ in range(1)]
            second.load_state_dict(first.state_dict())
            got += [flat(batch) for batch in second]
            steps = iter(second)
            got += [flat(next(steps)) for _ in range(3)]
            first.load_state_dict(second.state_dict())
            got += [flat(batch) for batch in first]

    assert got == whole


@pytest.mark.parametrize("members", [2, 4])
def test_any_mixture_of_sharing_resuming_and_going_alone_gives_the_same_batches(served: Served, members: int) -> None:
    """Trials in turn at random paces; after any batch one may end and go on from its position, shared or alone."""
    chosen = random.Random(members)
    expected = [alone(served, seed=seed, batch_size=3 + seed) for seed in range(members)]
    loaders = [loader_of(served, served.name, served.shared, seed=seed, batch_size=3 + seed) for seed in range(members)]
    passes = [iter(loader) for loader in loaders]
    got: list[list[list[bytes]]] = [[] for _ in loaders]
    while left := [seed for seed in range(members) if len(got[seed]) < len(expected[seed])]:
        seed = chosen.choice(left)
        for batch in passes[seed]:
            got[seed].append(flat(batch))
            break
        else:
            passes[seed] = iter(loaders[seed])
        if chosen.random() < 0.15:
            state = loaders[seed].state_dict()
            assert len(json.dumps(state)) < 300
            loaders[seed].close()
            where = chosen.choice([served, served, None])
            loaders[seed] = loader_of(where, served.name, served.shared, seed=99, batch_size=3 + seed)
            loaders[seed].load_state_dict(state)
            passes[seed] = iter(loaders[seed])
    hits = sum(loader.stats()["hits"] for loader in loaders)
    for loader in loaders:
        loader.close()

    assert got == expected
    assert hits > 0


def test_nothing_is_held_after_close_or_after_the_server_was_killed(drawn: Served) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    for kill in (False, True):
        with loader_of(drawn, drawn.name, drawn.shared) as loader:
            steps = iter(loader)
            held = next(steps)
            if kill:
                drawn.kill()
                assert sum(1 for _ in steps) == 14
        assert len(held) == 3
        assert set(Path("/proc/self/fd").iterdir()) <= before  # what earlier tests left may be collected meanwhile
    gc.collect()
    assert "tuner-shared-data" not in Path("/proc/self/maps").read_text()


def test_garbage_ends_the_connection_that_sent_it_and_no_other(served: Served) -> None:
    with loader_of(served, served.name, served.shared) as loader:
        steps = iter(loader)
        next(steps)
        for garbage in (b"x", b"{}", b'{"kind": "hello"}', b'{"kind":"welcome"}', b"\x80\x04." * 100, b"[" * 60_000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                stranger.settimeout(10)
                stranger.connect(str(served.path))
                stranger.send(garbage)
                assert stranger.recv(1 << 16) == b""
        assert len(list(steps)) == 14


def test_a_server_that_is_killed_while_it_is_greeted_is_as_good_as_none(tmp_path: Path) -> None:
    name, path = DatasetName(factory="tests.shared_datasets:Decoded", arguments={}), tmp_path / "data.sock"

    def greeted_and_killed() -> None:
        connection, _ = listening.accept()
        connection.recv(1 << 16)
        connection.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening, ThreadPoolExecutor(1) as threads:
        listening.bind(str(path))
        listening.listen()
        ended = threads.submit(greeted_and_killed)
        found = batches_of(name, order(), path).batch(0, 0, 7)
        ended.result(timeout=180)
    assert flat(found) == flat(batches_of(name, order(), None).batch(0, 0, 7))


def test_the_ring_cannot_be_written_by_a_member(drawn: Served) -> None:
    dataset = drawn.name.make()
    layout = Layout.of(dataset[0])
    assert layout is not None
    hello = greeting(order_of(dataset, drawn.shared).fingerprint, is_waited_for=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as member:
        member.connect(str(drawn.path))
        member.send(encode(hello))
        _, descriptor = receive_with_descriptor(member)
        assert descriptor is not None
        with pytest.raises(PermissionError):
            mmap.mmap(descriptor, mmap.PAGESIZE, access=mmap.ACCESS_WRITE)
        again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        for found in (descriptor, again):
            with pytest.raises(OSError, match=r"not permitted|denied|Invalid"):
                mmap.mmap(found, mmap.PAGESIZE, access=mmap.ACCESS_WRITE)
            with pytest.raises(OSError, match=r"not permitted|Invalid"):
                os.ftruncate(found, 0)
            os.close(found)


def test_a_late_trial_and_a_fast_one_get_what_they_get_alone(served: Served) -> None:
    with loader_of(served, served.name, served.shared, seed=1) as first:
        early = iter(first)
        got = [flat(next(early)) for _ in range(6)]
        late = together(served, {"seed": 2})[0]
        got += [flat(batch) for batch in early] + epochs_of(first, 1)

    assert got == alone(served, seed=1)
    assert late == alone(served, seed=2)


def test_a_slow_trial_stalls_nobody_and_still_gets_everything(drawn: Served) -> None:
    with loader_of(drawn, drawn.name, drawn.shared, seed=1) as slow:
        steps = iter(slow)
        got = [flat(next(steps))]
        assert together(drawn, {"seed": 2})[0] == alone(drawn, seed=2)
        got += [flat(batch) for batch in steps] + epochs_of(slow, 1)

    assert got == alone(drawn, seed=1)


def test_a_trial_that_is_stopped_is_passed_by(drawn: Served) -> None:
    """Its socket stays open, it just says nothing."""
    with loader_of(drawn, drawn.name, drawn.shared, seed=1) as stopped:
        next(iter(stopped))
        assert len(together(drawn, {"seed": 2})[0]) == 30


@pytest.mark.parametrize("workers", [0, 1])
def test_when_the_server_is_killed_the_trial_goes_on_alone_from_the_same_position(drawn: Served, workers: int) -> None:
    whole = alone(drawn)
    with loader_of(drawn, drawn.name, drawn.shared, num_workers=workers) as loader:
        steps = iter(loader)
        got = [flat(next(steps)) for _ in range(3)]
        drawn.kill()
        got += [flat(batch) for batch in steps] + epochs_of(loader, 1)

    assert got == whole


def test_when_a_worker_is_killed_nothing_is_lost(drawn: Served) -> None:
    whole = alone(drawn)
    with loader_of(drawn, drawn.name, drawn.shared) as loader:
        got = []
        for number, batch in enumerate(loader):
            got.append(flat(batch))
            if number % 4 == 0:
                os.kill(drawn.workers()[0], signal.SIGKILL)
                wait_until(lambda: len(drawn.workers()) == 2)
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
    with serving("Odd", {"length": 50}, order()) as found:
        options = {"collate_fn": list}
        with loader_of(found, found.name, found.shared, **options) as loader:
            shapes = sorted(sample.shape[0] for batch in loader for sample in batch)
            assert (loader.stats()["hits"], loader.stats()["misses"]) == (49, 2)  # one to see the form

    assert shapes == [4] * 49 + [5]


def test_the_scripts_own_randomness_does_not_depend_on_where_samples_come_from(drawn: Served) -> None:
    numbers = []
    for server in (drawn, None):
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        with loader_of(server, drawn.name, drawn.shared) as loader:
            numbers.append([(float(torch.rand(())), random.random(), np.random.random()) for _ in loader])

    assert numbers[0] == numbers[1]


def test_another_dataset_is_refused(drawn: Served) -> None:
    other = type(drawn.name)(factory=drawn.name.factory, arguments={"length": 60})
    with loader_of(drawn, other, drawn.shared) as loader, pytest.raises(SharingError, match="has dataset"):
        next(iter(loader))
