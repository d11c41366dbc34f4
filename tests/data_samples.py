"""Datasets for tests of data loading: small, exact, and at the top level of a module, so that workers can have them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch


class Numbers:
    """Sample ``i`` is (a row that says ``i``, ``i``)."""

    def __init__(self, length: int = 103, width: int = 5) -> None:
        self.rows = torch.arange(length * width, dtype=torch.float32).reshape(length, width)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], index


class Augmented(Numbers):
    """Draws from the three global generators, from some only in some samples."""

    def __getitem__(self, index: int) -> Any:
        row, number = super().__getitem__(index)
        noise = torch.rand(5) if index % 3 else torch.randn(5)
        drawn = random.gauss(0, 1) if index % 5 == 0 else float(number)
        return {"row": row + noise, "numpy": np.random.normal(size=2), "random": drawn, "index": number}


class SlowlyAugmented(Augmented):
    """Each sample takes a millisecond, so that there is time to kill something."""

    def __getitem__(self, index: int) -> Any:
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
        return super().__getitem__(index)


class Together(Numbers):
    """Loads many samples with one call; each says how many came with it, and that is kept apart from its row."""

    def __init__(self, length: int = 103, width: int = 5) -> None:
        super().__init__(length, width)
        self.calls: list[list[int]] = []

    def __getitem__(self, index: int) -> Any:
        return *super().__getitem__(index), 1

    def __getitems__(self, indices: list[int]) -> Any:
        self.calls.append(indices)
        rows = self.rows[indices]
        return [(row, index, len(indices)) for row, index in zip(rows, indices, strict=True)]


class AugmentedTogether(Augmented):
    """As quick as it likes, what it draws is that of each sample."""

    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in reversed(indices)][::-1]


class RaisingTogether(Together):
    """Of a batch with a ``bad`` one, and of one with a ``spoilt`` one, which can be had alone."""

    def __init__(self, *bad: int, spoilt: int = -1) -> None:
        super().__init__(40)
        self.bad, self.spoilt = set(bad), spoilt

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise LookupError(f"row {index} is damaged")
        return super().__getitem__(index)

    def __getitems__(self, indices: list[int]) -> Any:
        if self.bad.intersection(indices) or self.spoilt in indices:
            raise LookupError("the rows are damaged")
        return super().__getitems__(indices)


class OtherAnswer(Numbers):
    """``__getitems__`` gives ``answer``."""

    def __init__(self, answer: Any) -> None:
        super().__init__(8)
        self.answer = answer

    def __getitems__(self, indices: list[int]) -> Any:
        return self.answer


class NothingSingle(torch.utils.data.Dataset[Any]):
    """Can be asked for many samples only."""

    def __len__(self) -> int:
        return 20

    def __getitems__(self, indices: list[int]) -> Any:
        return [torch.tensor([float(index)]) for index in indices]


class Texts:
    """Samples that fit no layout."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return {"text": f"sample {index}", "length": index}


class OddSizes:
    """Every seventh sample has another shape."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2 if index % 7 == 3 else 3,), float(index))


class Raising(Numbers):
    def __init__(self, *bad: int, length: int = 40) -> None:
        super().__init__(length)
        self.bad = set(bad)

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise LookupError(f"row {index} is damaged")
        return super().__getitem__(index)


class Deadly(Numbers):
    """The worker that loads ``bad`` is killed, or exits; ``times`` often, counted in ``folder``."""

    def __init__(self, bad: int, folder: Path, *, times: int = 1 << 30, exit_code: int | None = None) -> None:
        super().__init__(40)
        self.bad, self.folder, self.times, self.exit_code = bad, folder, times, exit_code

    def __getitem__(self, index: int) -> Any:
        if index == self.bad and len(list(self.folder.iterdir())) < self.times:
            (self.folder / f"{os.getpid()}").touch()
            if self.exit_code is not None:
                raise SystemExit(self.exit_code)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Forking(Numbers):
    """What loads ``bad`` forks a process that stays, and is then killed, once; ``server``: with the process that it is
    a fork of. The pid is in ``folder``."""

    def __init__(self, bad: int, folder: Path, *, server: bool) -> None:
        super().__init__(40)
        self.bad, self.left, self.server = bad, folder / "left", server

    def __getitem__(self, index: int) -> Any:
        if index == self.bad and not self.left.exists():
            pid = os.fork()
            if pid == 0:
                while True:
                    signal.pause()
            self.left.write_text(str(pid))
            os.kill(os.getppid() if self.server else os.getpid(), signal.SIGKILL)
            signal.pause()
        return super().__getitem__(index)


class DeadlyTogether(Deadly):
    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class Counted(Numbers):
    """Each sample that is asked for leaves a file."""

    def __init__(self, folder: Path, length: int = 400) -> None:
        super().__init__(length)
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        with (self.folder / "asked").open("a") as file:
            file.write(f"{index}\n")
        return super().__getitem__(index)

    def asked(self) -> list[int]:
        path = self.folder / "asked"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


class Remembering(Numbers):
    """Each sample that is asked for changes the dataset."""

    def __init__(self, length: int = 40) -> None:
        super().__init__(length)
        self.asked: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return super().__getitem__(index)


class Stuck(Numbers):
    """Sample ``bad`` waits until ``gate`` is there, in C: no signal of Python's reaches it."""

    def __init__(self, bad: int, gate: Path, length: int = 40) -> None:
        super().__init__(length)
        self.bad, self.gate = bad, gate

    def __getitem__(self, index: int) -> Any:
        while index == self.bad and not self.gate.exists():
            stuck_here()
        return super().__getitem__(index)


