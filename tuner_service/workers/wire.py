"""Parts of what stands in a frame: checked fields, and an advisor's decision."""

from __future__ import annotations

from typing import Any, TypeVar

from tuner_service.domain.trial import Decision, DecisionKind
from tuner_service.workers.protocol import FrameError, pack

Value = TypeVar("Value")
Wire = dict[str, Any]


def field_of(wire: Any, key: str, kind: type[Value]) -> Value:
    value = wire.get(key) if isinstance(wire, dict) else None
    if not isinstance(value, kind):
        raise FrameError(f"{key} must be of type {kind.__name__}")
    return value


def all_of(values: list[Any], kind: type[Value]) -> list[Value]:
    if not all(isinstance(value, kind) for value in values):
        raise FrameError(f"a list of {kind.__name__} holds something else")
    return values


def number_of(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise FrameError("a list of numbers holds something else")
    return float(value)


def member_of(kind: Any, value: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise FrameError(str(error)[:200]) from error


def decision_to_wire(decision: Decision) -> Wire:
    return {
        "kind": decision.kind,
        "number": decision.number,
        "parameters": pack(decision.parameters),
        "until_step": decision.until_step,
        "forked_from": decision.forked_from,
        "dropped": list(decision.dropped),
    }


def decision_from_wire(wire: Wire) -> Decision:
    def whole(key: str) -> int | None:
        return None if wire.get(key) is None else field_of(wire, key, int)

    return Decision(
        kind=member_of(DecisionKind, field_of(wire, "kind", str)),
        number=field_of(wire, "number", int),
        parameters=None if wire.get("parameters") is None else field_of(wire, "parameters", dict),
        until_step=whole("until_step"),
        forked_from=whole("forked_from"),
        dropped=tuple(all_of(field_of(wire, "dropped", list), int)),
    )
