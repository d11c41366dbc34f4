"""What is wrong with parameters that a person chose, told by parameter."""

from __future__ import annotations

import difflib
import json
from typing import Any

from tuner_service.domain.errors import Fault
from tuner_service.domain.ranges import Choice, Parameter
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters

MAX_SHOWN = 60  # characters of a range or a value that a fault repeats


def parameters_faults(space: SearchSpace, parameters: Parameters) -> list[Fault]:
    """Every fault, with pointers relative to ``parameters``; none exactly where ``space`` contains them."""
    return _faults(space.parameters, parameters, space.raw, "")


def _faults(parameters: tuple[Parameter, ...], given: dict[str, Any], raw: Any, pointer: str) -> list[Fault]:
    known = {parameter.name for parameter in parameters}
    faults = [
        Fault(pointer=pointer + _part(name), message=f"is no parameter of the search space{_near(name, known)}")
        for name in given
        if name not in known
    ]
    for parameter in parameters:
        place = pointer + _part(parameter.name)
        described = raw.get(parameter.name) if isinstance(raw, dict) else None
        if parameter.name not in given:
            faults.append(Fault(pointer=place, message="is missing"))
        else:
            faults += _value_faults(parameter, given[parameter.name], described, place)
    return faults


def _value_faults(parameter: Parameter, value: Any, described: Any, pointer: str) -> list[Fault]:
    outside = Fault(pointer=pointer, message=f"{_shown(value)} lies outside {_shown(described)}")
    range_ = parameter.range
    if not isinstance(range_, Choice):
        return [] if range_.contains(value) else [outside]
    index = range_.index_of(value)
    if index is None:
        return [outside]
    branch = range_.options[index].branch
    if branch is None:
        return []
    inner = {name: item for name, item in value.items() if name != "_name"}
    return _faults(branch, inner, None, pointer)


def _part(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _near(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it has: {', '.join(sorted(known))}"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False) if value is not None else "its range"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
