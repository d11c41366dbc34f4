"""Who provides nodes, as the setting ``executor`` says it. Pure; the settings and the executors read it.

``local`` is an agent on this machine. ``ray`` is agents on a Ray cluster: a name, or a table with what it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner_service.domain.node_kinds import NODES_LIMIT, ExecutorRequest, NodeShape
from tuner_service.domain.resources import EXECUTORS, RAY

NAMES = ("local", "ray")
OWN_CLUSTER = "local"  # the address of a cluster that the service starts for itself on this machine
AUTO = "auto"
CPUS_LIMIT = 1 << 20
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "MB": 10**6, "GB": 10**9, "MIB": 1 << 20, "GIB": 1 << 30}
_PLAIN_ADDRESS = re.compile(r"(ray://)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):\d{1,5}")


@dataclass(frozen=True, kw_only=True)
class RayNodes:
    """What one bundle has, and how many of them there may be. ``idle_s``: after so long without a trial one goes."""

    shape: NodeShape = field(default_factory=NodeShape)
    least: int = 0
    most: int = 8
    idle_s: float = 300.0


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """``service_lost_s``: without the service for so long, a node ends its trials and is given back."""

    address: str = AUTO
    nodes: RayNodes = field(default_factory=RayNodes)
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    python: str = ""  # of the bridge; the service's own where empty
    service_lost_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """``has_local``: an agent on this machine takes trials, too."""

    has_local: bool = True
    ray: RayOptions | None = None
    text: str = "local"  # as it was said

    def __str__(self) -> str:
        """Without what a runtime environment may hold."""
        names = ["local"] * self.has_local + ["ray"] * (self.ray is not None)
        return ",".join(names)


def parse_executor(value: Any) -> ExecutorOptions:
    """A name, several with commas, or a table, also as JSON. ValueError says what is wrong and what is taken."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError as exc:
            raise ValueError(f"the executor is no JSON: {exc}") from exc
    if isinstance(value, Mapping):
        return _from_table(value)
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else []
    if not names or not set(names) <= set(NAMES):
        raise ValueError(f"an executor is {' or '.join(NAMES)}, both with a comma, or a table, got {value!r:.80}")
    ray = RayOptions() if "ray" in names else None
    return ExecutorOptions(has_local="local" in names, ray=ray, text=",".join(names))


def _from_table(table: Mapping[str, Any]) -> ExecutorOptions:
    names = parse_executor(str(table.get("name", "")))
    if names.ray is None:
        _take(table, {"name": str}, where="executor local")
        return names
    readers: dict[str, Callable[[Any], Any]] = {
        "name": str,
        "address": _address,
        "agents": _nodes,
        "runtime_env": _mapping,
        "python": _text,
        "service_lost": _seconds,
    }
    read = _take(table, readers, where="executor ray")
    del read["name"]
    for given, own in (("agents", "nodes"), ("service_lost", "service_lost_s")):
        if given in read:
            read[own] = read.pop(given)
    return ExecutorOptions(has_local=names.has_local, ray=RayOptions(**read), text=json.dumps(dict(table)))


def _nodes(value: Any) -> RayNodes:
    readers: dict[str, Callable[[Any], Any]] = {
        **_SHAPE,
        "min": lambda given: _count(given, least=0, most=NODES_LIMIT),
        "max": lambda given: _count(given, least=1, most=NODES_LIMIT),
        "idle": _seconds,
    }
    read = _take(_mapping(value), readers, where="agents of executor ray")
    shape = NodeShape(**{_SHAPED[name]: read.pop(name) for name in _SHAPE if name in read})
    names = {"min": "least", "max": "most", "idle": "idle_s"}
    nodes = RayNodes(shape=shape, **{names[name]: found for name, found in read.items()})
    if nodes.least > nodes.most:
        raise ValueError(f"agents of executor ray: min {nodes.least} is more than max {nodes.most}")
    return nodes


