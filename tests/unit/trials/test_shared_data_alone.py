"""SharedDataLoader without a producer: what its position means, and what it refuses."""

from __future__ import annotations

import errno
import os
import random
import socket
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from trials.data.errors import DatasetMismatch, LoaderClosed, SampleError, SharingError, StateError
from trials.data.sharing import producer, producer_client, shared_batches
from trials.data.sharing.group_order import GroupSamples
from trials.data.sharing.producer import ServerOptions, SharedDataServer
from trials.data.sharing.producer_lookup import shared
from trials.data.sharing.producer_main import DatasetName, ServerSpec, SharedOrder, order_of, serve
from trials.data.sharing.producer_protocol import listen
from trials.data.sharing.shared_data_loader import SharedDataLoader, Sharing


class Numbers:
    def __init__(self, length: int = 50) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return index, random.random()


class Torn(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index == 30:
            raise OSError("torn")
        return index


def a_loader(dataset: Any = None, **options: Any) -> SharedDataLoader:
    sharing = Sharing(order=SharedOrder(block_size=8, **options.pop("order", {})))
    fields: dict[str, Any] = {"batch_size": 7, "seed": 1, "collate_fn": list, "sharing": sharing}
    return SharedDataLoader(Numbers() if dataset is None else dataset, **(fields | options))


def indices(batches: Any) -> list[int]:
    return [sample[0] for batch in batches for sample in batch]


def test_an_epoch_has_every_sample_once_and_the_next_one_another_order() -> None:
    with a_loader() as loader:
        first, second = indices(loader), indices(loader)
        assert loader.epoch == 2

    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


def test_every_epoch_can_be_gone_to_and_is_the_same_again() -> None:
    with a_loader() as loader:
        first, second = [list(loader), list(loader)]
        loader.set_epoch(0)
        assert list(loader) == first
        loader.set_epoch(1)
        assert list(loader) == second
        with pytest.raises(ValueError, match="at least 0"):
            loader.set_epoch(-1)


def test_a_short_last_batch_is_kept_or_left_out() -> None:
    with a_loader() as kept, a_loader(drop_last=True) as dropped:
        assert [len(batch) for batch in kept] == [7] * 7 + [1]
        assert [len(batch) for batch in dropped] == [7] * 7
        assert (len(kept), len(dropped)) == (8, 7)


def test_without_shuffle_the_order_is_that_of_the_dataset() -> None:
    with a_loader(order={"shuffle": False}) as loader:
        assert indices(loader) == list(range(50))


def test_trials_of_other_seeds_have_other_orders_of_the_same_blocks() -> None:
    with a_loader(seed=1) as one, a_loader(seed=2) as two, a_loader(own_order=False) as group:
        orders = [indices(one), indices(two), indices(group)]

    assert len({tuple(found) for found in orders}) == 3
    for begin in range(0, 50, 8):
        assert len({frozenset(found[begin : begin + 8]) for found in orders}) == 1


def test_a_position_goes_on_after_its_batch_also_with_another_batch_size_and_seed() -> None:
    with a_loader() as loader:
        whole = indices(loader)
    for cut in range(8):
        with a_loader() as loader, a_loader(seed=9, batch_size=3) as other:
            steps = iter(loader)
            got = indices(next(steps) for _ in range(cut))
            other.load_state_dict(loader.state_dict())
            assert got + indices(other) == whole


class Prefetched:
    """Batches of workers, made in this process: what is on its way was asked for when the first of it was."""

    def __init__(self, samples: Any, order: Any, *, workers: int, items: Any) -> None:
        self.items, self.coming = items, deque[tuple[tuple[int, int], list[Any]]]()

    def batch(self, epoch: int, begin: int, rest: Any) -> list[Any]:
        if not self.coming or self.coming[0][0] != (epoch, begin):
            found = [((epoch, share.begin), self.items(epoch, share.begin, share.end)) for share in rest()]
            self.coming = deque(found)
        return [(index, 0.0) for index in self.coming.popleft()[1]]

    def close(self) -> None:
        self.coming.clear()


def test_a_position_of_another_seed_is_gone_to_past_what_workers_have_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_batches, "AloneBatches", Prefetched)
    with a_loader(num_workers=1) as loader, a_loader(seed=9, num_workers=1) as other:
        whole = indices(loader)
        loader.set_epoch(0)
        next(loader)
        next(other)
        other.load_state_dict(loader.state_dict())
        assert indices(other) == whole[7:]


def test_a_second_iteration_ends_the_first_and_begins_the_next_epoch() -> None:
    with a_loader() as loader:
        first = iter(loader)
        next(first)
        second = iter(loader)
        next(second)
        assert loader.epoch == 1
        with pytest.raises(LoaderClosed):
            next(first)


def test_after_close_nothing_is_given_any_more() -> None:
    loader = a_loader()
    steps = iter(loader)
    next(steps)
    loader.close()
    with pytest.raises(LoaderClosed):
        next(steps)
    with pytest.raises(LoaderClosed):
        iter(loader)