class StuckTogether(Stuck):
    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


def stuck_here() -> None:
    time.sleep(0.05)


class Stream(torch.utils.data.IterableDataset[Any]):
    """An iterable with a state of its own."""

    def __init__(self, length: int = 30) -> None:
        self.length, self.next = length, 0

    def __iter__(self) -> Iterator[int]:
        while self.next < self.length:
            self.next += 1
            yield self.next - 1
        self.next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


class PlainStream:
    """An iterable without a state."""

    def __init__(self, length: int = 30, bad: int = -1) -> None:
        self.length, self.bad = length, bad

    def __iter__(self) -> Iterator[int]:
        for number in range(self.length):
            if number == self.bad:
                raise LookupError(f"line {number} is damaged")
            yield number


class ShuffledStream:
    """An iterable without a state that shuffles in a buffer, and draws from the three global generators."""

    def __init__(self, length: int = 30) -> None:
        self.length = length

    def __iter__(self) -> Iterator[tuple[int, float, float]]:
        buffer: list[int] = []
        for number in range(self.length):
            buffer.append(number)
            if len(buffer) > 4:
                yield self._drawn(buffer)
        while buffer:
            yield self._drawn(buffer)

    @staticmethod
    def _drawn(buffer: list[int]) -> tuple[int, float, float]:
        number = buffer.pop(random.randrange(len(buffer)))
        return number, float(np.random.normal()), float(torch.rand(()) if number % 3 == 0 else 0.0)


class Square:
    """A function that a data source hands out."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self) -> torch.Tensor:
        return torch.tensor([self.number**2, os.getpid()])


class Coordinator:
    """A data source: ready samples, or functions."""

    def __init__(self, batches: int, *, functions: bool) -> None:
        self.batches, self.functions = batches, functions
        self.asked: list[int] = []
        self.priorities: dict[int, float] = {}

    def __call__(self, batch_size: int) -> Sequence[Any] | None:
        if len(self.asked) == self.batches:
            return None
        first = sum(self.asked)
        self.asked.append(batch_size)
        numbers = range(first, first + batch_size)
        return [Square(n) for n in numbers] if self.functions else [torch.tensor([n**2]) for n in numbers]

    def update_priorities(self, indices: Sequence[int], priorities: Sequence[float]) -> None:
        self.priorities.update(zip(indices, priorities, strict=True))


def jittered(sample: Any, rng: np.random.Generator) -> Any:
    """A transform with randomness of its own."""
    return sample, rng.random(), int(rng.integers(1000))


def reversed_batch(samples: list[Any]) -> list[Any]:
    """A collate function of somebody's own."""
    return [torch.stack([row for row, _ in reversed(samples)]), [index for _, index in samples]]


def refusing_batch(samples: list[Any]) -> Any:
    raise ValueError(f"{len(samples)} samples do not go together")


def same(left: Any, right: Any) -> bool:
    """The same containers, the same bytes."""
    if isinstance(left, torch.Tensor):
        return (
            isinstance(right, torch.Tensor)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and _bytes(left) == _bytes(right)
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    return bool(left == right)


def _bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
    return plain.contiguous().numpy().tobytes()


def indices_of(batches: Sequence[Any]) -> list[int]:
    """Of batches of ``Numbers``."""
    return [int(index) for _, indices in batches for index in indices]


Make = Callable[..., Any]
