"""Which trial held which device or core when."""

from __future__ import annotations

import json
from typing import Any

from tuner_service.analyst import timeline
from tuner_service.analyst.timeline import timeline_json
from tuner_service.ports import AttemptSpan

BEGAN = 1_000.0


def a_span(number: int, begun: float, ended: float | None, *holdings: dict[str, Any], attempt: int = 1) -> AttemptSpan:
    return AttemptSpan(
        number=number,
        attempt=attempt,
        status="running" if ended is None else "exited",
        agent_id="node",
        holdings=json.dumps(holdings),
        started_at=BEGAN + begun,
        ended_at=None if ended is None else BEGAN + ended,
    )


def shown(*spans: AttemptSpan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(timeline_json(spans, began=BEGAN, now=BEGAN + 100))
    return found


def test_what_holds_no_device_holds_the_lowest_core_that_is_free() -> None:
    found = shown(a_span(1, 0, 10), a_span(2, 1, None), a_span(3, 10.5, 20), a_span(4, 11, 12))
    columns = found["columns"]
    assert columns["number"] == [1, 2, 3, 4]
    assert [found["lanes"][lane]["name"] for lane in columns["lane"]] == ["1", "2", "1", "3"]
    assert columns["start_s"] == [0, 1, 10.5, 11]
    assert columns["end_s"] == [10, None, 20, 12]
    assert columns["status"] == {"words": ["exited", "running"], "codes": [0, 1, 0, 0]}
    assert found["now_s"] == 100


def test_each_device_that_is_held_is_a_row_of_its_lane() -> None:
    both = {"agent_id": "a", "shares": {"gpu-1": 1.0, "gpu-0": 0.5}}
    other = {"agent_id": "b", "shares": {"gpu-9": 1}}
    found = shown(a_span(1, 0, 5, both, other))
    names = [(lane["agent"], lane["kind"], lane["name"]) for lane in found["lanes"]]
    assert names == [("a", "device", "gpu-0"), ("a", "device", "gpu-1"), ("b", "device", "gpu-9")]
    assert found["columns"]["lane"] == [1, 0, 2]
    assert found["columns"]["share"] == [1, 0.5, 1]


def test_cores_are_in_the_order_of_their_numbers() -> None:
    found = shown(*[a_span(number, 0, 50) for number in range(1, 13)])
    assert [lane["name"] for lane in found["lanes"]] == [str(number) for number in range(1, 13)]


def test_nothing_is_an_empty_timeline_and_too_much_says_so(monkeypatch: Any) -> None:
    assert shown()["columns"]["number"] == []
    monkeypatch.setattr(timeline, "SPANS_LIMIT", 2)
    found = shown(a_span(3, 3, 4), a_span(2, 2, 3), a_span(1, 1, 2))
    assert (found["columns"]["number"], found["left_out"]) == ([2, 3], True)
