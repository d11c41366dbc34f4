"""What each node of a group gets of the machine that it is on: cores and devices of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trials.processes.identity import boot_id

VISIBLE = "CUDA_VISIBLE_DEVICES"
NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")  # a folder each, wherever NVIDIA's driver is loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """``cpus``: the only cores of the node; empty where it asked for none, and may use all."""

    cpus: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What nodes can be given. ``labels`` are what the session says of it; ``name`` is for errors."""

    cores: tuple[int, ...]
    devices: tuple[str, ...]
    memory: int
    labels: Mapping[str, str] = field(default_factory=dict)
    name: str = "this machine"
    boot: str = ""  # two nodes of a trial may be on one machine, and then have its cores and memory together

    @classmethod
    def here(cls, labels: Mapping[str, str], *, name: str = "this machine") -> Machine:
        return cls(
            cores=tuple(sorted(os.sched_getaffinity(0))),
            devices=tuple(visible_devices()),
            memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            labels=dict(labels),
            name=name,
            boot=boot_id(),
        )

    def shares(self, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Share]:
        """By node. ValueError that names the node and what this machine lacks for it, all nodes taken together."""
        cores, devices, memory = list(self.cores), list(self.devices), self.memory
        shares = {}
        for node, properties in wanted.items():
            for key, value in properties.get("labels", {}).items():
                if self.labels.get(key) != value:
                    has = f"has {key}={self.labels[key]!r}" if key in self.labels else "has no such label"
                    raise ValueError(f"node {node!r} wants the label {key}={value!r}, and the session {has}")
            memory -= properties.get("memory", 0)
            if memory < 0:
                raise ValueError(
                    f"node {node!r} wants {properties['memory']} bytes of memory, more than is left here"
                    if self.name == "this machine"
                    else f"node {node!r} wants {properties['memory']} bytes of memory, more than {self.name} has left"
                )
            own_cores = self._taken(cores, properties.get("cpus", 0), node, "cores")
            environment = {}
            if "gpus" in properties:
                environment[VISIBLE] = ",".join(self._taken(devices, properties["gpus"], node, "GPUs"))
            shares[node] = Share(cpus=tuple(own_cores), environment=environment)
        return shares

    def _taken(self, free: list[Any], count: int, node: str, what: str) -> list[Any]:
        """The first ``count`` of what is free, which is free no more."""
        if count > len(free):
            raise ValueError(f"node {node!r} wants {count} {what} of its own, and {self.name} has {len(free)} left")
        taken, free[:] = free[:count], free[count:]
        return taken


def divided(machines: Sequence[Machine]) -> list[Machine]:
    """Nodes that are on one machine have a part of it each; its devices were given to them one by one."""
    found = []
    for place, machine in enumerate(machines):
        beside = [other for other, each in enumerate(machines) if each.boot == machine.boot]
        index, count = beside.index(place), len(beside)
        found.append(replace(machine, cores=machine.cores[index::count], memory=machine.memory // count))
    return found


def shares_of(wanted: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]) -> dict[str, Share]:
    """Of all nodes on this machine."""
    return Machine.here(labels).shares(wanted)


def placed_on(wanted: Mapping[str, Mapping[str, Any]], machines: Sequence[Machine]) -> dict[str, int]:
    """The machine of each node, by its place among ``machines``.

    Those that ask for most choose first; each takes the machine with the fewest nodes that can give it what it asks
    for, so that there is one on each where there are as many. ValueError as of ``Machine.shares``, of the machine that
    was tried last.
    """
    on: list[dict[str, Mapping[str, Any]]] = [{} for _ in machines]
    found: dict[str, int] = {}
    for node in sorted(wanted, key=lambda name: _demand(wanted[name]), reverse=True):
        error: ValueError | None = None
        for place in sorted(range(len(machines)), key=lambda place: (len(on[place]), place)):
            try:
                machines[place].shares({**on[place], node: wanted[node]})
            except ValueError as refused:
                error = refused
                continue
            on[place][node] = wanted[node]
            found[node] = place
            break
        else:
            assert error is not None
            raise error
    return {node: found[node] for node in wanted}


def _demand(properties: Mapping[str, Any]) -> tuple[int, int, int, int]:
    named = [properties.get(what, 0) for what in ("gpus", "cpus", "memory")]
    return (named[0], len(properties.get("labels", {})), named[1], named[2])


def visible_devices() -> list[str]:
    """As CUDA names them: what the environment says is visible, else all that the driver knows."""
    said = os.environ.get(VISIBLE)
    if said is not None:
        return [name.strip() for name in said.split(",") if name.strip() and name.strip() != "-1"]
    try:
        return [str(index) for index, _ in enumerate(NVIDIA_DEVICES.iterdir())]
    except FileNotFoundError:
        return []
