"""YAML by the core schema of version 1.2: ``1e-4`` is a number, ``on`` is text, a key stands once.

PyYAML's own rules are those of 1.1, under which ``low: 1e-4`` would be text and ``choices: [on, off]`` booleans.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

YamlError = yaml.YAMLError
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class CoreLoader(Loader):  # type: ignore[misc]  # the fast loader where libyaml is there, else the slow one
    """Reads the core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's convention


CoreLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)
CoreLoader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<$"), ["<"])


def _integer(loader: Any, node: Any) -> int:
    text = str(loader.construct_scalar(node))
    if text.startswith("0x"):
        return int(text, 16)
    return int(text[2:], 8) if text.startswith("0o") else int(text)


def _real(loader: Any, node: Any) -> float:
    return float(str(loader.construct_scalar(node)).lower().replace(".inf", "inf").replace(".nan", "nan"))


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:
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


CoreLoader.add_constructor("tag:yaml.org,2002:int", _integer)
CoreLoader.add_constructor("tag:yaml.org,2002:float", _real)
CoreLoader.add_constructor("tag:yaml.org,2002:map", _mapping)


def load_yaml(text: str) -> Any:
    """YamlError says where ``text`` is wrong."""
    return yaml.load(text, Loader=CoreLoader)  # noqa: S506  # CoreLoader derives from the safe loader