def parse_request(value: Any) -> ExecutorRequest:
    """What an experiment says of executors: names, or a table. ValueError says what is wrong and what is taken."""
    if value is None:
        return ExecutorRequest()
    table = value if isinstance(value, Mapping) else {"name": value}
    said = table.get("name")
    names = tuple(dict.fromkeys(name.strip() for name in said.split(","))) if isinstance(said, str) else ()
    if not names or not set(names) <= set(EXECUTORS):
        raise ValueError(f"an executor is one of {', '.join(EXECUTORS)}, or several with commas, got {said!r:.80}")
    for name in sorted({"address", "python", "service_lost"} & set(table)):
        raise ValueError(f"{name} belongs to the setting of the service, not to an experiment")
    readers: dict[str, Callable[[Any], Any]] = {"name": str, "agents": _shape, "runtime_env": _own_environment}
    read = _take(table, readers, where="executor")
    del read["name"]
    if read and names != (RAY,):
        raise ValueError(f"{next(iter(read))} describes nodes of Ray: name ray alone beside it")
    return ExecutorRequest(names=names, **read)


def _shape(value: Any) -> NodeShape:
    table = _mapping(value)
    for name in sorted({"min", "max", "idle"} & set(table)):
        raise ValueError(f"{name} belongs to the setting of the service, not to an experiment")
    read = _take(table, _SHAPE, where="agents of an experiment")
    return NodeShape(**{_SHAPED[name]: found for name, found in read.items()})


def _own_environment(value: Any) -> dict[str, Any]:
    found = dict(_mapping(value))
    for name in sorted({"working_dir", "py_modules"} & set(found)):
        raise ValueError(f"{name} is the service's to say; what trials import is trial.code")
    try:
        json.dumps(found)
    except (TypeError, ValueError) as exc:
        raise ValueError(f"a runtime environment is plain values: {exc}") from None
    return found


def _take(table: Mapping[str, Any], readers: Mapping[str, Callable[[Any], Any]], *, where: str) -> dict[str, Any]:
    unknown = sorted(set(map(str, table)) - set(readers))
    if unknown:
        raise ValueError(f"{where}: no field {unknown[0]!r}; known: {', '.join(sorted(readers))}")
    found = {}
    for name, value in table.items():
        try:
            found[name] = readers[name](value)
        except ValueError as exc:
            raise ValueError(f"{where}: {name}: {exc}") from None
    return found


def _address(value: Any) -> str:
    text = _text(value)
    if text in {AUTO, OWN_CLUSTER} or _PLAIN_ADDRESS.fullmatch(text):
        return text
    raise ValueError(f"expected auto, local, HOST:PORT or ray://HOST:PORT, got {text!r:.80}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected text, got {value!r:.80}")
    return value.strip()


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"expected a table, got {value!r:.80}")


def _count(value: Any, *, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"expected a whole number from {least} to {most}, got {value!r:.80}")
    return value


def _seconds(value: Any) -> float:
    """A number of seconds, or 30s, 5m, 1h."""
    found = re.fullmatch(r"(\d{1,7}(?:\.\d+)?)([smh]?)", str(value)) if not isinstance(value, bool) else None
    if found is None:
        raise ValueError(f'expected a time such as "30s", "5m" or "1h", got {value!r:.80}')
    return float(found[1]) * _SECONDS[found[2] or "s"]


def _size(value: Any) -> int:
    """Bytes, or such as 32GB, 16GiB."""
    found = re.fullmatch(r"(\d{1,15})\s*([MG]I?B)?", str(value).upper()) if not isinstance(value, bool) else None
    if found is None:
        raise ValueError(f'expected a size such as "32GB" or "16GiB", got {value!r:.80}')
    return int(found[1]) * _BYTES[found[2] or ""]


_SHAPE: Mapping[str, Callable[[Any], Any]] = {
    "cpus": lambda given: _count(given, least=1, most=CPUS_LIMIT),
    "gpus": lambda given: _count(given, least=0, most=CPUS_LIMIT),
    "memory": _size,
}
_SHAPED = {"cpus": "cpus", "gpus": "gpus", "memory": "memory_bytes"}
