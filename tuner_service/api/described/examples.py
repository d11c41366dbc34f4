"""Examples of answers, put together from those of their fields."""

from __future__ import annotations

import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    """An object with every field; where several forms are possible, the first that is not null."""
    return {info.alias or name: _of_field(info) for name, info in model.model_fields.items()}


def _of_field(info: FieldInfo) -> Any:
    return info.examples[0] if info.examples else _of_type(info.annotation)


def _of_type(kind: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return _of_type(next(one for one in inner if one is not types.NoneType))
    if origin is Literal:
        return inner[0]
    if origin is list:
        return [_of_type(inner[0])]
    if origin is dict:
        return {"name": _of_type(inner[1])}
    if hasattr(kind, "__metadata__"):
        noted = [one for one in kind.__metadata__ if isinstance(one, FieldInfo) and one.examples]
        return noted[0].examples[0] if noted and noted[0].examples else _of_type(inner[0])
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return example_of(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind)).value
    return {bool: False, int: 1, float: 0.25}.get(kind, "text")
