"""A search space that grows by what scripts ask for: a parameter is there in the branches in which it was asked for.

Plain values in, plain values out; both packages use it. A *branch* is said by the values of parameters with few options
that the script had asked for before: ``momentum`` asked for under ``optimizer: sgd`` has ``when: {optimizer: sgd}``
until it is asked for elsewhere. What has been asked for under every option has no condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trials.wire.values import is_one_of, value_key

MOST_OPTIONS = 16  # of a parameter that says a branch: what has more is no switch
WHEN = "when"

Space = dict[str, Any]


class GrowthRefusedError(ValueError):
    """The space cannot grow so; the text says why, and what to do."""


def grown(space: Mapping[str, Any], name: str, form: Mapping[str, Any], beside: Mapping[str, Any]) -> Space:
    """``space`` with the parameter ``name`` of range ``form`` where the parameters ``beside`` have their values.

    Itself, as it is written, where it has that already. ``form`` has no condition of its own. GrowthRefusedError where
    ``name`` has another range, or a condition that is no mapping.
    """
    known = space.get(name)
    branch = {
        other: value
        for other, value in beside.items()
        if other != name and is_one_of(value, options_of(space.get(other)))
    }
    if known is None:
        condition = {other: [value] for other, value in branch.items()}
        return {**space, name: _entry(form, _open(space, condition))}
    if not isinstance(known, Mapping) or not _mean_the_same(known, form):
        raise GrowthRefusedError(
            f"{name} is asked for with another range than in the search space; give it its own name"
        )
    if WHEN not in known:
        return dict(space)
    if not isinstance(known[WHEN], Mapping):
        raise GrowthRefusedError(
            f"the condition of {name} is an expression, which does not grow; write it as a mapping"
        )
    condition = {}
    for other, values in known[WHEN].items():
        listed = values if isinstance(values, list) else [values]
        if other in branch:  # else it was asked for where that one is not there
            condition[other] = listed if is_one_of(branch[other], listed) else [*listed, branch[other]]
    written = {key: value for key, value in known.items() if key != WHEN}
    return {**space, name: _entry(written, _open(space, condition))}


def _mean_the_same(known: Mapping[str, Any], form: Mapping[str, Any]) -> bool:
    """Whether both are one range: bounds of 0 and 0.0 are, options of 0 and False are not."""
    return value_key({**known, WHEN: None}) == value_key({**form, WHEN: None})


def options_of(form: Any) -> list[Any]:
    """Of a parameter that can say a branch; of any other none."""
    if not isinstance(form, Mapping):
        return []
    match form.get("type"):
        case "bool":
            return [True, False]
        case "categorical" | "ordinal":
            choices = form.get("choices")
            options = list(choices) if isinstance(choices, list | tuple) else []
        case "int" if type(form.get("low")) is int and type(form.get("high")) is int:
            step = form.get("step", 1)
            options = list(range(form["low"], form["high"] + 1, step)[: MOST_OPTIONS + 1]) if _is_step(step) else []
        case _:
            options = []
    are_plain = all(isinstance(option, str | int | float | bool) for option in options)
    return options if are_plain and 1 < len(options) <= MOST_OPTIONS else []


def _is_step(step: Any) -> bool:
    return type(step) is int and step > 0


def _open(space: Mapping[str, Any], condition: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Without those that are always there and of which every option is listed; one value stands by itself."""
    kept = {
        other: values
        for other, values in condition.items()
        if WHEN in space[other] or not all(is_one_of(option, values) for option in options_of(space[other]))
    }
    return {other: values[0] if len(values) == 1 else values for other, values in kept.items()}


def _entry(form: Mapping[str, Any], condition: Mapping[str, Any]) -> dict[str, Any]:
    return {**form, **({WHEN: dict(condition)} if condition else {})}
