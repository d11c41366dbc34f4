"""A function as the training script: its source, and that of what it uses, becomes files of the code folder.

An importable function is called where it stands; the modules of its author that it imports are sent along. One of a
notebook, of the script that runs or of another function is written into a module of its own, together with the imports,
constants, functions and classes that it uses. Nothing is pickled: what has no source is refused by name.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from tuner_service.program.errors import UsageError, usage_error
from tuner_service.program.sources import (
    NoSourceError,
    globals_used,
    has_late_annotations,
    own_file,
    source_of,
    submodules_used,
)

RUNNER = "trials.functions"
NEVER_SENT = frozenset({"trials", "tuner_service"})  # wherever a trial runs, they are there
MAX_CONSTANT = 1 << 20  # characters of one global value that is written into the source
INSTEAD = "make it inside of the function, give it as a parameter, or as a dataset"


@dataclass(frozen=True, kw_only=True)
class PackedFunction:
    """``files`` by their path in the code folder; ``command`` runs the function there."""

    name: str
    files: dict[str, str]
    command: list[str]


def packed_function(function: Callable[..., Any], *, beside: Path | None = None) -> PackedFunction:
    """``beside`` is the code folder, if one is named. UsageError names everything that cannot be sent."""
    inner = _require_plain(function)
    module = sys.modules.get(inner.__module__)
    if module is not None and _is_importable(inner, module):
        return _imported(inner, module, beside)
    extract = _Extract(home=inner.__globals__, module=inner.__module__)
    extract.take_function(inner)
    if extract.faults:
        raise usage_error([("/function", fault) for fault in extract.faults])
    name = inner.__name__
    files = dict(_files_of(extract.modules)) | {f"{name}_function.py": extract.text()}
    return PackedFunction(name=name, files=files, command=_command(f"{name}_function:{name}"))


def _command(target: str) -> list[str]:
    return ["python", "-m", RUNNER, target]


def _require_plain(function: Callable[..., Any]) -> FunctionType:
    """UsageError, with what to give instead, for what is called and yet no function that can be read."""
    if isinstance(function, functools.partial):
        _refuse("is a partial: what it fills in is a parameter; give the function, and the rest in the search space")
    if inspect.ismethod(function):
        _refuse(f"{function.__qualname__} is a method, whose object cannot be sent; write a function that makes it")
    inner = inspect.unwrap(function)
    if not isinstance(inner, FunctionType):
        what = f"the class {function.__name__}" if isinstance(function, type) else f"a {type(function).__name__}"
        _refuse(f"should be a function that is written in Python, not {what}")
    if inner.__name__ == "<lambda>":
        _refuse("is a lambda; give it a name with def")
    if inspect.iscoroutinefunction(inner) or inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        _refuse(f"{inner.__name__} is run by nobody who awaits or iterates; write a plain function that does")
    closed = _closed_over(inner)
    if closed:
        _refuse(f"{inner.__name__} {closed}")
    return inner


def _refuse(why: str) -> NoReturn:
    raise UsageError(f"function: {why}", errors=[{"pointer": "/function", "detail": why}])


def _closed_over(function: FunctionType) -> str:
    names = [name for name in function.__code__.co_freevars if name != "__class__"]
    if not names:
        return ""
    return f"is a closure over {', '.join(names)}, which cannot be sent; {INSTEAD}"


# ── importable functions ────────────────────────────────────────────────────────────────────────
def _is_importable(thing: Any, module: ModuleType) -> bool:
    found: Any = module
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return module.__name__ != "__main__" and "." not in thing.__qualname__ and inspect.unwrap(found) is thing


def _imported(function: FunctionType, module: ModuleType, beside: Path | None) -> PackedFunction:
    name, file = module.__name__, own_file(module)
    files: dict[str, str] = {}
    if file is not None and beside is not None and file.is_relative_to(beside.resolve()):
        path = file.relative_to(beside.resolve())
        parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
        name = ".".join(parts)
    elif file is not None:
        files = dict(_files_of([module]))
    return PackedFunction(name=function.__name__, files=files, command=_command(f"{name}:{function.__name__}"))


def _files_of(modules: list[ModuleType]) -> Iterator[tuple[str, str]]:
    """The files of ``modules`` and of all that they import of their author's, by their path below sys.path."""
    own = [module for module in modules if module.__name__.partition(".")[0] not in NEVER_SENT]
    open_files = [(_root(module, file), file) for module in own if (file := own_file(module)) is not None]
    known: set[Path] = set()
    while open_files:
        root, file = open_files.pop()
        if file in known:
            continue
        known.add(file)
        try:
            text = file.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError) as exc:
            raise UsageError(f"function: {file}, which it imports, cannot be read: {exc}") from exc
        yield file.relative_to(root).as_posix(), text
        package = file.relative_to(root).parent.parts
        open_files += [(root, found) for parts in _imports(tree, package) for found in _found(root, parts)]
        open_files += [(root, found) for found in _found(root, package)]


def _root(module: ModuleType, file: Path) -> Path:
    """The folder of sys.path that the module was found in."""
    depth = module.__name__.count(".") + (file.name == "__init__.py")
    return file.parents[depth]


def _imports(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The names that may be modules, in parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = (*above, *(node.module or "").split(".")) if node.module else above
            yield base
            yield from ((*base, alias.name) for alias in node.names)


def _found(root: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    """The files of a module below ``root`` and of the packages around it; none where it is not there."""
    if not parts or parts[0] in NEVER_SENT:
        return
    for depth in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:depth])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                yield file.resolve()


