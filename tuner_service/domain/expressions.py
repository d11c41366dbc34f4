"""Expressions over parameters, as constraints and conditions write them: ``batch * accumulate <= 4096``.

Python's own syntax is parsed and only what is listed here is taken: numbers, texts, lists, names of parameters,
arithmetic on numbers, comparisons, ``in``, ``and``, ``or``, ``not``, ``… if … else …`` and a few functions. Nothing is
ever executed by Python itself. A name stands for the value of a parameter, ``layer.kernel`` for a parameter of a nested
space, and ``parameter("learning-rate")`` for one whose name is no Python name.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

# ── limits: a longer expression is refused ──────────────────────────────────────────────────────
TEXT_LIMIT = 1_000  # characters
NODE_LIMIT = 300  # parts of one expression
EXPONENT_LIMIT = 64  # of ``**``, so that no number grows without bound
MAGNITUDE_LIMIT = 2**256  # of an integer between two steps

NAME_FUNCTION = "parameter"
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, group: item in group,
    ast.NotIn: lambda item, group: item not in group,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}


def _rounded(value: float) -> int:
    """Without the second argument that Python's own has: it could ask for a billion digits."""
    return round(value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "len": len,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": _rounded,
    "sqrt": math.sqrt,
    "sum": sum,
}
CANNOT_BE_COMPUTED = (ArithmeticError, TypeError, ValueError)


class AbsentError(Exception):
    """The expression names a parameter that is not there with the values at hand."""


@dataclass(frozen=True, kw_only=True)
class Expression:
    """Equal where its text means the same. ``names``: the parameters it looks at, nested ones by their first name."""

    source: str  # as Python would write it: spaces and brackets that mean nothing are gone

    @cached_property
    def _tree(self) -> ast.expr:
        return ast.parse(self.source, mode="eval").body

    @cached_property
    def size(self) -> int:
        """How many parts it has; each takes about as long."""
        return sum(isinstance(node, ast.expr) for node in ast.walk(self._tree))

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(_names(self._tree))

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Its value. AbsentError where a parameter is not there; ArithmeticError, TypeError, ValueError as Python."""
        return _evaluate(self._tree, values)

    def holds(self, values: Mapping[str, Any], *, absent: bool) -> bool:
        """Whether it is true; ``absent`` where a parameter is not there, False where it cannot be computed."""
        try:
            return bool(self.evaluate(values))
        except AbsentError:
            return absent
        except CANNOT_BE_COMPUTED:
            return False


def parse_expression(text: Any) -> Expression:
    """ValueError says what is wrong with ``text``."""
    if not isinstance(text, str) or not text.strip() or len(text) > TEXT_LIMIT:
        raise ValueError(f"must be an expression, a text of 1 to {TEXT_LIMIT} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise ValueError(f"is no expression: {exc.msg if isinstance(exc, SyntaxError) else exc}") from exc
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
    if len(nodes) > NODE_LIMIT:
        raise ValueError(f"has more than {NODE_LIMIT} parts")
    for node in nodes:
        problem = _problem(node)
        if problem:
            raise ValueError(problem)
    if not _names(tree):
        raise ValueError("names no parameter")
    return Expression(source=ast.unparse(tree))


def _problem(node: ast.expr) -> str | None:  # one case for each kind of part
    match node:
        case ast.Constant(value=value):
            known = value is None or isinstance(value, bool | int | float | str)
            return None if known else f"{value!r} is neither a number nor a text"
        case ast.Name(id=name):
            return f"{name} is no name here" if name.startswith("__") else None
        case ast.Attribute(value=ast.Name() | ast.Attribute()) | ast.List() | ast.Tuple() | ast.BoolOp() | ast.IfExp():
            return None
        case ast.BinOp(op=op):
            return None if type(op) in _ARITHMETIC else f"operator {type(op).__name__} is not known here"
        case ast.UnaryOp(op=ast.Not() | ast.UAdd() | ast.USub()):
            return None
        case ast.Compare(ops=ops):
            unknown = [type(op).__name__ for op in ops if type(op) not in _COMPARISONS]
            return f"comparison {unknown[0]} is not known here" if unknown else None
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call_problem(name, arguments)
        case _:
            return f"{type(node).__name__} is not known here; there are arithmetic, comparisons, and, or, not, in, if"


def _call_problem(name: str, arguments: list[ast.expr]) -> str | None:
    if name == NAME_FUNCTION:
        given = arguments[0].value if len(arguments) == 1 and isinstance(arguments[0], ast.Constant) else None
        return None if isinstance(given, str) else f"{NAME_FUNCTION}(…) needs the name of a parameter, in quotes"
    if name not in FUNCTIONS:
        return f"there is no function {name}; there are {', '.join(FUNCTIONS)}, {NAME_FUNCTION}"
    return None if arguments else f"{name}() needs a value"


def _names(tree: ast.expr) -> set[str]:
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in functions}
    quoted = {node.args[0].value for node in ast.walk(tree) if _is_quoted(node)}  # type: ignore[attr-defined]  # checked
    return found | quoted


def _is_quoted(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == NAME_FUNCTION


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute():
            return _shown(_looked_up(node, values))
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_evaluate(part, values) for part in parts]
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_evaluate(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_evaluate(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluate(operand, values)
        case ast.UnaryOp(op=op, operand=operand):
            return _SIGNS[type(op)](_number(_evaluate(operand, values)))
        case ast.BinOp(left=left, op=op, right=right):
            return _computed(op, _number(_evaluate(left, values)), _number(_evaluate(right, values)))
        case ast.Compare():
            return _compared(node, values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _evaluate(body if _evaluate(test, values) else orelse, values)
        case _:
            return _called(node, values)


def _computed(op: ast.operator, left: float, right: float) -> float:
    if isinstance(op, ast.Pow) and abs(right) > EXPONENT_LIMIT:
        raise OverflowError(f"an exponent of more than {EXPONENT_LIMIT}")
    result = _ARITHMETIC[type(op)](left, right)
    if isinstance(result, complex) or abs(result) > MAGNITUDE_LIMIT:
        raise OverflowError("a number beyond every bound")
    return float(result) if isinstance(result, float) else int(result)


def _compared(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = _evaluate(node.left, values)
    for op, part in zip(node.ops, node.comparators, strict=True):
        right = _evaluate(part, values)
        if not _COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True


def _called(node: Any, values: Mapping[str, Any]) -> Any:
    """``node`` is a call of a function that is known: that was checked when it was parsed."""
    if node.func.id == NAME_FUNCTION:
        return _shown(_of(values, node.args[0].value))
    return FUNCTIONS[node.func.id](*(_evaluate(argument, values) for argument in node.args))


def _looked_up(node: Any, values: Mapping[str, Any]) -> Any:
    """``node`` is a name, or an attribute of one, of another attribute: that was checked when it was parsed."""
    if isinstance(node, ast.Name):
        return _of(values, node.id)
    return _of(_looked_up(node.value, values), node.attr)


def _of(values: Any, name: str) -> Any:
    if not isinstance(values, Mapping) or name not in values:
        raise AbsentError(name)
    return values[name]


def _shown(value: Any) -> Any:
    """A nested choice compares as the name of its option."""
    return value["_name"] if isinstance(value, Mapping) and "_name" in value else value


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return value
