"""One process of a sharing run: ROLE FOLDER COUNT EPOCHS [SOCKET]. It says "ready" after its first epoch, waits for a
line, runs the measured epochs, says how many samples it had, and waits for the end of its input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BATCH = 32
WORKERS = 2
PORTS = (5555, 5556, 4444, 4445)


def main(role: str, folder: str, count: int, epochs: int, socket: str) -> None:
    epoch = PASSES[role](folder, count, socket)
    epoch()
    say("ready")
    sys.stdin.readline()
    samples = sum(epoch() for _ in range(epochs))
    say(json.dumps({"samples": samples}))
    sys.stdin.readline()
    os._exit(0)  # what a peer leaves running must not keep this one


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _photos(folder: str, count: int) -> Any:
    from benchmarks.loading.sharing_set import Photos

    return Photos(folder, count)


def counted(batches: Iterator[Any]) -> int:
    return sum(len(batch[0]) for batch in batches)


def torch_loader(folder: str, count: int) -> Any:
    import torch

    return torch.utils.data.DataLoader(
        _photos(folder, count), batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )


def torch_passes(folder: str, count: int, _: str) -> Callable[[], int]:
    loader = torch_loader(folder, count)
    return lambda: counted(iter(loader))


def our_passes(folder: str, count: int, socket: str) -> Callable[[], int]:
    from trials.data.sharing.producer_main import SharedOrder
    from trials.data.sharing.shared_data_loader import SharedDataLoader, Sharing

    sharing = Sharing(order=SharedOrder(), locate=lambda: Path(socket))
    loader = SharedDataLoader(_photos(folder, count), BATCH, sharing=sharing, seed=os.getpid())

    def epoch() -> int:
        samples = counted(iter(loader))
        sys.stderr.write(json.dumps(loader.stats()) + "\n")
        return samples

    return epoch


def produced(folder: str, count: int, _: str) -> Callable[[], int]:
    """Serves until it is killed; the consumers count."""
    from tensorsocket import TensorProducer

    # Its default, eight batches in a message, sends 64 batches' bytes for eight, since each slice is pickled with all
    # of its storage; one in a message ends in its IndexError; with a short rubber band consumers wait for ever.
    producer = TensorProducer(
        torch_loader(folder, count), *PORTS[:2], heart_ports=PORTS[2:], rubber_band_pct=0.2, producer_batch_size=2
    )
    say("serving")
    while True:
        for _ in producer:
            pass


def consumed(_folder: str, _count: int, _socket: str) -> Callable[[], int]:
    from tensorsocket import TensorConsumer

    consumer = TensorConsumer(*PORTS[:2], heart_ports=PORTS[2:], batch_size=BATCH)
    return lambda: counted(iter(consumer))


def memmap_passes(_folder: str, _count: int, file: str) -> Callable[[], int]:
    """Without a loader: there is nothing to do ahead."""
    import numpy as np

    from benchmarks.loading.decoded import decoded_batches

    images, rng = np.asarray(np.load(file, mmap_mode="r")), np.random.default_rng(os.getpid())
    return lambda: counted(decoded_batches(images, rng))


PASSES = {
    "torch": torch_passes,
    "ours": our_passes,
    "producer": produced,
    "consumer": consumed,
    "memmap": memmap_passes,
}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] if len(sys.argv) > 5 else "")
