"""What is wrong with parameters that a person chose, told by parameter."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import Any

from tuner_service.domain.errors import Fault
from tuner_service.domain.ranges import Choice, Parameter
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.domain.values import value_faults

MAX_SHOWN = 60  # characters of a range or a value that a fault repeats
UNKNOWN_NAMED = 20  # parameters that are none, for each of which the most similar one is looked for


def plain_faults(parameters: Parameters) -> list[Fault]:
    """Every fault that no tuner, trial or row could live with, whatever the space; pointers as below."""
    return [Fault(pointer=pointer, message=message) for pointer, message in value_faults(parameters)]


def parameters_faults(space: SearchSpace, parameters: Parameters) -> list[Fault]:
    """Every fault, with pointers relative to ``parameters``; none exactly where ``space`` contains them."""
    faults = _faults(space.parameters, parameters, _Place(raw=space.raw, pointer="", around={}))
    if not faults:
        broken = [c.source for c in space.constraints if not c.holds(parameters, absent=True)]
        faults = [Fault(pointer="", message=f"breaks the constraint {source}") for source in broken]
    return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where in the space: as it was written there, its pointer, and the values of the spaces around it."""

    raw: Any
    pointer: str
    around: dict[str, Any]


def _faults(parameters: tuple[Parameter, ...], given: dict[str, Any], place: _Place) -> list[Fault]:
    names = {parameter.name for parameter in parameters}
    unknown = [name for name in given if name not in names]
    faults = [
        Fault(pointer=place.pointer + _part(name), message=f"is no parameter of the search space{_near(name, names)}")
        for name in unknown[:UNKNOWN_NAMED]
    ]
    if len(unknown) > UNKNOWN_NAMED:
        message = f"has {len(unknown)} names that are no parameters of the search space"
        faults.append(Fault(pointer=place.pointer, message=message))
    known = dict(place.around)
    for parameter in parameters:
        pointer, is_given = place.pointer + _part(parameter.name), parameter.name in given
        if parameter.when is not None and not parameter.when.holds(known):
            if is_given:
                faults.append(Fault(pointer=pointer, message="is not there with the other values: see its condition"))
            continue
        if not is_given:
            faults.append(Fault(pointer=pointer, message="is missing"))
            continue
        described = place.raw.get(parameter.name) if isinstance(place.raw, dict) else None
        inside = _Place(raw=described, pointer=pointer, around=known)
        faults += _value_faults(parameter, given[parameter.name], inside)
        known[parameter.name] = given[parameter.name]
    return faults


def _value_faults(parameter: Parameter, value: Any, place: _Place) -> list[Fault]:
    outside = Fault(pointer=place.pointer, message=f"{_shown(value)} lies outside {_shown(place.raw)}")
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
    return _faults(branch, inner, _Place(raw=None, pointer=place.pointer, around=place.around))


def _part(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _near(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; it has: {', '.join(sorted(known))}"


def _shown(value: Any) -> str:
    if value is None:
        return "its range"
    text = ""
    for part in json.JSONEncoder(default=str, ensure_ascii=False).iterencode(value):
        text += part
        if len(text) > MAX_SHOWN:
            return text[: MAX_SHOWN - 1] + "…"
    return text
