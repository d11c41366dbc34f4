"""The options that a registered algorithm takes, as data: checked by the service without importing the algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.values import value_faults


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmOption:
    """``default`` also says the type: bool, int, float, text or list. Bounds are included: of a list on its length.

    A text is one of ``choices``, any text where there are none; the items of a list are objects. A list without a
    default (``()``) must be given.
    """

    name: str
    default: bool | float | str | tuple[()]
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    beside: int | None = None  # a number below ``low`` that is taken, too: it has a meaning of its own

    @property
    def is_required(self) -> bool:
        return self.default == () and self.low > 0

    def problem(self, value: Any) -> str | None:
        """What is wrong with ``value``, or None."""
        for _, message in value_faults(value):
            return message
        if isinstance(self.default, str) and not self.choices:
            return None if isinstance(value, str) else "must be text"
        if isinstance(self.default, str):
            return None if value in self.choices else f"must be one of {', '.join(self.choices)}"
        if isinstance(self.default, tuple):
            fits = isinstance(value, list) and self.low <= len(value) <= self.high
            fits = fits and all(isinstance(item, dict) for item in value)
            return None if fits else f"must be a list of {self.low:g} to {self.high:g} objects"
        if isinstance(self.default, bool):
            return None if isinstance(value, bool) else "must be true or false"
        whole = isinstance(self.default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            return "must be an integer" if whole else "must be a number"
        if value != self.beside and not self.low <= value <= self.high:
            other = "" if self.beside is None else f"be {self.beside}, or "
            return f"must {other}lie between {self.low:g} and {self.high:g}, not {value}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredAlgorithm:
    """``home`` is "module:Class"; the module is imported only where the algorithm runs."""

    name: str
    home: str
    meaning: str
    options: tuple[AlgorithmOption, ...] = ()
    several_objectives: bool = False  # whether it searches for more than the first objective
    ascending: tuple[tuple[str, str], ...] = ()  # pairs of options of which the first does not lie above the second
    below: tuple[tuple[str, str], ...] = ()  # pairs of options of which the first lies below the second


def check_options(registered: Mapping[str, RegisteredAlgorithm], name: str, args: Any, *, kind: str) -> Sequence[Fault]:
    """Every fault of ``{name: …, args: …}``; with none the algorithm can be built. ``kind`` is for messages."""
    algorithm = registered.get(name)
    if algorithm is None:
        known = ", ".join(registered)
        return [Fault(pointer="/name", message=f"there is no {kind} {name!r}; there are: {known}, or a class of yours")]
    if not isinstance(args, dict):
        return [Fault(pointer="/args", message="must be an object")]
    options = {option.name: option for option in algorithm.options}
    faults = []
    for key, value in args.items():
        if key not in options:
            message = f"{name} has no option {key!r}; it has: {', '.join(options) or 'none'}"
        else:
            message = options[key].problem(value) or ""
        if message:
            faults.append(Fault(pointer=f"/args/{str(key).replace('~', '~0').replace('/', '~1')}", message=message))
    faults += [
        Fault(pointer="/args", message=f"{name} needs {option.name}: {option.meaning}")
        for option in algorithm.options
        if option.is_required and option.name not in args
    ]
    return faults


def with_defaults(algorithm: RegisteredAlgorithm, args: dict[str, Any]) -> dict[str, Any]:
    """Every option of it as it will be."""
    return {option.name: option.default for option in algorithm.options} | args


def contradictions(registered: Mapping[str, RegisteredAlgorithm], name: str, args: dict[str, Any]) -> Sequence[Fault]:
    """Faults of options that do not go together, each of which would be fine: the algorithm would run, and do nothing.

    Asked of args without another fault, when an experiment is created and not when its algorithm is built: what was
    accepted goes on.
    """
    values, faults = with_defaults(registered[name], args), []
    pairs = [(*pair, False) for pair in registered[name].ascending] + [(*pair, True) for pair in registered[name].below]
    for lower, upper, apart in pairs:
        if values[lower] > values[upper] or (apart and values[lower] == values[upper]):
            must = "must lie below" if apart else "must not lie above"
            shown = [f"{each} ({values[each]:g}{'' if each in args else ', its default'})" for each in (lower, upper)]
            pointer = f"/args/{lower if lower in args else upper}"
            hint = "" if {lower, upper} <= args.keys() else "; give both"
            faults.append(Fault(pointer=pointer, message=f"{shown[0]} {must} {shown[1]}{hint}"))
    return faults


def registered_class(registered: Mapping[str, RegisteredAlgorithm], name: str, args: Any, *, kind: str) -> type[Any]:
    """The class of that name, imported here. InputError with every fault of ``args``."""
    faults = check_options(registered, name, args, kind=kind)
    if faults:
        raise InputError(faults)
    module, _, attribute = registered[name].home.partition(":")
    found: type[Any] = getattr(import_module(module), attribute)
    return found
