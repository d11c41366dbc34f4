"""Arguments of the wrong type are named before anything is done, all of them at once."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from tuner_service.domain.values import WHOLE_NUMBER_LIMIT
from tuner_service.program.errors import usage_error

P = ParamSpec("P")
T = TypeVar("T")
_SPECIAL = {math.inf: "Infinity", -math.inf: "-Infinity"}  # as the API has them; whatever else is not finite is NaN
SHOWN = 60  # characters of a wrong value
MOST_DEEP = 50  # levels of lists and mappings in one another; the service takes no more

WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
    PathLike: "a path",
    type(None): "None",
    Mapping: "a mapping",
    Sequence: "a list",
    Callable: "a function",
}


def typed(function: Callable[P, T]) -> Callable[P, T]:
    """``function`` with its arguments checked against its annotations first: UsageError names each that is wrong."""
    signature = inspect.signature(function)
    wanted: dict[str, Any] = {}  # resolved at the first call: importing this package should cost little

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        if not wanted:
            wanted.update(_hints(function, signature))
        given = signature.bind(*args, **kwargs).arguments
        faults = [
            (f"/{name}", fault)
            for name, value in given.items()
            if name in wanted and (fault := _fault(name, value, wanted[name]))
        ]
        if faults:
            raise usage_error(faults)
        return function(*args, **kwargs)

    return checked


def _hints(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """Of the parameters alone: what a function returns may be of a package that is not installed."""
    names = vars(inspect.getmodule(function))
    return {
        name: eval(parameter.annotation, dict(names))  # noqa: S307  # annotations of this package
        for name, parameter in signature.parameters.items()
        if isinstance(parameter.annotation, str)
    }


def _fault(name: str, value: Any, wanted: Any) -> str:
    """Empty where there is none."""
    if not fits(value, wanted):
        return f"should be {described(wanted)}, not {_shown(value)}"
    if isinstance(value, str) and "\0" in value:
        return f"should be text without a NUL character, not {_shown(value)}"
    if isinstance(value, str) and _is_half(value):
        return f"should be text, which half a surrogate pair is not: {_shown(value)}"
    if name == "key" and value == "":
        return "should not be empty: whoever repeats a call with it would get something new each time"
    return _number_fault(name, value, wanted)


def _number_fault(name: str, value: Any, wanted: Any) -> str:
    if name == "timeout" and isinstance(value, Real) and value != value:  # noqa: PLR0124  # so NaN is told
        return f"should be seconds, or None to wait without limit, not {_shown(value)}"
    if isinstance(value, Integral) and abs(int(value)) > WHOLE_NUMBER_LIMIT and not fits(0.5, wanted):
        return f"should be a whole number of at most 64 bits, not {_shown(value)}"
    return ""


def _is_half(text: str) -> bool:
    """What the system gives for bytes that are no text may be the name of a file."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return True
    return False


def fits(value: Any, wanted: Any) -> bool:
    """NumPy's numbers are numbers, and a path may be any that the system takes."""
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any:
        return True
    if origin in {typing.Union, types.UnionType}:
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Mapping:
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if origin is Sequence:
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
        return is_list and all(fits(item, inner[0]) for item in value)
    if origin is Callable:
        return callable(value)
    if wanted is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if wanted is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    return isinstance(value, origin or wanted)


def described(wanted: Any) -> str:
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in {typing.Union, types.UnionType}:
        *most, last = dict.fromkeys(described(one) for one in inner)
        return f"{', '.join(most)} or {last}" if most else last
    if origin is Literal:
        return " or ".join(repr(one) for one in inner)
    if origin is Mapping:
        return "a mapping with names as its keys"
    if origin is Sequence:
        return f"a list of {described(inner[0]).replace('a mapping', 'mappings')}"
    return WORDS.get(origin or wanted, getattr(wanted, "__name__", str(wanted)))


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = "one of very many digits"
    return f"{text[:SHOWN]}{'…' if len(text) > SHOWN else ''} ({type(value).__name__})"


def plain(value: Any, pointer: str = "") -> Any:
    """``value`` as JSON has it: NumPy's numbers as Python's, tuples as lists, paths as text. UsageError names the rest.

    None in a mapping stays: it says that something is asked to be empty.
    """
    faults: list[tuple[str, str]] = []
    made = _plain(value, pointer, faults, ())
    if faults:
        raise usage_error(faults)
    return made


def _plain(value: Any, pointer: str, faults: list[tuple[str, str]], above: tuple[int, ...]) -> Any:
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    match value:
        case None | bool() | str():
            return value
        case Integral():
            return int(value)
        case Real():
            try:
                number = float(value)
            except OverflowError:
                faults.append((pointer, f"{_shown(value)} is larger than any number that JSON holds"))
                return None
            return number if math.isfinite(number) else _SPECIAL.get(number, "NaN")
        case PathLike():
            return str(Path(value))
        case Mapping() | list() | tuple() if id(value) in above or len(above) >= MOST_DEEP:
            faults.append((pointer, "holds itself" if id(value) in above else f"is deeper than {MOST_DEEP} levels"))
            return None
        case Mapping():
            inside = (*above, id(value))
            faults += [
                (pointer, f"has the key {_shown(key)}; names are text") for key in value if not isinstance(key, str)
            ]
            return {str(key): _plain(item, f"{pointer}/{key}", faults, inside) for key, item in value.items()}
        case list() | tuple():
            inside = (*above, id(value))
            return [_plain(item, f"{pointer}/{place}", faults, inside) for place, item in enumerate(value)]
        case _:
            faults.append((pointer, f"{_shown(value)} has no form in JSON; use numbers, text, lists and mappings"))
            return None
