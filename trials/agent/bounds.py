"""What an agent offers of its machine, where that is a part of it only: as whoever started it says in variables."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trials.wire.messages import NodeResources

CPUS, MEMORY_BYTES = "TUNER_NODE_CPUS", "TUNER_NODE_MEMORY_BYTES"
DEVICES = "TUNER_NODE_DEVICES"  # UUIDs, or places in the driver's order; "none"
LABELS = "TUNER_NODE_LABELS"  # name=value, separated by commas
BANDWIDTH = "TUNER_NODE_BANDWIDTH"  # bytes a second, both ways together
SERVICE_LOST_S = "TUNER_SERVICE_LOST_S"  # without a service for so long, the agent ends and has its trials ended
LENT = "TUNER_NODE_LENT"  # the home goes with the node, so that what is kept goes to the service as it arises
NO_DEVICES = "none"
EXIT_SERVICE_LOST = 3  # of an agent that was without a service for so long


def resources(environ: Mapping[str, str] = os.environ) -> NodeResources:
    """Of the whole machine as far as this process may use it, unless less is said."""
    from trials.wire.messages import NodeResources  # whoever only needs names of variables starts without it

    cpus = len(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return NodeResources(
        cpus=int(environ.get(CPUS) or cpus), memory_bytes=int(environ.get(MEMORY_BYTES) or memory_bytes)
    )


def fault(environ: Mapping[str, str] = os.environ) -> str | None:
    """What is wrong with those variables, which nobody else has looked at; None if nothing."""
    for name, is_whole in ((CPUS, True), (MEMORY_BYTES, True), (BANDWIDTH, False), (SERVICE_LOST_S, False)):
        text = environ.get(name)
        if not text:
            continue
        try:
            number: float = int(text) if is_whole else float(text)
        except ValueError:
            number = -1.0
        if not (1 if is_whole else 0) <= number < math.inf:
            return f"the variable {name} is a {'whole number from 1 on' if is_whole else 'number'}, not {text!r:.100}"
    return None


def may_use(uuid: str, place: int, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a device is among those that the agent offers."""
    wanted = environ.get(DEVICES, "")
    return not wanted or bool({uuid, str(place)} & set(wanted.split(",")))


def labels(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of the node, by name."""
    pairs = (entry.partition("=") for entry in environ.get(LABELS, "").split(",") if entry)
    return {name.strip(): value.strip() for name, _, value in pairs}


def is_lent(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether nothing of the node's disk is there after it, even where that is the service's own machine."""
    return bool(environ.get(LENT))


def bandwidth(environ: Mapping[str, str] = os.environ) -> float:
    """Of files between the agent and a service elsewhere; 0: as fast as it goes."""
    return float(environ.get(BANDWIDTH) or 0)


def service_lost_s(environ: Mapping[str, str] = os.environ) -> float | None:
    """None: trials run on for as long as they like."""
    said = environ.get(SERVICE_LOST_S)
    return float(said) if said else None
