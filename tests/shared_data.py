"""A shared data server of its own, and the trials that share it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from trials.data.core.sample_layout import Layout
from trials.data.sharing.group_order import GroupSamples
from trials.data.sharing.producer_client import Link, greeting
from trials.data.sharing.producer_main import DatasetName, ServerSpec, SharedOrder, order_of
from trials.data.sharing.shared_batches import Making, SharedBatches
from trials.data.sharing.shared_data_loader import SharedDataLoader, Sharing
from trials.wire.plain import to_plain

FOLDER = Path(__file__).resolve().parent.parent
STARTING_S = 120.0


def order(**fields: Any) -> SharedOrder:
    return SharedOrder(**({"block_size": 16} | fields))


@contextmanager
def serving(factory: str, arguments: dict[str, Any], shared: SharedOrder, **options: Any) -> Iterator[Served]:
    """A server of ``tests.shared_datasets:factory``, ready; killed at the end if it still runs."""
    with tempfile.TemporaryDirectory(prefix="tuner-shared-") as folder:
        served = Served(Path(folder) / "data.sock", factory, arguments, shared, options)
        served.start()
        try:
            yield served
        finally:
            served.stop()


class Served:
    def __init__(
        self, path: Path, factory: str, arguments: dict[str, Any], shared: SharedOrder, options: dict[str, Any]
    ) -> None:
        self.path, self.shared = path, shared
        self.name = DatasetName(factory=f"tests.shared_datasets:{factory}", arguments=arguments)
        self._options = {"workers": 2, "memory_bytes": 4 << 20, "idle_s": 30.0} | options
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        reading, writing = os.pipe()
        spec: dict[str, Any] = to_plain(ServerSpec(socket=str(self.path), dataset=self.name, order=self.shared)) | {
            "options": self._options
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trials.data.sharing.producer_main", json.dumps(spec)],
            cwd=FOLDER,
            env={**os.environ, "TUNER_DATA_READY": str(writing)},
            pass_fds=(writing,),
        )
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            said = told.read()
        assert said == b"ready\n", said.decode()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=180)

    def workers(self) -> list[int]:
        assert self.process is not None
        pid = self.process.pid
        try:
            return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except FileNotFoundError:
            return []


def batches_of(
    name: DatasetName, shared: SharedOrder, path: Path | None, *, waited_for: bool = False, **making: Any
) -> SharedBatches:
    """Of a trial that shares at ``path``, or alone without one."""
    dataset = name.make()
    group = order_of(dataset, shared)
    hello = greeting(group.fingerprint, is_waited_for=waited_for)

    def connect(layout: Layout) -> Link | None:
        if path is None:
            return None
        try:
            return Link.open(path, layout, hello, patience_s=20.0)
        except (FileNotFoundError, ConnectionError):
            return None

    parts = {"seed": 0, "transform": getattr(dataset, "transform", None)} | making
    return SharedBatches(
        Making(order=group, samples=GroupSamples(dataset, group_seed=shared.group_seed), **parts), connect=connect
    )


def loader_of(served: Served | None, name: DatasetName, shared: SharedOrder, **options: Any) -> SharedDataLoader:
    """Of a trial that shares at the server, or alone without one."""
    sharing = Sharing(order=shared, locate=lambda: None if served is None else served.path)
    return SharedDataLoader(name.make(), sharing=sharing, **({"batch_size": 7, "seed": 0} | options))


def flat(value: Any) -> list[bytes]:
    """The bytes of a batch, with what they are."""
    if isinstance(value, torch.Tensor):
        return [f"{value.dtype}{tuple(value.shape)}".encode(), value.contiguous().numpy().tobytes()]
    if isinstance(value, dict):
        return [part for key in value for part in (str(key).encode(), *flat(value[key]))]
    return [part for item in value for part in flat(item)]


def epochs_of(loader: SharedDataLoader, epochs: int) -> list[list[bytes]]:
    return [flat(batch) for _ in range(epochs) for batch in loader]
