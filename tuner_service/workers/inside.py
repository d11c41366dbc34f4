"""Whether what an algorithm suggests lies in the search space; and if not, what of it does not."""

from __future__ import annotations

from typing import Any

from tuner_service.domain.errors import AlgorithmError
from tuner_service.domain.ranges import TOLERANCE, FloatRange, QuantizedRange, Range
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.service.parameters import parameters_faults

FAULTS_SHOWN = 5


class OutsideSpaceError(AlgorithmError):
    """Parameters that no range of the search space allows; names each with its value."""


def require_inside(space: SearchSpace, parameters: Parameters, *, by: str) -> None:
    """OutsideSpaceError where ``space`` does not contain them. A bound missed by a rounding error is not missed."""
    if space.contains(parameters) or space.contains(_rounded(space, parameters)):
        return
    faults = parameters_faults(space, parameters)
    named = "; ".join(f"{fault.pointer.removeprefix('/') or 'all'} {fault.message}" for fault in faults[:FAULTS_SHOWN])
    more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
    raise OutsideSpaceError(
        f"suggested outside the search space: {named}{more}. Mend {by}, or set its class attribute "
        "may_leave_space = True where that is meant; then resume with the new code"
    )


def _rounded(space: SearchSpace, parameters: Parameters) -> Parameters:
    """With numbers that lie beside a bound set onto it."""
    ranges = {parameter.name: parameter.range for parameter in space.parameters}
    return {name: _onto_bound(ranges.get(name), value) for name, value in parameters.items()}


def _onto_bound(range_: Range | None, value: Any) -> Any:
    if not isinstance(range_, FloatRange | QuantizedRange) or not isinstance(value, float):
        return value
    near = TOLERANCE * max(abs(range_.low), abs(range_.high))
    if range_.low - near <= value < range_.low:
        return range_.low
    return range_.high if range_.high < value <= range_.high + near else value
