"""What each node of a local session gets of this machine: cores and devices of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VISIBLE = "CUDA_VISIBLE_DEVICES"
NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")  # a folder each, wherever NVIDIA's driver is loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """``cpus``: the only cores of the node; empty where it asked for none, and may use all."""

    cpus: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def shares_of(wanted: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]) -> dict[str, Share]:
    """By node. ValueError that names the node and what this machine lacks for it, all nodes taken together."""
    cores, devices = sorted(os.sched_getaffinity(0)), visible_devices()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    shares = {}
    for node, properties in wanted.items():
        for key, value in properties.get("labels", {}).items():
            if labels.get(key) != value:
                has = f"has {key}={labels[key]!r}" if key in labels else "has no such label"
                raise ValueError(f"node {node!r} wants the label {key}={value!r}, and the session {has}")
        memory -= properties.get("memory", 0)
        if memory < 0:
            raise ValueError(f"node {node!r} wants {properties['memory']} bytes of memory, more than is left here")
        own_cores = _taken(cores, properties.get("cpus", 0), node, "cores")
        environment = {}
        if "gpus" in properties:
            environment[VISIBLE] = ",".join(_taken(devices, properties["gpus"], node, "GPUs"))
        shares[node] = Share(cpus=tuple(own_cores), environment=environment)
    return shares


def visible_devices() -> list[str]:
    """As CUDA names them: what the environment says is visible, else all that the driver knows."""
    said = os.environ.get(VISIBLE)
    if said is not None:
        return [name.strip() for name in said.split(",") if name.strip() and name.strip() != "-1"]
    try:
        return [str(index) for index, _ in enumerate(NVIDIA_DEVICES.iterdir())]
    except FileNotFoundError:
        return []


def _taken(free: list[Any], count: int, node: str, what: str) -> list[Any]:
    """The first ``count`` of what is free, which is free no more."""
    if count > len(free):
        raise ValueError(f"node {node!r} wants {count} {what} of its own, and this machine has {len(free)} left")
    taken, free[:] = free[:count], free[count:]
    return taken
