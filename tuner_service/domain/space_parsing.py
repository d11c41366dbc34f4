"""Reading a search space as people write it; every fault is found, with its pointer, before anything is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trials.wire.texts import text_fault
from trials.wire.values import INTEGER_LIMIT
from tuner_service.domain.conditions import Condition, parse_condition
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.expressions import Expression, parse_expression
from tuner_service.domain.ranges import (
    EXPONENT_LIMIT,
    Choice,
    FloatRange,
    IntRange,
    NormalRange,
    Option,
    Parameter,
    Permutation,
    QuantizedRange,
    Range,
    Subset,
    is_number,
)
from tuner_service.domain.values import value_faults

# ── limits: a larger space is refused, naming the limit ─────────────────────────────────────────
PARAMETER_LIMIT = 1_000  # nested ones included
OPTION_LIMIT = 100_000  # of all choices together
NESTING_LIMIT = 10
ITEM_LIMIT = 100  # options of one permutation or subset
CONSTRAINT_LIMIT = 100
CONDITION_LIMIT = 100_000  # values that all conditions together name
NAME_LIMIT = 256  # characters of one name
BOUND_LIMIT = 1e300  # of what describes a range: a grid multiplies its width, and that must be a float, too
FAULT_LIMIT = 100  # faults named; the rest would not help

CONSTRAINTS = "constraints"  # holds a list; a parameter of this name would hold an object
RESERVED_NAMES = frozenset({"_name", "_type", "_value"})
NNI_VALUES = {
    "choice": "the list of options",
    "randint": "[lower, upper]",
    "uniform": "[low, high]",
    "quniform": "[low, high, q]",
    "loguniform": "[low, high]",
    "qloguniform": "[low, high, q]",
    "normal": "[mu, sigma]",
    "qnormal": "[mu, sigma, q]",
    "lognormal": "[mu, sigma]",
    "qlognormal": "[mu, sigma, q]",
}
LONG_KEYS = {
    "float": ("low", "high", "log", "step"),
    "int": ("low", "high", "log", "step"),
    "categorical": ("choices",),
    "ordinal": ("choices",),
    "bool": (),
    "const": ("value",),
    "permutation": ("choices",),
    "subset": ("choices", "least", "most"),
}


def parse_parameters(data: Any) -> tuple[tuple[Parameter, ...], tuple[Expression, ...]]:
    """The parameters and constraints that ``data`` describes; InputError with every fault.

    A parameter stands behind those that its condition names, and otherwise where it was written.
    """
    parser = _Parser()
    written = data.get(CONSTRAINTS) if isinstance(data, dict) else None
    if isinstance(written, list):
        data = {name: item for name, item in data.items() if name != CONSTRAINTS}
    parameters = parser.space(data, pointer="", path="", scope=frozenset())
    constraints: tuple[Expression, ...] = ()
    if isinstance(written, list):
        constraints = parser.constraints(written, {parameter.name for parameter in parameters})
    if not parser.faults and not parameters:
        parser.fault("", "a search space needs at least one parameter")
    if parser.faults:
        raise InputError(parser.faults)
    return parameters, constraints


def _needs(parameter: Parameter) -> frozenset[str]:
    """Names of the level of ``parameter``, and of those around it, that must be known before it is chosen."""
    needed = parameter.when.names if parameter.when is not None else frozenset()
    if isinstance(parameter.range, Choice):
        for option in parameter.range.options:
            inner = option.branch or ()
            needed |= frozenset().union(*map(_needs, inner)) - {below.name for below in inner}
    return needed


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _listed(names: Any) -> str:
    return ", ".join(names) or "no others"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where something was written: its pointer, its path in the space, how deep, and which names it can name."""

    pointer: str
    path: str
    nesting: int
    scope: frozenset[str]


