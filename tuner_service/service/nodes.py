"""The nodes of the service, as people see them: what each has, how it stands, and what to do where it is in trouble."""

from __future__ import annotations

import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence

from trials.wire.nodes import NodeFacts
from tuner_service.domain.trial import EVALUATOR, Attempt
from tuner_service.service.cluster import Channel
from tuner_service.service.reports import CLOCK_OFF_S
from tuner_service.service.views import View, moment

TROUBLE, READY, DRAINING, DRAINED, AWAY = "in_trouble", "ready", "draining", "drained", "away"
AWAY_SAYS = (
    "it is not connected; its trials run on there, as far as that can be known. Where it is gone for good, "
    "`tuner agent rm {name} --force` lets them go on elsewhere"
)


NAMED_NODES = 3  # of which it is said why nothing is started there


def node_views(channels: Sequence[Channel], trials: Mapping[str, Sequence[str]]) -> list[View]:
    """By name. ``trials``: by agent, those that run there."""
    here = {channel.hello.agent_id: channel for channel in channels}
    names = sorted({*here, *trials} - {EVALUATOR})
    return [
        _view(here[name], trials.get(name, ())) if name in here else _away_view(name, trials[name]) for name in names
    ]


def _away_view(name: str, trials: Sequence[str]) -> View:
    """Of an agent that only rows know: those of what it runs."""
    nothing = dict.fromkeys(("host", "user", "python"), "") | dict.fromkeys(
        ("pid", "cpus", "memory_bytes", "devices"), 0
    )
    more = {"labels": {}, "joined": False, "notes": [], "clock_ahead_s": 0.0, "free_bytes": None, "connected_at": None}
    return {
        "id": name,
        **nothing,
        **more,
        "state": AWAY,
        "message": AWAY_SAYS.format(name=name),
        "trials": list(trials),
    }


def _state(node: NodeFacts, trials: Sequence[str]) -> str:
    if node.drained:
        return DRAINING if trials else DRAINED
    return TROUBLE if node.trouble else READY


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
        "state": _state(node, trials),
        "message": node.trouble,
        "notes": notes_of(node, channel.clock_ahead_s),
        "user": node.user,
        "python": node.python,
        "clock_ahead_s": round(channel.clock_ahead_s, 3),
        "free_bytes": None if node.free_bytes < 0 else node.free_bytes,
        "connected_at": moment(channel.connected_at),
        "trials": list(trials),
    }


def why_no_node(channels: Sequence[Channel]) -> str | None:
    """Why nothing can be started on any node now; None where it can on one."""
    found = {channel.hello.agent_id: channel.node for channel in channels}
    if any(_state(node, ()) == READY for node in found.values()):
        return None
    if not found:
        return "no agent is connected"
    named = [
        f"{name} is drained" if node.drained else f"{name}: {node.trouble}" for name, node in sorted(found.items())
    ]
    more = [f"and {len(named) - NAMED_NODES} more"] if len(named) > NAMED_NODES else []
    return "; ".join([*named[:NAMED_NODES], *more])


def running_on(attempts: Sequence[Attempt]) -> dict[str, list[str]]:
    """By agent, the trials whose attempts, or a part of them, live there."""
    found: dict[str, list[str]] = defaultdict(list)
    for attempt in attempts:
        for agent_id in attempt.agent_ids:
            found[agent_id].append(f"{attempt.key.experiment_id}/{attempt.key.number}")
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
