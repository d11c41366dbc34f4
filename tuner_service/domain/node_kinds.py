"""Kinds of nodes that a cluster can be asked for: what one has, whose it is, and how many come together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner_service.domain.resources import MACHINE_LABEL, POOL_LABEL, RAY, Device, Node

UNKNOWN_BYTES = 1 << 50  # of memory that was not asked for
POOL_CHARACTERS = 10
NODES_LIMIT = 1_000  # of a cluster, for one service


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What one node has. ``memory_bytes`` 0: not asked for; then its trials may not ask for memory of their own."""

    cpus: int = 1
    gpus: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRequest:
    """Whose nodes the trials of an experiment may use; none named: anybody's.

    ``agents`` and ``runtime_env`` describe nodes of Ray that are made for such experiments, and used by no other.
    """

    names: tuple[str, ...] = ()
    agents: NodeShape | None = None
    runtime_env: dict[str, Any] = field(default_factory=dict)

    @property
    def pool(self) -> str:
        """The same for all experiments that describe the same nodes; empty where the service describes them."""
        if self.agents is None and not self.runtime_env:
            return ""
        shape = self.agents and [self.agents.cpus, self.agents.gpus, self.agents.memory_bytes]
        said = json.dumps([shape, self.runtime_env], sort_keys=True)
        return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:POOL_CHARACTERS]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NodeKind:
    """``size``: so many nodes at once, each on another machine. ``runtime_env``: None where nobody asks for more."""

    pool: str = ""
    size: int = 1
    shape: NodeShape = field(default_factory=NodeShape, compare=False)
    runtime_env: Mapping[str, Any] | None = field(default=None, compare=False)


def promised_node(shape: NodeShape, *, pool: str = "", name: str = "", machine: str = "") -> Node:
    """What such a node will have, as far as it is known before it is there."""
    devices = tuple(Device(uuid=f"{name}/{place}", memory_bytes=UNKNOWN_BYTES) for place in range(shape.gpus))
    labels = {POOL_LABEL: pool} if pool else {}
    labels |= {MACHINE_LABEL: machine} if machine else {}
    memory_bytes = shape.memory_bytes or UNKNOWN_BYTES
    return Node(agent_id=name, cpus=shape.cpus, memory_bytes=memory_bytes, devices=devices, labels=labels, executor=RAY)
