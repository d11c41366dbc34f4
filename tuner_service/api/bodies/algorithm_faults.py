"""What is wrong with the algorithms that an experiment file names: their options, and how these fit its search space.

No algorithm is imported for that. What one finds wrong when it is built fails an experiment that is on disk already; so
whatever can be told from the file is told here, before anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tuner_service.advisors.registry import ADVISORS, check_advisor_args
from tuner_service.assessors.registry import check_assessor_args
from tuner_service.domain.algorithm_options import with_defaults
from tuner_service.domain.errors import Fault
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.values import value_faults
from tuner_service.service.parameters import parameters_faults
from tuner_service.tuners.registry import SOBOL_DIMENSIONS, TUNERS, check_tuner_args

AUTO = "auto"
MOST_NAMED = 20  # faults of a list, and parameters of a space, that are named
COUNTED_EASILY = 100_000  # values of all parameters of a grid
CheckArgs = Callable[[str, Any], Sequence[Fault]]
CHECKS: dict[str, CheckArgs] = {
    "tuner": check_tuner_args,
    "assessor": check_assessor_args,
    "advisor": check_advisor_args,
}


def algorithm_faults(raw: dict[str, Any], kind: str, space: SearchSpace | None) -> list[Fault]:
    """Of the tuner, assessor or advisor that ``raw`` names. ``space`` None: what it searches has faults of its own."""
    given = raw.get(kind)
    if isinstance(given, str):
        given = {"name": given}
    if not isinstance(given, dict):
        return []
    name, args = given.get("name"), given.get("args", {})
    if (name is None) == (given.get("class") is None):
        return [Fault(pointer=f"/{kind}", message='needs either a name or a class ("package.module:Class")')]
    if not isinstance(name, str):
        return [Fault(pointer=f"/{kind}/args{place}", message=message) for place, message in value_faults(args)]
    if kind == "assessor" and name == AUTO:
        return [Fault(pointer="/assessor/args", message="auto takes no arguments")] if args not in ({}, None) else []
    found = CHECKS[kind](name, args) or ([] if space is None else _misfits(kind, name, args, space))
    return [Fault(pointer=f"/{kind}{fault.pointer}", message=fault.message) for fault in found]


def _misfits(kind: str, name: str, args: dict[str, Any], space: SearchSpace) -> Sequence[Fault]:
    """Of options without a fault of their own."""
    match kind, name:
        case "tuner", "batch":
            return _outside(args["parameters"], space)
        case "tuner", _:
            why = unsearchable(name, args, space)
            return [Fault(pointer="/name", message=why)] if why else []
        case "advisor", _ if any(option.name == "explored" for option in ADVISORS[name].options):
            return _unknown(with_defaults(ADVISORS[name], args)["explored"], space)
        case _:
            return []


def unsearchable(name: str | None, args: dict[str, Any], space: SearchSpace) -> str:
    """Why the tuner of that name cannot search ``space``; empty where it can, as far as can be told quickly."""
    why = ""
    if name == "grid":
        points = with_defaults(TUNERS[name], args)["points"]
        why = space.grid_fault(points) if points * len(space.paths) <= COUNTED_EASILY else ""
    elif name == "quasi_random" and space.dimension > SOBOL_DIMENSIONS:
        why = f"it has {space.dimension} coordinates, more than {SOBOL_DIMENSIONS}"
    return f"{name} cannot search this space: {why}" if why else ""


def _outside(listed: Sequence[dict[str, Any]], space: SearchSpace) -> Sequence[Fault]:
    faults: list[Fault] = []
    for index, parameters in enumerate(listed):
        if not space.contains(parameters):
            found = parameters_faults(space, parameters)
            faults += [Fault(pointer=f"/args/parameters/{index}{f.pointer}", message=f.message) for f in found]
        if len(faults) >= MOST_NAMED:
            break
    return faults


def _unknown(explored: str, space: SearchSpace) -> Sequence[Fault]:
    """Names that nobody could change: a fork would have the parameters of its source."""
    wanted = [name for each in explored.split(",") if (name := each.strip())]
    paths = frozenset(space.paths)
    unknown = [name for name in wanted if name not in paths]
    if not unknown:
        return []
    known = ", ".join(space.paths[:MOST_NAMED]) + (", …" if len(space.paths) > MOST_NAMED else "")
    names = ", ".join(map(repr, unknown[:MOST_NAMED]))
    message = f"names {names}, which the search space does not have; it has: {known or 'no parameters'}"
    return [Fault(pointer="/args/explored", message=message)]
