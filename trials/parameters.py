"""Parameters of a script that runs alone: from its command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def from_arguments(arguments: Sequence[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """``--name=value``, ``--name value``, ``--flag`` and ``name=value`` over ``defaults``; anything else is ignored.

    A value is read as JSON where it is JSON (``0.1``, ``true``, ``[64, 32]``), else as text. ``--learning-rate`` means
    the default ``learning_rate`` where there is one.
    """
    parameters = dict(defaults)
    position = 0
    while position < len(arguments):
        token = arguments[position]
        position += 1
        dashed = token.startswith("-")
        name, equals, text = token.lstrip("-").partition("=")
        if not name or (dashed and _is_number(token)) or not (dashed or equals):
            continue
        if not equals and position < len(arguments) and not _is_option(arguments[position]):
            text = arguments[position]
            position += 1
            equals = "="
        parameters[_known_name(name, defaults)] = _value(text) if equals else True
    return parameters


def _known_name(name: str, defaults: Mapping[str, Any]) -> str:
    underscored = name.replace("-", "_")
    return underscored if name not in defaults and underscored in defaults else name


def _is_option(token: str) -> bool:
    return token.startswith("-") and not _is_number(token)


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
