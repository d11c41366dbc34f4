"""The source of a function or class of a notebook or script, and what it uses, read without running any of it."""

from __future__ import annotations

import ast
import inspect
import linecache
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
LATE_ANNOTATIONS = annotations.compiler_flag  # of code compiled under that import
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class NoSourceError(LookupError):
    """The text says of what there is no source."""


def source_of(thing: Any) -> str:
    """The text of a function or class with its decorators, as it was written. NoSourceError where it is not known."""
    if isinstance(thing, type):
        return _source_of_class(thing)
    function = inspect.unwrap(thing)
    code: CodeType = function.__code__
    for lines, node in _definitions(code.co_filename, code.co_name):
        if _first_line(node) == code.co_firstlineno:
            return _text(lines, node)
    raise NoSourceError(f"there is no source of {code.co_name}: it was not written in a cell or a file")


def _source_of_class(kind: type) -> str:
    """The last definition of that name: a class says of itself in which file it stands only through its functions."""
    files = dict.fromkeys(_files_of(kind))
    # A class without a function of its own; a notebook keeps its cells among these files, the newest last.
    files |= dict.fromkeys(name for name in reversed(linecache.cache) if kind.__module__ == "__main__")
    for file in files:
        found = list(_definitions(file, kind.__name__))
        if found:
            return _text(*found[-1])
    raise NoSourceError(f"there is no source of the class {kind.__name__}: it was not written in a cell or a file")


def _files_of(kind: type) -> Iterator[str]:
    for value in vars(kind).values():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(function, FunctionType) and function.__code__.co_filename != "<string>":
            yield function.__code__.co_filename
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is not None:
        yield file


def _definitions(file: str, name: str) -> Iterator[tuple[list[str], Definition]]:
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS) and node.name == name:
            yield lines, node


def _first_line(node: Definition) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _text(lines: list[str], node: Definition) -> str:
    """With the comments inside of it; moved to the left margin, where it stood inside of something."""
    end = node.end_lineno or node.lineno
    text = lines[_first_line(node) - 1 : end]
    margin = len(text[0]) - len(text[0].lstrip())
    if not margin:
        return "".join(text).rstrip() + "\n"
    return ast.unparse(node) + "\n"  # text over several lines in it may not be moved


def globals_used(source: str, *, late_annotations: bool = False) -> list[str]:
    """The names that ``source`` takes from its module: in its bodies, defaults, decorators and annotations.

    Annotations that are ``late`` are never looked up.
    """
    tree = ast.parse(source)
    if late_annotations:
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                node.annotation = None
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                node.returns = None
    found: dict[str, None] = {}
    _gather(symtable.symtable(ast.unparse(tree), "<source>", "exec"), found, is_top=True)
    return list(found)


def _gather(table: symtable.SymbolTable, found: dict[str, None], *, is_top: bool) -> None:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (is_top or symbol.is_global()):
            found[symbol.get_name()] = None
    for inner in table.get_children():
        _gather(inner, found, is_top=False)


def submodules_used(source: str, name: str) -> Iterator[str]:
    """Of the module ``name``: ``a.b.c`` where the source says ``a.b.c.d()`` and that is a module which is imported."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if dotted.startswith(f"{name}.") and dotted in sys.modules:
                yield dotted


def has_late_annotations(function: Any) -> bool:
    """Whether it was compiled under ``from __future__ import annotations``."""
    code: CodeType = inspect.unwrap(function).__code__
    return bool(code.co_flags & LATE_ANNOTATIONS)


def own_file(module: ModuleType) -> Path | None:
    """Its file, where that is of the person who calls and not of an installed package or of Python."""
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py"):
        return None
    path = Path(file).resolve()
    if any(part in {"site-packages", "dist-packages"} for part in path.parts):
        return None
    roots = {Path(sys.base_prefix, "lib").resolve(), Path(inspect.__file__).resolve().parent}
    return None if any(path.is_relative_to(root) for root in roots) else path