# ── functions of a notebook or a script ─────────────────────────────────────────────────────────
@dataclass(kw_only=True)
class _Extract:
    """What one module has to hold so that a function can be called in it: what is needed stands before its use."""

    home: dict[str, Any]  # where the function looks its globals up
    module: str
    imports: dict[str, None] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    modules: list[ModuleType] = field(default_factory=list)  # that it imports
    faults: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)
    _defined: set[int] = field(default_factory=set)  # ids of functions and classes
    _late_annotations: bool = False

    def text(self) -> str:
        late = ["from __future__ import annotations\n\n"] if self._late_annotations else []
        imports = ["".join(f"{line}\n" for line in self.imports)] if self.imports else []
        return "".join(late) + "\n\n".join([*imports, *self.pieces])

    def take_function(self, function: FunctionType) -> None:
        self._late_annotations = self._late_annotations or has_late_annotations(function)
        self._define(function)

    def _define(self, thing: Any) -> None:
        if id(thing) in self._defined:
            return
        self._defined.add(id(thing))
        try:
            source = source_of(thing)
        except NoSourceError as exc:
            self.faults.append(str(exc))
            return
        for name in globals_used(source, late_annotations=self._late_annotations):
            self._take(name, source)
        self.pieces.append(source)

    def _take(self, name: str, source: str) -> None:
        """What ``name`` means in ``source``."""
        if name in self.home:
            value = self.home[name]
            if isinstance(value, ModuleType):
                self._import(value, name)
                self.imports |= dict.fromkeys(f"import {dotted}" for dotted in submodules_used(source, name))
            elif name not in self._known:
                self._known.add(name)
                self._take_value(name, value)
        elif not hasattr(builtins, name) and name not in {"__name__", "__file__", "__doc__"}:
            self.faults.append(f"uses {name}, which is not defined")

    def _import(self, module: ModuleType, name: str) -> None:
        if module.__name__ == "__main__":
            self.faults.append(f"uses {name}, the module that runs here; name what it uses of it")
            return
        self.modules.append(module)
        parent, _, last = module.__name__.rpartition(".")
        if name == module.__name__:
            self.imports[f"import {name}"] = None
        elif parent and name == last:
            self.imports[f"from {parent} import {name}"] = None
        else:
            self.imports[f"import {module.__name__} as {name}"] = None

    def _take_value(self, name: str, value: Any) -> None:
        if isinstance(value, FunctionType | type) and value.__module__ == self.module:
            closed = _closed_over(inspect.unwrap(value)) if isinstance(value, FunctionType) else ""
            if closed:
                self.faults.append(f"uses {name}, which {closed}")
                return
            self._define(value)
            if value.__name__ != name:
                self.pieces.append(f"{name} = {value.__name__}\n")
            return
        literal = _literal(value)
        if literal is not None and len(literal) <= MAX_CONSTANT:
            self.pieces.append(f"{name} = {literal}\n")
            if "pathlib." in literal:  # a path, perhaps inside of a list; in a text it does no harm
                self.imports["import pathlib"] = None
            return
        origin = _origin(name, value)
        if origin is None:
            what = f"a {type(value).__module__}.{type(value).__name__}".replace("builtins.", "")
            size = f" of {len(literal)} characters" if literal is not None else ""
            self.faults.append(f"uses {name}, {what}{size} which cannot be sent; {INSTEAD}")
            return
        module, known_as = origin
        self.modules.append(module)
        self.imports[f"from {module.__name__} import {known_as}{'' if known_as == name else f' as {name}'}"] = None


def _literal(value: Any) -> str | None:
    """Source that makes an equal value; None where there is none."""
    match value:
        case None | bool() | int() | str() | bytes() if type(value) in {type(None), bool, int, str, bytes}:
            return repr(value)
        case float() if type(value) is float:
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        case PurePath():
            return f"pathlib.{'Path' if isinstance(value, Path) else 'PurePath'}({str(value)!r})"
        case list() | tuple() | set() | dict() if type(value) in {list, tuple, set, dict}:
            return _literal_of_many(value)
        case _:
            return None


def _literal_of_many(value: Any) -> str | None:
    try:
        items = [_literal(item) for item in value]
        others = [_literal(item) for item in value.values()] if isinstance(value, dict) else items
    except RecursionError:
        return None
    if None in items or None in others:
        return None
    texts = [str(item) for item in items]
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {item}" for key, item in zip(texts, others, strict=True)) + "}"
        case list():
            return f"[{', '.join(texts)}]"
        case set():
            return f"{{{', '.join(texts)}}}" if texts else "set()"
        case _:
            return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _origin(name: str, value: Any) -> tuple[ModuleType, str] | None:
    """The module that has the very same object under a public name, the one that says so of itself first."""
    said = sys.modules.get(getattr(value, "__module__", None) or "")
    known_as = getattr(value, "__name__", name)
    if said is not None and said.__name__ != "__main__" and vars(said).get(known_as) is value:
        return said, known_as
    found = [
        module
        for module_name, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        and module_name != "__main__"
        and not any(part.startswith("_") for part in module_name.split("."))
        and vars(module).get(name) is value
    ]
    return (min(found, key=lambda module: (len(module.__name__), module.__name__)), name) if found else None
