"""The nodes of the service, as people see them: what each has, how it stands, and what to do where it is in trouble."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence

from trials.wire.nodes import NodeFacts
from tuner_service.domain.trial import Attempt
from tuner_service.service.cluster import Channel
from tuner_service.service.reports import CLOCK_OFF_S
from tuner_service.service.views import View, moment

TROUBLE, READY = "in_trouble", "ready"


def node_views(channels: Sequence[Channel], trials: Mapping[str, Sequence[str]]) -> list[View]:
    """By name. ``trials``: by agent, those that run there."""
    found = sorted(channels, key=lambda channel: channel.hello.agent_id)
    return [_view(channel, trials.get(channel.hello.agent_id, ())) for channel in found]


def _view(channel: Channel, trials: Sequence[str]) -> View:
    hello, node = channel.hello, channel.node
    return {
        "id": hello.agent_id,
        "host": hello.host,
        "pid": hello.pid,
        "cpus": hello.resources.cpus,
        "memory_bytes": hello.resources.memory_bytes,
        "devices": len(channel.devices),
        "labels": node.labels,
        "joined": node.is_joined,
        "state": TROUBLE if node.trouble else READY,
        "message": node.trouble,
        "notes": notes_of(node, channel.clock_ahead_s),
        "user": node.user,
        "python": node.python,
        "clock_ahead_s": round(channel.clock_ahead_s, 3),
        "free_bytes": None if node.free_bytes < 0 else node.free_bytes,
        "connected_at": moment(channel.connected_at),
        "trials": list(trials),
    }


def running_on(attempts: Sequence[Attempt]) -> dict[str, list[str]]:
    """By agent, the trials whose attempts live there."""
    found: dict[str, list[str]] = defaultdict(list)
    for attempt in attempts:
        found[attempt.agent_id].append(f"{attempt.key.experiment_id}/{attempt.key.number}")
    return found


def notes_of(node: NodeFacts, clock_ahead_s: float) -> list[str]:
    """What is worth knowing of a node that works."""
    notes = []
    if abs(clock_ahead_s) >= CLOCK_OFF_S:
        way = "ahead of" if clock_ahead_s > 0 else "behind"
        notes.append(
            f"its clock is {abs(clock_ahead_s):.0f} s {way} the service's: times of reports are corrected by that; "
            "let it keep time by NTP"
        )
    mine = ".".join(platform.python_version_tuple()[:2])
    if node.python and ".".join(node.python.split(".")[:2]) != mine:
        notes.append(
            f"it runs Python {node.python}, and the service {mine}: trials of `python` run with the node's, unless "
            "trial.python names another; the service's own programs run by either"
        )
    return notes
