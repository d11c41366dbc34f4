"""The process of a shared data server: ``python -m trials.data.sharing.producer_main SPEC`` with the spec as JSON.

The dataset is named, never sent: ``module:factory`` with arguments in JSON, imported here from the working directory.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trials.data.core.fingerprint import fingerprint, length_of
from trials.data.errors import SharingError
from trials.data.sharing.group_order import GroupOrder, GroupSamples
from trials.data.sharing.producer import ServerOptions, SharedDataServer
from trials.data.sharing.producer_protocol import listen, require_private
from trials.wire.log_format import configure_logging
from trials.wire.log_lines import ENV_LOG_FORMAT, form_named
from trials.wire.plain import ProtocolError, from_plain

BLOCK_SIZE = 128
READY = b"ready\n"
PROBLEM_BYTES = 4000
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetName:
    """What every process of the node can make the same dataset from."""

    factory: str  # module:function, or module:Class
    arguments: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """SharingError says what cannot be imported; the factory's own error comes as it is."""
        module, _, name = self.factory.partition(":")
        if not module or not name:
            raise SharingError(f"a dataset is named as in 'package.module:function', not {self.factory!r}")
        try:
            found: Any = importlib.import_module(module)
        except (ImportError, TypeError, ValueError) as error:  # the last two: of a name that no module can have
            raise SharingError(f"the module of dataset {self.factory!r} cannot be imported: {error}") from error
        for part in name.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            raise SharingError(f"{module} has no function or class {name}")
        return found(**self.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOrder:
    """What all trials that share have in common, beside the dataset."""

    shuffle: bool = True
    block_size: int = BLOCK_SIZE
    group_seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    socket: str
    dataset: DatasetName
    order: SharedOrder = field(default_factory=SharedOrder)
    options: ServerOptions = field(default_factory=ServerOptions)


def order_of(dataset: Any, shared: SharedOrder) -> GroupOrder:
    """ValueError for a block that holds nothing."""
    if shared.block_size < 1:
        raise ValueError(f"block_size is at least 1, not {shared.block_size}")
    length = length_of(dataset)
    if length is None or not (hasattr(dataset, "decode") or hasattr(dataset, "__getitem__")):
        raise SharingError(
            f"a {type(dataset).__name__} cannot be shared: it needs __len__, and decode(index) or __getitem__; "
            "AsyncDataLoader takes what has no index"
        )
    return GroupOrder(
        length=length,
        shuffle=shared.shuffle,
        block=shared.block_size,
        dataset=fingerprint(dataset),
        group_seed=shared.group_seed,
    )


def serve(spec: ServerSpec, *, ready: int | None = None) -> int:
    """Serve until idle; 0 also when another server has the socket already. ``ready`` is told how the start went."""
    path = Path(spec.socket)
    require_private(path.parent)
    lock = _lock(path.with_suffix(".lock"))
    if lock is None:
        _tell(ready, READY)
        return 0
    try:
        dataset = spec.dataset.make()
        samples = GroupSamples(dataset, group_seed=spec.order.group_seed)
        server = SharedDataServer(order_of(dataset, spec.order), samples, spec.options)
        with listen(path) as listening:
            _tell(ready, READY)
            server.run(listening, not_for_workers=(lock,))
        return 0
    except SharingError as error:
        _tell(ready, str(error).encode())
        logger.error("not_served", extra={"error": error})
        return 1
    except Exception as error:
        _tell(ready, f"the dataset cannot be made: {error!r}".encode())
        raise
    finally:
        # Where the lock was taken away meanwhile, both may be those of a server that has this one's place.
        if _is_at(path.with_suffix(".lock"), lock):
            path.unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
        os.close(lock)


def _lock(path: Path) -> int | None:
    """Held as long as the descriptor is open; None when another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, descriptor):  # else its holder has just removed it
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _tell(descriptor: int | None, text: bytes) -> None:
    if descriptor is None:
        return
    try:
        os.write(descriptor, text[:PROBLEM_BYTES])
        os.close(descriptor)
    except OSError as error:  # told already, or nobody listens any more
        logger.debug("not_told", extra={"error": error})


def read_spec(text: str) -> ServerSpec:
    try:
        found: ServerSpec = from_plain(ServerSpec, json.loads(text), where="spec")
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"no spec of a shared data server: {error}") from error
    return found


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m trials.data.sharing.producer_main SPEC\n")
        return 2
    configure_logging(logging.StreamHandler(), form=form_named(environ.get(ENV_LOG_FORMAT)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ready = environ.get("TUNER_DATA_READY")
    return serve(read_spec(arguments[0]), ready=None if ready is None else int(ready))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
