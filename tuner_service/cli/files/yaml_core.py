"""YAML by the core schema of version 1.2: ``1e-4`` is a number, ``on`` is text, a key stands once.

PyYAML's own rules are those of 1.1, under which ``low: 1e-4`` would be text and ``choices: [on, off]`` booleans.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

YamlError = yaml.YAMLError
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


TAG = "tag:yaml.org,2002:"
NULL = re.compile(r"(?:~|null|Null|NULL|)$")
TRUTH = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")
WHOLE = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
REAL = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
MAX_SIZE = 64 << 20  # with everything written out that aliases repeat; a request has less
TAKEN = ("null", "str", "seq")  # with those below all types of the core schema; whatever else a tag names is refused


class CoreLoader(Loader):  # type: ignore[misc]  # the fast loader where libyaml is there, else the slow one
    """Reads the core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's convention
    yaml_constructors = {key: Loader.yaml_constructors[key] for key in (*(TAG + name for name in TAKEN), None)}  # noqa: RUF012


CoreLoader.add_implicit_resolver(f"{TAG}null", NULL, ["~", "n", "N", ""])
CoreLoader.add_implicit_resolver(f"{TAG}bool", TRUTH, list("tTfF"))
CoreLoader.add_implicit_resolver(f"{TAG}int", WHOLE, list("-+0123456789"))
CoreLoader.add_implicit_resolver(f"{TAG}float", REAL, list("-+.0123456789"))
CoreLoader.add_implicit_resolver(f"{TAG}merge", re.compile(r"<<$"), ["<"])


def _text(loader: Any, node: Any, form: re.Pattern[str], what: str) -> str:
    """Of a node that may say by a tag that it is ``what``, and be something else."""
    text = str(loader.construct_scalar(node))
    if not form.match(text):
        raise yaml.MarkedYAMLError(problem=f"{text!r:.60} is no {what}", problem_mark=node.start_mark)
    return text


def _truth(loader: Any, node: Any) -> bool:
    return _text(loader, node, TRUTH, "boolean").lower() == "true"


def _integer(loader: Any, node: Any) -> int:
    text = _text(loader, node, WHOLE, "whole number")
    if text.startswith("0x"):
        return int(text, 16)
    try:
        return int(text[2:], 8) if text.startswith("0o") else int(text)
    except ValueError as exc:  # of Python's limit
        problem = f"a whole number of {len(text)} digits is too large"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from exc


def _real(loader: Any, node: Any) -> float:
    return float(_text(loader, node, REAL, "number").lower().replace(".inf", "inf").replace(".nan", "nan"))


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise yaml.MarkedYAMLError(problem="a tag says that this is a mapping", problem_mark=node.start_mark)
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if key is not None and key != "<<":
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} stands twice", problem_mark=key_node.start_mark)
            seen.add(key)
    loader.flatten_mapping(node)
    made: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return made


CoreLoader.add_constructor(f"{TAG}bool", _truth)
CoreLoader.add_constructor(f"{TAG}int", _integer)
CoreLoader.add_constructor(f"{TAG}float", _real)
CoreLoader.add_constructor(f"{TAG}map", _mapping)


def load_yaml(text: str) -> Any:
    """YamlError says where ``text`` is wrong, and nothing else is raised."""
    try:
        found = yaml.load(text, Loader=CoreLoader)  # noqa: S506  # CoreLoader derives from the safe loader
        size = _size(found, {})
    except RecursionError as exc:
        raise YamlError("lists and mappings in one another are too deep") from exc
    if size > MAX_SIZE:
        raise YamlError(f"its aliases repeat so much that it has more than {MAX_SIZE >> 20} MiB")
    return found


def _size(value: Any, sizes: dict[int, int]) -> int:
    """About the characters that it has where what aliases name is written out. YamlError for what holds itself."""
    if isinstance(value, str):
        return 1 + len(value)
    if not isinstance(value, dict | list):
        return 1
    known = sizes.get(id(value))
    if known == 0:
        raise YamlError("an alias names what it stands in")
    if known is None:
        sizes[id(value)] = 0
        parts = value.values() if isinstance(value, dict) else value
        known = sizes[id(value)] = 1 + sum(_size(part, sizes) for part in parts)
    return known