class _Parser:
    """Collects faults; what it returns is only meaningful where there were none."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._parameters = 0
        self._options = 0
        self._conditions = 0

    def fault(self, pointer: str, message: str) -> None:
        if len(self.faults) < FAULT_LIMIT:
            self.faults.append(Fault(pointer=pointer, message=message))

    # ── the space, its parameters ───────────────────────────────────────────────────────────────
    def space(
        self, data: Any, *, pointer: str, path: str, scope: frozenset[str], nesting: int = 0
    ) -> tuple[Parameter, ...]:
        """``scope``: the names of the spaces around this one, which its conditions may name as well."""
        if not isinstance(data, dict):
            self.fault(pointer, "must be an object that maps parameter names to what they may be")
            return ()
        if nesting > NESTING_LIMIT:
            self.fault(pointer, f"nested more than {NESTING_LIMIT} levels deep")
            return ()
        self._parameters += len(data)
        if self._parameters > PARAMETER_LIMIT:
            self.fault(pointer, f"more than {PARAMETER_LIMIT} parameters")
            return ()
        scope |= frozenset(name for name in data if isinstance(name, str))
        parsed = []
        for name, written in data.items():
            place = _Place(pointer=pointer, path=path, nesting=nesting, scope=scope)
            parameter = self._named(name, written, place)
            if parameter is not None:
                parsed.append(parameter)
        return self._ordered(parsed, pointer)

    def constraints(self, written: list[Any], names: set[str]) -> tuple[Expression, ...]:
        pointer = f"/{CONSTRAINTS}"
        if len(written) > CONSTRAINT_LIMIT:
            self.fault(pointer, f"more than {CONSTRAINT_LIMIT} constraints")
            return ()
        parsed = []
        for index, text in enumerate(written):
            try:
                expression = parse_expression(text)
            except ValueError as exc:
                self.fault(f"{pointer}/{index}", str(exc))
                continue
            for name in sorted(expression.names - names):
                self.fault(f"{pointer}/{index}", f"names {name!r}, which is no parameter of the search space")
            parsed.append(expression)
        return tuple(parsed)

    def _ordered(self, parsed: list[Parameter], pointer: str) -> tuple[Parameter, ...]:
        """Each behind those that its condition names; a circle is a fault."""
        names = {parameter.name for parameter in parsed}
        needs = {parameter.name: _needs(parameter) & names for parameter in parsed}
        waiting, ordered = list(parsed), list[Parameter]()
        known: set[str] = set()
        while waiting:
            ready = next((parameter for parameter in waiting if needs[parameter.name] <= known), None)
            if ready is None:
                circle = ", ".join(parameter.name for parameter in waiting)
                self.fault(f"{pointer}/{_escaped(waiting[0].name)}", f"conditions go in a circle: {circle}")
                return tuple(parsed)
            waiting.remove(ready)
            ordered.append(ready)
            known.add(ready.name)
        return tuple(ordered)

    def _named(self, name: Any, written: Any, place: _Place) -> Parameter | None:
        if not isinstance(name, str) or not name or len(name) > NAME_LIMIT or text_fault(name):
            self.fault(place.pointer, f"a parameter's name is a text of 1 to {NAME_LIMIT} characters")
            return None
        path = place.path + _escaped(name)
        pointer = f"{place.pointer}/{_escaped(name)}"
        if name in RESERVED_NAMES:
            self.fault(pointer, f"{name} is no name for a parameter: it has a meaning of its own here")
            return None
        if not isinstance(written, dict) or ("_type" in written) == ("type" in written):
            self.fault(
                pointer, "must be {_type: …, _value: …}, or {type: …, …}; {type: const, value: …} for a constant"
            )
            return None
        when = self._condition(written.get("when"), f"{pointer}/when", place.scope) if "when" in written else None
        plain = {key: item for key, item in written.items() if key != "when"}
        inner = _Place(pointer=pointer, path=path + "/", nesting=place.nesting, scope=place.scope)
        range_ = self._nni(plain, inner) if "_type" in plain else self._long(plain, inner)
        return None if range_ is None else Parameter(name=name, path=path, range=range_, when=when)

    def _condition(self, written: Any, pointer: str, scope: frozenset[str]) -> Condition | None:
        try:
            condition = parse_condition(written)
        except ValueError as exc:
            self.fault(pointer, str(exc))
            return None
        for name in sorted(condition.names - scope):
            self.fault(pointer, f"names {name!r}, which is no parameter of this space or of one around it")
        self._conditions += condition.size
        if self._conditions > CONDITION_LIMIT:
            self.fault(pointer, f"more than {CONDITION_LIMIT} values in the conditions of the whole space")
        return condition

    # ── NNI's form ──────────────────────────────────────────────────────────────────────────────
    def _nni(self, written: dict[str, Any], place: _Place) -> Range | None:
        kind, pointer = written["_type"], place.pointer
        if not isinstance(kind, str) or kind not in NNI_VALUES:
            self.fault(f"{pointer}/_type", f"{kind!r} is not one of {_listed(NNI_VALUES)}")
            return None
        for key in written.keys() - {"_type", "_value"}:
            self.fault(f"{pointer}/{_escaped(str(key))}", "unknown key; beside _type there are _value and when")
        value, where = written.get("_value"), f"{pointer}/_value"
        if kind == "choice":
            return self._choice(value, replace(place, pointer=where))
        expected = NNI_VALUES[kind]
        if not isinstance(value, list) or len(value) != expected.count(",") + 1 or not all(map(is_number, value)):
            self.fault(where, f"of {kind} must be {expected}, finite numbers")
            return None
        if kind == "randint":
            return self._randint(value, where)
        if "normal" in kind:
            return self._normal(value, where, log="log" in kind)
        return self._uniform(value, where, log="log" in kind)

    def _randint(self, value: list[Any], where: str) -> Range | None:
        if not all(float(number).is_integer() and abs(number) <= INTEGER_LIMIT for number in value):
            self.fault(where, "of randint must be two integers (at most 2**53)")
            return None
        lower, upper = int(value[0]), int(value[1])
        if lower >= upper:
            self.fault(where, f"lower ({lower}) must be below upper ({upper}), which is excluded")
            return None
        return IntRange(low=lower, high=upper - 1)

    def _uniform(self, value: list[Any], where: str, *, log: bool) -> Range | None:
        low, high = float(value[0]), float(value[1])
        if not self._bounds(low, high, where, log=log):
            return None
        if len(value) == 2:
            return FloatRange(low=low, high=high, log=log)
        q = float(value[2])
        if not self._quantum(q, max(abs(low), abs(high)), f"{where}/2"):
            return None
        return QuantizedRange(low=low, high=high, q=q, log=log)

    def _normal(self, value: list[Any], where: str, *, log: bool) -> Range | None:
        mu, sigma = float(value[0]), float(value[1])
        if sigma <= 0:
            self.fault(f"{where}/1", f"sigma ({sigma:g}) must be above 0")
            return None
        reach = abs(mu) + 10 * sigma
        if reach > BOUND_LIMIT:
            self.fault(where, f"mu or 10 * sigma is beyond {BOUND_LIMIT:g}, so values would overflow")
            return None
        if log and mu + 10 * sigma > EXPONENT_LIMIT:
            self.fault(where, f"mu + 10 * sigma is above {EXPONENT_LIMIT:g}, so values would overflow")
            return None
        if log and len(value) == 2 and mu - 10 * sigma < -EXPONENT_LIMIT:
            self.fault(where, f"mu - 10 * sigma is below {-EXPONENT_LIMIT:g}, so values would be 0")
            return None
        q = float(value[2]) if len(value) == 3 else None
        if q is not None and not self._quantum(q, math.exp(mu + 10 * sigma) if log else reach, f"{where}/2"):
            return None
        return NormalRange(mu=mu, sigma=sigma, log=log, q=q)

    def _bounds(self, low: float, high: float, where: str, *, log: bool) -> bool:
        if low > high:
            self.fault(where, f"low ({low:g}) is above high ({high:g})")
        elif log and low <= 0:
            self.fault(where, f"low ({low:g}) must be above 0 for a logarithmic range")
        elif max(abs(low), abs(high)) > BOUND_LIMIT:
            self.fault(where, f"bounds lie between {-BOUND_LIMIT:g} and {BOUND_LIMIT:g}, so that no value overflows")
        else:
            return True
        return False

    def _quantum(self, q: float, reach: float, where: str) -> bool:
        if q <= 0:
            self.fault(where, f"must be above 0, not {q:g}")
        elif not reach / q < INTEGER_LIMIT:
            self.fault(where, f"{q:g} is too small for this range: more than 2**53 values")
        else:
            return True
        return False

    # ── choices ─────────────────────────────────────────────────────────────────────────────────
    def _choice(self, value: Any, place: _Place, *, ordered: bool = False) -> Choice | None:
        options = self._options_of(value, place, plain=ordered)
        return None if options is None else Choice(options=options, ordered=ordered)

    def _options_of(self, value: Any, place: _Place, *, plain: bool) -> tuple[Option, ...] | None:
        if not isinstance(value, list) or not value:
            self.fault(place.pointer, "must be a list of at least one option")
            return None
        self._options += len(value)
        if self._options > OPTION_LIMIT:
            self.fault(place.pointer, f"more than {OPTION_LIMIT} options in the whole space")
            return None
        options = []
        seen: dict[tuple[bool, str], int] = {}
        for index, written in enumerate(value):
            where = f"{place.pointer}/{index}"
            option = self._option(written, replace(place, pointer=where))
            if option is None:
                continue
            if plain and option.branch is not None:
                self.fault(where, "nested spaces are options of a categorical parameter only")
            first = seen.setdefault((option.branch is not None, option.key), index)
            if first != index:
                self.fault(where, f"is the same as option {first}")
            options.append(option)
        return tuple(options)

    def _option(self, written: Any, place: _Place) -> Option | None:
        if not isinstance(written, dict):
            return Option(value=written) if self._plain(written, place.pointer) else None
        if "_name" not in written and written and not any(isinstance(item, dict) for item in written.values()):
            # An object that describes no ranges is a value like any other: NNI's batch tuner lists such.
            fits = [self._plain(item, f"{place.pointer}/{_escaped(str(key))}") for key, item in written.items()]
            return Option(value=written) if all(fits) and self._plain_names(written, place.pointer) else None
        name = written.get("_name")
        if not isinstance(name, str) or not name or len(name) > NAME_LIMIT or text_fault(name):
            self.fault(place.pointer, "an option that is an object is a nested space and needs a _name (a text)")
            return None
        inner = {key: item for key, item in written.items() if key != "_name"}
        path = f"{place.path}{_escaped(name)}/"
        branch = self.space(inner, pointer=place.pointer, path=path, scope=place.scope, nesting=place.nesting + 1)
        return Option(value=name, branch=branch)

    def _plain(self, value: Any, pointer: str, depth: int = 0) -> bool:
        if isinstance(value, list) and depth < NESTING_LIMIT:
            fits = [self._plain(item, f"{pointer}/{i}", depth + 1) for i, item in enumerate(value)]  # every fault
            return all(fits)
        if value is None or isinstance(value, str | bool) or is_number(value):
            faults = list(value_faults(value))
            for _, message in faults:
                self.fault(pointer, message)
            return not faults
        self.fault(pointer, "must be a text, a finite number, true, false, null or a list of these")
        return False

    def _plain_names(self, written: dict[str, Any], pointer: str) -> bool:
        faults = [message for where, message in value_faults(dict.fromkeys(written)) if not where]
        for message in faults:
            self.fault(pointer, message)
        return not faults

    # ── the long form ───────────────────────────────────────────────────────────────────────────
    def _long(self, written: dict[str, Any], place: _Place) -> Range | None:
        kind, pointer = written["type"], place.pointer
        if not isinstance(kind, str) or kind not in LONG_KEYS:
            self.fault(f"{pointer}/type", f"{kind!r} is not one of {_listed(LONG_KEYS)}")
            return None
        known = LONG_KEYS[kind]
        before = len(self.faults)
        for key in written:
            if key != "type" and key not in known:
                message = f"unknown key; {kind} has {_listed(known)} beside type and when"
                self.fault(f"{pointer}/{_escaped(str(key))}", message)
        for key in ("low", "high", "choices", "value"):
            if key in known and key not in written:
                self.fault(pointer, f"{kind} needs {key}")
        if len(self.faults) > before:
            return None
        if kind in {"categorical", "ordinal"}:
            place = replace(place, pointer=f"{pointer}/choices")
            return self._choice(written["choices"], place, ordered=kind == "ordinal")
        if kind in {"permutation", "subset"}:
            return self._items(written, place)
        if kind == "bool":
            return Choice(options=(Option(value=False), Option(value=True)))
        if kind == "const":
            fits = self._plain(written["value"], f"{pointer}/value")
            return Choice(options=(Option(value=written["value"]),)) if fits else None
        return self._long_number(written, pointer, integer=kind == "int")

    def _items(self, written: dict[str, Any], place: _Place) -> Range | None:
        options = self._options_of(written["choices"], replace(place, pointer=f"{place.pointer}/choices"), plain=True)
        if options is None:
            return None
        if len(options) > ITEM_LIMIT:
            self.fault(f"{place.pointer}/choices", f"more than {ITEM_LIMIT} options")
            return None
        if written["type"] == "permutation":
            return Permutation(options=options)
        least, most = written.get("least", 0), written.get("most", len(options))
        if not (_is_integer(least) and _is_integer(most) and 0 <= least <= most <= len(options)):
            message = f"least and most must be integers with 0 <= least <= most <= {len(options)}"
            self.fault(place.pointer, message)
            return None
        return Subset(options=options, least=int(least), most=int(most))

    def _long_number(self, written: dict[str, Any], pointer: str, *, integer: bool) -> Range | None:
        check: Callable[[Any], bool] = _is_integer if integer else is_number
        what = "an integer of at most 2**53" if integer else "a finite number"
        before = len(self.faults)
        for key in ("low", "high", "step"):
            if key in written and not check(written[key]) and not (key == "step" and written[key] is None):
                self.fault(f"{pointer}/{key}", f"must be {what}")
        log, step = written.get("log", False), written.get("step")
        if not isinstance(log, bool):
            self.fault(f"{pointer}/log", "must be true or false")
        if len(self.faults) > before or not self._bounds(written["low"], written["high"], pointer, log=log):
            return None
        if step is not None and log and not (integer and step == 1):
            self.fault(f"{pointer}/step", "a logarithmic range has no step")
            return None
        if step is not None and not self._quantum(float(step), written["high"] - written["low"], f"{pointer}/step"):
            return None
        if integer:
            return IntRange(low=int(written["low"]), high=int(written["high"]), log=log, step=int(step or 1))
        low, high = float(written["low"]), float(written["high"])
        return FloatRange(low=low, high=high, log=log, step=None if step is None else float(step))


def _is_integer(value: Any) -> bool:
    return is_number(value) and float(value).is_integer() and abs(value) <= INTEGER_LIMIT