def test_a_state_of_another_dataset_or_order_is_refused_and_nothing_changes() -> None:
    with a_loader() as loader, a_loader(Numbers(51)) as longer, a_loader(order={"group_seed": 1}) as elsewhere:
        before = loader.state_dict()
        with pytest.raises(DatasetMismatch):
            loader.load_state_dict(longer.state_dict())
        with pytest.raises(StateError):
            loader.load_state_dict(elsewhere.state_dict())
        with pytest.raises(StateError):
            loader.load_state_dict({**before, "delivered": 51})
        assert loader.state_dict() == before


def test_a_sample_that_raises_is_named_in_its_place() -> None:
    with a_loader(Torn(), order={"shuffle": False}) as loader:
        steps = iter(loader)
        assert [next(steps)[0] for _ in range(4)] == [0, 7, 14, 21]
        with pytest.raises(SampleError, match="sample 30 could not be loaded"):
            next(steps)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"lag": "never"}, "lag is 'detach' or 'wait'"),
        ({"num_workers": -1}, "num_workers"),
        ({"timeout": 0}, "timeout"),
        ({"zero_copy": True}, "zero_copy needs lag='wait'"),
        ({"zero_copy": True, "lag": "wait", "own_order": False}, "collate_fn"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        a_loader(**options)


@pytest.mark.parametrize("factory", ["nothing", "json:", ":x", "no_such_module_here:f", "json:nothing"])
def test_a_dataset_whose_name_says_nothing_is_refused(factory: str) -> None:
    with pytest.raises(SharingError):
        DatasetName(factory=factory).make()


def test_where_the_time_went_is_reported_at_the_end_of_an_epoch() -> None:
    told: list[Any] = []
    with SharedDataLoader(Numbers(), 10, sharing=Sharing(report=told.append), collate_fn=list) as loader:
        list(loader)

    assert told[0]["misses"] >= 50
    assert told[0]["hit_rate"] == 0


def test_the_loader_of_a_script_that_runs_alone_needs_no_agent() -> None:
    loader = shared("tests.shared_datasets:Numbers", 7, arguments={"length": 20}, collate_fn=list, seed=1)
    with loader:
        assert sorted(sample for batch in loader for sample in batch) == list(range(20))
        assert not loader.is_sharing
    with pytest.raises(ValueError, match="not 'block'"):
        shared("tests.shared_datasets:Numbers", sharing={"block": 5})
    with pytest.raises(SharingError, match="a dataset is named as in"):
        shared()


def test_a_sampler_chooses_the_samples_of_each_epoch_and_is_resumed() -> None:
    class Drawn:
        def __len__(self) -> int:
            return 9

        def __iter__(self) -> Any:
            return iter([-1, *(random.randrange(50) for _ in range(8))])

    with a_loader(sampler=Drawn()) as loader:
        assert len(loader) == 2
        whole = indices(loader)
    with a_loader(sampler=Drawn()) as loader:
        first = [sample[0] for sample in next(loader)]
        state = loader.state_dict()
    with a_loader(sampler=Drawn()) as loader:
        loader.load_state_dict(state)
        assert [*first, *indices(loader)] == whole
    assert whole[0] == 49
    with a_loader() as plain, pytest.raises(StateError, match="sampler Drawn"):
        plain.load_state_dict(state)


@pytest.mark.parametrize("given", [50, -51, "3", 1.0])
def test_a_sampler_that_gives_no_index_is_refused_by_what_it_gave(given: Any) -> None:
    with a_loader(sampler=[1, given]) as loader, pytest.raises(ValueError, match="no index of a dataset of 50"):
        next(loader)


def test_batches_go_through_pinned_memory_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        moved.append("pinned")
        return tensor

    def sent(tensor: torch.Tensor, device: Any, *, non_blocking: bool) -> torch.Tensor:
        moved.append(f"{device} {non_blocking}")
        return tensor

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    monkeypatch.setattr(torch.Tensor, "to", sent)
    with a_loader(list(range(9)), collate_fn=None, device="cuda:1") as there:
        next(there)
    with a_loader(list(range(9)), collate_fn=None, pin_memory=True) as in_memory:
        next(in_memory)

    assert moved == ["pinned", "cuda:1 True", "pinned"]


def test_batches_stay_where_they_are_without_a_device() -> None:
    with a_loader(list(range(9)), collate_fn=None, pin_memory=True, device="cpu") as loader:
        assert len(next(loader)) == 7
    with pytest.raises(ValueError, match="needs CUDA"):
        a_loader(device="cuda")


# ── lent batches ────────────────────────────────────────────────────────────────────────────────
class Plain(Numbers):
    def __getitem__(self, index: int) -> Any:
        return index


class Lending:
    """A link to a producer that lends the group's order, and may overwrite what it lent."""

    wait_s = 0.0

    def __init__(self) -> None:
        self.has_overwritten = False

    def in_place(self, wanted: Any) -> list[Any]:
        return [np.asarray(wanted.indices)]

    def still_there(self, _: Any) -> bool:
        return not self.has_overwritten

    def close(self) -> None: ...


@pytest.fixture
def lending(monkeypatch: pytest.MonkeyPatch) -> Lending:
    link = Lending()
    monkeypatch.setattr(SharedDataLoader, "_connect", lambda *_: link)
    return link


def a_lent_loader() -> SharedDataLoader:
    return a_loader(Plain(), zero_copy=True, lag="wait", own_order=False, collate_fn=None)


def test_the_last_batch_of_an_epoch_that_was_overwritten_is_told_at_the_end_of_the_epoch(lending: Lending) -> None:
    with a_lent_loader() as loader:
        iterator = iter(loader)
        for _ in range(len(loader)):
            next(iterator)
        lending.has_overwritten = True
        with pytest.raises(SharingError, match="the producer has overwritten it"):
            next(iterator)


def test_what_is_overwritten_after_its_epoch_harms_nobody(lending: Lending, capsys: pytest.CaptureFixture[str]) -> None:
    with a_lent_loader() as loader:
        for _ in loader:
            pass
        lending.has_overwritten = True
        loader.state_dict()
        for _ in loader:
            lending.has_overwritten = False
            break
        lending.has_overwritten = False
    assert capsys.readouterr().err == ""


def test_no_state_is_given_after_a_batch_that_was_overwritten(lending: Lending) -> None:
    with a_lent_loader() as loader:
        next(loader)
        before = loader.state_dict()
        lending.has_overwritten = True
        with pytest.raises(SharingError, match="go back to the last checkpoint"):
            loader.state_dict()
        loader.load_state_dict(before)


def test_a_run_that_ends_within_an_epoch_says_that_its_last_batch_was_overwritten(
    lending: Lending, capsys: pytest.CaptureFixture[str]
) -> None:
    with a_lent_loader() as loader:
        next(loader)
        lending.has_overwritten = True
    assert "the last batch, which was lent by zero_copy, has been overwritten since" in capsys.readouterr().err
    loader.close()
    assert capsys.readouterr().err == ""


def test_a_producer_that_hangs_is_no_error_of_the_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_client, "GREETING_TIMEOUT_S", 0.01)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stopped:
        stopped.bind(str(tmp_path / "d"))
        stopped.listen()
        sharing = Sharing(order=SharedOrder(block_size=8), locate=lambda: tmp_path / "d")
        with a_loader(sharing=sharing) as loader:
            assert sorted(indices(loader)) == list(range(50))
            assert not loader.is_sharing


