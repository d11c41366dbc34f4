"""A seeded sample of small changes to the code that exactness stands on, and the tests that run each changed line.

What people only read is left alone: texts, logging, annotations, docstrings, ``__all__``, the code of type checkers.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STORES = tuple(f"tests/contract/test_store{name}.py" for name in (
    "", "_blobs", "_commits", "_decisions", "_exports", "_quota_groups", "_reading", "_rows", "_skipped_lines",
    "_unread_reports",
))  # fmt: skip
ON_A_SERVER = (
    *("databases_of_a_server", "disturbed_leases", "lost_connections", "one_active_service"),
    *("reads_of_a_standby", "told_to_end"),
)
ROOM_TESTS = {  # of each file or folder, the tests among which those are looked for that run a line
    "tuner_service/dispatcher": ("tests/unit/dispatcher", "tests/simulation"),
    "tuner_service/domain": ("tests/unit/domain", "tests/unit/dispatcher", "tests/contract/test_extreme_values.py"),
    "tuner_service/storage/postgresql": (
        *("tests/unit/storage", *STORES, "tests/integration/storage"),
        *(f"tests/integration/postgresql/test_{name}.py" for name in ON_A_SERVER),
    ),
    "tuner_service/storage": (
        *("tests/unit/storage", "tests/contract/test_asset_rows.py", "tests/contract/test_extreme_values.py"),
        *(*STORES, "tests/migrations", "tests/integration/storage"),
    ),
    "tuner_service/service/runner.py": ("tests/unit/service", "tests/simulation"),
    "trials/wire": (
        *("tests/unit/trials", "tests/unit/dispatcher", "tests/unit/service"),
        *("tests/unit/api/test_agent_channel.py", "tests/unit/test_log_format.py"),
    ),
    "trials/checkpoints": ("tests/unit/trials", "tests/integration/trials/test_sharded_checkpoints.py"),
    "trials/files.py": ("tests/unit/trials",),
    "trials/reports": ("tests/unit/trials",),
    "trials/agent/spool.py": ("tests/unit/trials",),
    "trials/agent/supervision/exits.py": ("tests/unit/trials",),
    "trials/data/core": ("tests/unit/trials",),
}
SWAPPED_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
SWAPPED_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
BOUNDS = re.compile(  # names of numbers that say how much or how long at most, or at least
    r"_(S|BYTES|CHARACTERS|LENGTH|LINES|LIMIT|MAX|MIN|MOST|LEAST|KEPT|REMEMBERED|AT_ONCE)$|^(MAX|MIN|MOST|LEAST)_|LIMIT"
)
PAUSES = re.compile(r"(POLL|PAUSE|AGAIN|RETRY)(_[A-Z]+)*_S$")  # between two tries of the same
READ_ONLY_CALLS = {"debug", "info", "warning", "error", "exception", "log"}


@dataclass(frozen=True, slots=True)
class Sampled:
    """In ``path``, what stands from ``start`` to ``end`` (offsets in its text) becomes ``new``."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    function: str  # in whose body it stands, by its qualified name; empty where it runs when the file is imported
    begins: int  # the first line of the outermost function around it; 0 where there is none
    key: str  # the same as long as the place and its change are, wherever in the file it stands

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


@dataclass(frozen=True, slots=True)
class _Place:
    node: ast.AST
    function: str = ""
    begins: int = 0
    name: str = ""  # of the number, where it has one

    def at(self, node: ast.AST, name: str = "") -> _Place:
        return _Place(node, self.function, self.begins, name)


def sample(root: Path, *, count: int, seed: int) -> list[Sampled]:
    """The ``count`` changes with the smallest keys: a place of the code that comes, goes or moves draws no others."""
    every = [change for path in files_of(root) for change in changes_of(path, (root / path).read_text("utf-8"), seed)]
    return sorted(every, key=lambda change: change.key)[:count]


def tests_for(path: str) -> tuple[str, ...]:
    return next(tests for room, tests in ROOM_TESTS.items() if path == room or path.startswith(f"{room}/"))


def files_of(root: Path) -> list[str]:
    found: set[Path] = set()
    for room in ROOM_TESTS:
        found.update([root / room] if room.endswith(".py") else (root / room).rglob("*.py"))
    return sorted(str(file.relative_to(root)) for file in found)


