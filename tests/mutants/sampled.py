"""A seeded sample of small changes to the code that exactness stands on, and the tests that run each changed line.

What people only read is left alone: texts, logging, annotations, docstrings, ``__all__``, the code of type checkers.
"""

from __future__ import annotations

import ast
import builtins
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOM_TESTS = {  # of each file or folder, the tests among which those are looked for that run a line
    "tuner_service/dispatcher": ("tests/unit/dispatcher", "tests/simulation"),
    "tuner_service/domain": ("tests/unit/domain", "tests/unit/dispatcher", "tests/contract/test_extreme_values.py"),
    "tuner_service/storage": ("tests/unit/storage", "tests/contract", "tests/migrations", "tests/integration/storage"),
    "tuner_service/service/runner.py": ("tests/unit/service", "tests/simulation"),
    "trials/wire": ("tests/unit/trials", "tests/unit/dispatcher", "tests/unit/service", "tests/unit/api"),
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

    def applied(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


def sample(root: Path, *, count: int, seed: int) -> list[Sampled]:
    """``count`` of all changes there are, drawn evenly; the same for the same seed and code."""
    every = [change for path in sorted(_files(root)) for change in changes_of(path, (root / path).read_text("utf-8"))]
    return random.Random(seed).sample(every, min(count, len(every)))


def tests_for(path: str) -> tuple[str, ...]:
    return next(tests for room, tests in ROOM_TESTS.items() if path == room or path.startswith(f"{room}/"))


def changes_of(path: str, text: str) -> Iterator[Sampled]:
    """Each small change that some expression or statement of the file can undergo."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = text.splitlines()

    def offset(line: int, column: int) -> int:  # columns count bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    for node in _changeable(ast.parse(text)):
        for new in _variants(node):
            start = offset(node.lineno, node.col_offset)
            end = offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
            yield Sampled(path, node.lineno, start, end, text[start:end], new)


def _files(root: Path) -> Iterator[str]:
    for room in ROOM_TESTS:
        found = [root / room] if room.endswith(".py") else (root / room).rglob("*.py")
        yield from (str(file.relative_to(root)) for file in found)


def _changeable(tree: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    """Every expression and statement but those that people only read."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if _is_read_only(node):
            continue
        if isinstance(node, ast.expr | ast.stmt):
            yield node
        waiting += _parts(node)


def _parts(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*node.body, *node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)]
        case ast.ClassDef():
            return list(node.body)
        case ast.AnnAssign():
            return [node.value] if node.value is not None else []
        case _:
            return list(ast.iter_child_nodes(node))


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
