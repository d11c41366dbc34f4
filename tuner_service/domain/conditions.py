"""``when``: a parameter that is there only with some values of others.

momentum: {type: float, low: 0, high: 1, when: {optimizer: sgd}}
warmup:   {type: int, low: 1, high: 100, when: {optimizer: [sgd, adam], schedule: cosine}}
decay:    {type: float, low: 0, high: 1, when: "depth > 3 and optimizer != 'adam'"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trials.wire.values import value_key
from tuner_service.domain.expressions import Expression, parse_expression


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf:
    """Parameter ``name`` is there and has one of the values whose keys are ``keys``."""

    name: str
    keys: tuple[str, ...]

    def holds(self, values: Mapping[str, Any]) -> bool:
        if self.name not in values:
            return False
        value = values[self.name]
        if isinstance(value, Mapping) and "_name" in value:
            value = value["_name"]
        return value_key(value) in self.keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """All of ``parts`` hold. One that names a parameter which is not there does not."""

    parts: tuple[OneOf | Expression, ...]

    @property
    def names(self) -> frozenset[str]:
        found: set[str] = set()
        for part in self.parts:
            found |= {part.name} if isinstance(part, OneOf) else part.names
        return frozenset(found)

    @property
    def parts_looked_at(self) -> int:
        return sum(1 if isinstance(part, OneOf) else part.size for part in self.parts)

    @property
    def size(self) -> int:
        """How many values it names; an expression, whose length has a bound, counts as one."""
        return sum(len(part.keys) if isinstance(part, OneOf) else 1 for part in self.parts)

    def holds(self, values: Mapping[str, Any]) -> bool:
        return all(
            part.holds(values) if isinstance(part, OneOf) else part.holds(values, absent=False) for part in self.parts
        )


def parse_condition(written: Any) -> Condition:
    """ValueError says what is wrong with what was written."""
    if isinstance(written, str):
        return Condition(parts=(parse_expression(written),))
    if not isinstance(written, dict) or not written or not all(isinstance(name, str) for name in written):
        raise ValueError("must be an expression, or an object that maps names of parameters to the values they need")
    return Condition(parts=tuple(_one_of(name, value) for name, value in written.items()))


def _one_of(name: str, value: Any) -> OneOf:
    values = value if isinstance(value, list) else [value]
    if not values or any(isinstance(item, dict) for item in values):
        raise ValueError(f"{name} needs a value, or a list of them; of a nested space its _name")
    return OneOf(name=name, keys=tuple(value_key(item) for item in values))