def changes_of(path: str, text: str, seed: int = 1) -> Iterator[Sampled]:
    """Each small change that some expression or statement of the file can undergo."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def offset(line: int, column: int) -> int:  # columns count bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    equal = Counter[tuple[str, str, str]]()
    for place in sorted(_changeable(ast.parse(text)), key=_position):
        node = place.node
        assert isinstance(node, ast.expr | ast.stmt)
        for new in _named_variants(node, place.name) if place.name else _variants(node):
            start = offset(node.lineno, node.col_offset)
            end = offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
            old = text[start:end]
            equal[place.function, old, new] += 1
            key = _key(seed, path, place.function, old, new, equal[place.function, old, new])
            yield Sampled(path, node.lineno, start, end, old, new, place.function, place.begins, key)


def _key(*parts: str | int) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]


def _position(place: _Place) -> tuple[int, int]:
    assert isinstance(place.node, ast.expr | ast.stmt)
    return place.node.lineno, place.node.col_offset


def _changeable(tree: ast.Module) -> Iterator[_Place]:
    """Every expression and statement but those that people only read."""
    waiting = [_Place(tree)]
    while waiting:
        place = waiting.pop()
        if _is_read_only(place.node):
            continue
        if isinstance(place.node, ast.expr | ast.stmt):
            yield place
        if not place.name:
            waiting += _parts(place)


def _parts(place: _Place) -> list[_Place]:
    node = place.node
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            begins = place.begins or min(part.lineno for part in (node, *node.decorator_list))
            function = f"{place.function}.<locals>.{node.name}" if place.begins else _inner(place.function, node.name)
            body = [_Place(part, function, begins) for part in node.body]
            return body + [place.at(value, name) for name, value in _defaults(node.args)]
        case ast.ClassDef():
            function = f"{place.function}.<locals>.{node.name}" if place.begins else _inner(place.function, node.name)
            return [_Place(part, function, place.begins) for part in node.body]
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper() and _is_number(value):
            return [place.at(value, name)]
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            return [place.at(value, name if _is_number(value) else "")]
        case ast.AnnAssign():
            return [place.at(node.value)] if node.value is not None else []
        case _:
            return [place.at(part) for part in ast.iter_child_nodes(node)]


def _inner(outer: str, name: str) -> str:
    return f"{outer}.{name}" if outer else name


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    """Each default, with the name of its parameter where it is a number."""
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = positional[len(positional) - len(arguments.defaults) :]
    values = [*arguments.defaults, *arguments.kw_defaults]
    for argument, value in zip([*with_default, *arguments.kwonlyargs], values, strict=True):
        if value is not None:
            yield argument.arg if _is_number(value) else "", value


def _is_number(node: ast.expr) -> bool:
    """A number, or one that is made of numbers and of what has a name."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.BinOp():
            sides = node.left, node.right
            return all(_is_number(side) or isinstance(side, ast.Name) for side in sides) and any(map(_is_number, sides))
        case _:
            return False


def _is_read_only(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Assign(value=ast.BinOp(op=ast.BitOr()) as value):
            return _is_union(value)
        case ast.Return(value=ast.JoinedStr()):
            return True
        case ast.IfExp():
            return _is_text(node.body) and _is_text(node.orelse)  # one text or the other
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in READ_ONLY_CALLS
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Attribute(attr="stderr"), attr="write"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
            return name in READ_ONLY_CALLS
        case _:
            return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_union(node: ast.expr) -> bool:
    """An alias of several types: an annotation under another name."""
    match node:
        case ast.BinOp(op=ast.BitOr()):
            return _is_union(node.left) and _is_union(node.right)
        case ast.Name(id=name):
            return name in vars(builtins) or (name[:1].isupper() and not name.isupper())
        case ast.Constant(value=None):
            return True
        case _:
            return False


def _named_variants(node: ast.expr | ast.stmt, name: str) -> Iterator[str]:
    """A number with a name is one place. Of a bound or a time every near value is right, so there is none instead."""
    if PAUSES.search(name.upper()):
        return  # whatever it is, nothing but the time between two tries differs
    number = ast.literal_eval(node) if isinstance(node, ast.Constant) else None
    if number != 0 and BOUNDS.search(name.upper()):
        yield "0"
    else:
        yield f"({ast.unparse(node)} + 1)" if number is None else repr(number + 1)


def _variants(node: ast.expr | ast.stmt) -> Iterator[str]:
    match node:
        case ast.Compare(ops=[operator]):
            yield ast.unparse(ast.Compare(node.left, [SWAPPED_COMPARISONS[type(operator)]()], node.comparators))
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield f"({ast.unparse(ast.BoolOp(other, node.values))})"
        case ast.UnaryOp(op=ast.Not()):
            yield f"({ast.unparse(node.operand)})"
        case ast.BinOp() if type(node.op) in SWAPPED_OPERATORS:
            yield f"({ast.unparse(ast.BinOp(node.left, SWAPPED_OPERATORS[type(node.op)](), node.right))})"
        case ast.Constant(value=bool() as value):
            yield repr(not value)
        case ast.Constant(value=int() | float() as value):
            yield repr(value + 1)
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and not value.value):
            yield "return None"  # for a caller that asks whether, None is False
        case ast.IfExp():
            yield f"({ast.unparse(ast.IfExp(node.test, node.orelse, node.body))})"
        case ast.Continue():
            yield "break"
