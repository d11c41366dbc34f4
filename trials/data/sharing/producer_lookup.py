"""``trials.data.shared``: a loader that finds its node's producer by asking the agent; without an agent it is alone."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trials.arguments import whole_number
from trials.data.loader_options import COUNT_LIMIT, SEED_LEAST, WORKERS_LIMIT
from trials.data.sharing.producer_main import BLOCK_SIZE, DatasetName, SharedOrder
from trials.data.sharing.shared_data_loader import SharedDataLoader, Sharing
from trials.wire.files import ENV_ATTEMPT_DIR, ENV_NONCE, ENV_WAKE_SOCKET, FILE_ATTEMPT
from trials.wire.sockets import DATA_SOCKET_SUFFIX

MEMORY_BYTES = 1 << 30
MEMORY_LIMIT_BYTES = 1 << 50
WORKERS_MAX = 64
ANSWER_BYTES = 64 << 10
ANSWER_TIMEOUT_S = 150.0  # a server may have to import its dataset first
REFUSED_PAUSE_S = 60.0  # before the agent is asked again after it refused
METRIC_PREFIX = "data/"
SHARING = ("shuffle", "block_size", "group_seed", "memory_bytes", "workers")
REPORTED = ("wait_s", "decode_s", "copy_s", "hit_rate")


def shared(
    dataset: str | None = None,
    batch_size: int = 1,
    *,
    arguments: Mapping[str, Any] | None = None,
    sharing: Mapping[str, Any] | None = None,
    **loader: Any,
) -> SharedDataLoader:
    """A loader of ``dataset``, decoded once for all trials of this node that name the same.

    ``dataset`` is named, ``"module:function"`` with ``arguments`` of JSON values, because the producer makes it again
    in its own process, from a copy of the experiment's code; left out, it is the one of ``trial.data`` in the
    experiment file. ``sharing``: ``shuffle``, ``block_size`` and ``group_seed``, which all who share have in common,
    ``memory_bytes`` and ``workers`` of the producer. The other arguments are those of SharedDataLoader.

    In a script that runs alone, and while there is no producer, the loader decodes for itself, with equal bytes.
    """
    given = _of_experiment()
    if dataset is not None and not isinstance(dataset, str):
        raise TypeError(
            f"shared() takes the name of a dataset, as 'package.module:function', not a {type(dataset).__name__}: each "
            "process of the node makes it anew; AsyncDataLoader takes the dataset itself"
        )
    for what, mapping in (("arguments", arguments), ("sharing", sharing)):
        if mapping is not None and not isinstance(mapping, Mapping):
            raise TypeError(f"{what} is a mapping, not {mapping!r:.60}, a {type(mapping).__name__}")
    unknown = sorted(set(sharing or {}) - set(SHARING))
    if unknown:
        raise ValueError(f"sharing has {', '.join(SHARING)}; not {', '.join(map(repr, unknown))}")
    options = {
        "memory_bytes": given.get("memory") or MEMORY_BYTES,
        "workers": given.get("workers") or _workers(),
        **(sharing or {}),
    }
    name = DatasetName(
        factory=dataset or given.get("dataset") or "", arguments=dict(arguments or given.get("arguments") or {})
    )
    order = SharedOrder(
        shuffle=bool(options.get("shuffle", True)),
        block_size=_whole(options.get("block_size", BLOCK_SIZE), "block_size", least=1, most=COUNT_LIMIT),
        group_seed=_whole(options.get("group_seed", 0), "group_seed", least=SEED_LEAST, most=-SEED_LEAST - 1),
    )
    memory_bytes = _whole(options["memory_bytes"], "memory_bytes", least=1, most=MEMORY_LIMIT_BYTES)
    workers = _whole(options["workers"], "workers", least=0, most=WORKERS_LIMIT)
    asker = _Asker(name, order, memory_bytes=memory_bytes, workers=workers)
    wanted = given.get("shared", True)
    parts = Sharing(order=order, locate=asker.locate if wanted else _nowhere, report=_reporter())
    return SharedDataLoader(name.make(), batch_size, sharing=parts, **loader)


def _whole(value: Any, name: str, *, least: int, most: int) -> int:
    return whole_number(value, what=f"sharing: {name}", least=least, most=most)


class _Asker:
    """Asks the node's agent for the producer's socket."""

    def __init__(self, name: DatasetName, order: SharedOrder, *, memory_bytes: int, workers: int) -> None:
        self._request = {
            "factory": name.factory,
            "arguments": name.arguments,
            "order": {"shuffle": order.shuffle, "block_size": order.block_size, "group_seed": order.group_seed},
            "memory_bytes": memory_bytes,
            "workers": min(max(1, workers), WORKERS_MAX),
        }
        _require_json(name.arguments)  # here and not at the first batch
        self._ask_at = 0.0

    def locate(self) -> Path | None:
        """None without an agent, and while it refuses."""
        wake, nonce = os.environ.get(ENV_WAKE_SOCKET), os.environ.get(ENV_NONCE)
        if wake is None or nonce is None or time.monotonic() < self._ask_at:
            return None
        try:
            answer = _asked(Path(wake).with_suffix(DATA_SOCKET_SUFFIX), {**self._request, "nonce": nonce})
        except (OSError, ValueError):
            return None  # the agent is gone for the moment
        if "socket" in answer:
            return Path(str(answer["socket"]))
        self._ask_at = time.monotonic() + REFUSED_PAUSE_S
        sys.stderr.write(f"no shared data: {answer.get('error')}; this trial decodes for itself\n")
        return None


def _require_json(arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"arguments: {name!r} cannot be told to the producer: {error}; it makes the dataset from JSON values, "
                "such as a path as text"
            ) from None


def _asked(path: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.settimeout(ANSWER_TIMEOUT_S)
        agent.connect(str(path))
        agent.sendall(json.dumps(request).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n") and len(data) < ANSWER_BYTES:
            part = agent.recv(ANSWER_BYTES)
            if not part:
                break
            data += part
    found = json.loads(data)
    return found if isinstance(found, dict) else {}


def _of_experiment() -> dict[str, Any]:
    """``trial.data`` of the experiment file."""
    folder = os.environ.get(ENV_ATTEMPT_DIR)
    if folder is None:
        return {}
    try:
        found = json.loads((Path(folder) / FILE_ATTEMPT).read_bytes())["spec"].get("data")
    except (OSError, ValueError, KeyError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _reporter() -> Any:
    """Tells the trial's metrics where the time of loading went; None for a script that runs alone."""
    if os.environ.get(ENV_ATTEMPT_DIR) is None:
        return None
    from trials.session import init

    def report(stats: Mapping[str, float]) -> None:
        init().report_beside({f"{METRIC_PREFIX}{name}": stats[name] for name in REPORTED})

    return report


def _workers() -> int:
    return min(len(os.sched_getaffinity(0)), WORKERS_MAX)


def _nowhere() -> None:
    return None
