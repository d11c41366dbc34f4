"""Which trial held which device or core when, so that gaps show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from tuner_service.analyst.columns import codes_json, joined, numbers_json
from tuner_service.ports import AttemptSpan
from tuner_service.service.questions import EXACT_DIGITS, SPANS_LIMIT

_MILLISECONDS = 3
_Lane = tuple[str, str, str]  # agent, kind, name


def timeline_json(spans: Sequence[AttemptSpan], *, began: float, now: float) -> str:
    """A JSON object: ``lanes``, and columns of one length with a row for each lane that an attempt held.

    A device is a lane; what holds no device holds a place among the cores of its node, which have no names: the lowest
    that is free. Seconds count from ``began``, when the experiment was created; an attempt that runs has no end. Of
    more than SPANS_LIMIT spans the first are shown, and it says so.
    """
    shown = spans[:SPANS_LIMIT]
    lanes: dict[_Lane, int] = {}
    held: list[tuple[AttemptSpan, int, float]] = []
    places = _Places(now)
    for span in sorted(shown, key=lambda one: (one.started_at or 0.0, one.number, one.attempt)):
        for lane, share in _held(span, places):
            held.append((span, lanes.setdefault(lane, len(lanes)), share))
    order = sorted(range(len(lanes)), key=lambda place: _by_name(list(lanes)[place]))
    place_of = {lane: place for place, lane in enumerate(order)}
    named = list(lanes)
    return joined(
        {
            "lanes": json.dumps([dict(zip(("agent", "kind", "name"), named[lane], strict=True)) for lane in order]),
            "columns": joined(
                {
                    "number": numbers_json([span.number for span, _, _ in held], EXACT_DIGITS),
                    "attempt": numbers_json([span.attempt for span, _, _ in held], EXACT_DIGITS),
                    "status": codes_json([span.status for span, _, _ in held]),
                    "lane": numbers_json([place_of[lane] for _, lane, _ in held], EXACT_DIGITS),
                    "share": numbers_json([share for _, _, share in held], EXACT_DIGITS),
                    "start_s": numbers_json([_since(began, span.started_at) for span, _, _ in held], EXACT_DIGITS),
                    "end_s": numbers_json([_since(began, span.ended_at) for span, _, _ in held], EXACT_DIGITS),
                }
            ),
            "now_s": json.dumps(_since(began, now)),
            "left_out": json.dumps(len(spans) > len(shown)),
        }
    )


class _Places:
    """Of each node, which places among its cores are free at the moment that is looked at."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._free: dict[str, list[int]] = {}
        self._busy: dict[str, list[tuple[float, int]]] = {}
        self._count: dict[str, int] = {}

    def take(self, agent_id: str, span: AttemptSpan) -> int:
        """The lowest; spans must come in the order of their beginnings."""
        begun, busy = span.started_at or 0.0, self._busy.setdefault(agent_id, [])
        free = self._free.setdefault(agent_id, [])
        while busy and busy[0][0] <= begun:
            heappush(free, heappop(busy)[1])
        if free:
            place = heappop(free)
        else:
            place = self._count.get(agent_id, 0)
            self._count[agent_id] = place + 1
        heappush(busy, (span.ended_at if span.ended_at is not None else max(self._now, begun), place))
        return place


def _held(span: AttemptSpan, places: _Places) -> list[tuple[_Lane, float]]:
    holdings: list[Mapping[str, Any]] = json.loads(span.holdings)
    devices = [
        ((str(holding["agent_id"]), "device", str(uuid)), float(share))
        for holding in holdings
        for uuid, share in holding.get("shares", {}).items()
    ]
    if devices:
        return devices
    nodes = [str(holding["agent_id"]) for holding in holdings] or [span.agent_id]
    return [((node, "core", str(places.take(node, span) + 1)), 1.0) for node in nodes]


def _by_name(lane: _Lane) -> tuple[str, str, int, str]:
    agent, kind, name = lane
    return agent, kind, int(name) if kind == "core" else 0, name


def _since(began: float, at: float | None) -> float | None:
    return None if at is None else round(at - began, _MILLISECONDS)
