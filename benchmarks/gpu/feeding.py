"""One round of one way to bring batches to a device, in a process of its own: WAY WORKERS SECONDS. Prints JSON lines.

Each workload is run with the same computation behind every batch; ``computing alone`` has one batch on the device
already, and is what no loader can be quicker than.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

WARM_UP_BATCHES = 30
SIDE, IMAGES, CLASSES = 224, 1_000, 1_000
ROWS, ROW_FLOATS = 64, 1 << 18  # 1 MiB a row
LENGTH = 1_000_000  # of both: no epoch ends within a round


class Images:
    """Decoded already, 3 x SIDE x SIDE bytes, one half of them mirrored as they are read: what decoding would cost is
    the same for every way, and not what is compared here."""

    def __init__(self) -> None:
        self.pixels = torch.randint(0, 256, (IMAGES, 3, SIDE, SIDE), dtype=torch.uint8)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = self.pixels[index % IMAGES]
        return (pixels.flip(2) if index % 2 else pixels), index % CLASSES


class Rows:
    """1 MiB of float32 a sample: nothing but moving bytes."""

    def __init__(self) -> None:
        self.rows = torch.randn(ROWS, ROW_FLOATS)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.rows[index % ROWS], index


class Classifier(nn.Module):
    """Convolutions in bfloat16 over normalised images, forwards, backwards, and a step of SGD."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 128, 256, 512)
        parts: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            parts += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
            parts += [nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        self.layers = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))
        self.to("cuda").to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch leaves this one out
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.01)

    def forward(self, batch: list[Tensor]) -> Tensor:
        images = batch[0].to(torch.bfloat16, memory_format=torch.channels_last) / 127.5 - 1.0
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(self.layers(images), batch[1])
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self.optimizer.step()
        return loss


class Products:
    """A few products of matrices, about as long as the copy of a batch takes, and one look at all of the batch."""

    def __init__(self) -> None:
        self.square = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def __call__(self, batch: list[Tensor]) -> Tensor:
        for _ in range(8):
            self.square = torch.tanh(self.square @ self.square / 64)
        return batch[0].sum()


@dataclass(frozen=True, kw_only=True)
class Workload:
    make: Callable[[], Any]
    batch_size: int
    computing: Callable[[], Callable[[Any], Tensor]]


WORKLOADS = {
    "images, 256 of 3 x 224 x 224 bytes": Workload(make=Images, batch_size=256, computing=Classifier),
    "rows, 64 MiB": Workload(make=Rows, batch_size=64, computing=Products),
}


def alone(load: Workload, _workers: int) -> Iterator[Any]:
    dataset = load.make()
    batch = torch.utils.data.default_collate([dataset[index] for index in range(load.batch_size)])
    there = [part.to("cuda") for part in batch]
    while True:
        yield there


def ours(load: Workload, workers: int) -> Iterator[Any]:
    from trials.data import AsyncDataLoader

    yield from AsyncDataLoader(load.make(), load.batch_size, shuffle=True, num_workers=workers, device="cuda")


def ours_by_itself(load: Workload, _workers: int) -> Iterator[Any]:
    """It finds out how many workers of which kind pay."""
    from trials.data import AsyncDataLoader

    yield from AsyncDataLoader(load.make(), load.batch_size, shuffle=True, num_workers="auto", device="cuda")


def torchs(load: Workload, workers: int, *, pin: bool = True) -> Iterator[Any]:
    loader = DataLoader(
        load.make(), load.batch_size, shuffle=True, num_workers=workers, persistent_workers=True, pin_memory=pin
    )
    for batch in loader:
        yield [part.to("cuda", non_blocking=pin) for part in batch]


def torchs_not_pinned(load: Workload, workers: int) -> Iterator[Any]:
    return torchs(load, workers, pin=False)


def torchs_with_a_stream(load: Workload, workers: int) -> Iterator[Any]:
    """As many training scripts do: the next batch is copied by a stream of its own while this one is computed with."""
    loader = DataLoader(
        load.make(), load.batch_size, shuffle=True, num_workers=workers, persistent_workers=True, pin_memory=True
    )
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch does not annotate it
    ahead: list[Tensor] | None = None
    for batch in loader:
        with torch.cuda.stream(stream):
            copied = [part.to("cuda", non_blocking=True) for part in batch]
        if ahead is not None:
            yield ahead
        torch.cuda.current_stream().wait_stream(stream)
        for part in copied:
            part.record_stream(torch.cuda.current_stream())
        ahead = copied


WAYS: dict[str, Callable[[Workload, int], Iterator[Any]]] = {
    "computing alone": alone,
    "ours": ours,
    "ours, auto": ours_by_itself,
    "torch, pinned, a stream of its own": torchs_with_a_stream,
    "torch, pinned": torchs,
    "torch, not pinned": torchs_not_pinned,
}


def measured(batches: Iterator[Any], computing: Callable[[Any], Tensor], seconds: float) -> dict[str, float]:
    for _ in range(WARM_UP_BATCHES):
        computing(next(batches))
    torch.cuda.synchronize()
    count, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        for _ in range(8):  # no more is queued on the device than a script would that looks at its loss now and then
            found = computing(next(batches))
        found.item()
        count += 8
    passed = time.perf_counter() - began
    return {"batches_s": count / passed, "loop_cpu": (time.process_time() - cpu) / passed}


def main() -> None:
    way, workers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.backends.cudnn.benchmark = True
    for name, load in WORKLOADS.items():
        found = measured(WAYS[way](load, workers), load.computing(), seconds)
        print(json.dumps({"workload": name, "way": way, **found}), flush=True)
    os._exit(0)  # what a loader leaves running must not hold up the next


if __name__ == "__main__":
    main()