def test_a_trial_without_a_descriptor_to_spare_loads_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(producer_client.Link, "open", refused)
    with a_loader(sharing=Sharing(order=SharedOrder(block_size=8), locate=lambda: Path("d"))) as loader:
        assert sorted(indices(loader)) == list(range(50))


def test_a_look_for_a_producer_that_took_long_is_repeated_after_ten_times_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, looks = [0.0], list[float]()

    def locate() -> None:
        looks.append(now[0])
        now[0] += 100.0  # of an agent that hangs

    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    monkeypatch.setattr(shared_batches, "time", clock)
    with a_loader(sharing=Sharing(order=SharedOrder(block_size=8), locate=locate)) as loader:
        for _ in range(5):
            for _ in loader:
                now[0] += 50.0

    assert looks == [0.0, 1100.0]


def test_a_producer_with_as_many_trials_as_it_takes_says_nothing_to_a_further_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says would be an error of that trial, which loads for itself."""
    monkeypatch.setattr(producer, "MEMBERS_MAX", 0)
    samples = GroupSamples(Numbers(), group_seed=0)
    server = SharedDataServer(order_of(Numbers(), SharedOrder()), samples, ServerOptions(memory_bytes=16 << 20))
    try:
        with listen(tmp_path / "d") as listening, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as trial:
            server._listening = listening
            trial.connect(str(tmp_path / "d"))
            server._accept()
            assert trial.recv(1000) == b""
    finally:
        server._close()


def test_a_server_whose_place_another_has_taken_leaves_that_ones_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where whatever tidies up had removed the files of the first, and the agent has started the second."""
    path, lock = tmp_path / "d.sock", tmp_path / "d.lock"

    def taken_away(server: SharedDataServer, *_: object, **__: object) -> None:
        for file in (path, lock):
            file.unlink()
            file.touch()
        server._close()

    monkeypatch.setattr(SharedDataServer, "run", taken_away)
    dataset = DatasetName(factory=f"{__name__}:Numbers")
    served = serve(ServerSpec(socket=str(path), dataset=dataset, options=ServerOptions(memory_bytes=16 << 20)))

    assert (served, path.exists(), lock.exists()) == (0, True, True)
