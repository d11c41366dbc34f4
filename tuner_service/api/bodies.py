"""Reading a request's body: JSON only, bounded in size and depth, every fault with its pointer."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from tuner_service.api.guard import MAX_BODY_BYTES
from tuner_service.domain.errors import Fault, InputError, LimitExceededError

MAX_JSON_DEPTH = 50  # beyond: 422
MAX_SHOWN = 60  # characters of a wrong value that a fault repeats

Model = TypeVar("Model", bound=BaseModel)


async def read_json(request: Request, *, optional: bool = False) -> Any:
    """The body's value; {} for an ``optional`` body that is empty."""
    data = await _read(request)
    if optional and not data:
        return {}
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise HTTPException(415, f"send JSON with Content-Type: application/json, not {content_type or 'nothing'!r}")
    return parse_json(data)


async def _read(request: Request) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise LimitExceededError(f"the body is larger than {MAX_BODY_BYTES} bytes, the most that is taken")
        chunks.append(chunk)
    return b"".join(chunks)


def parse_json(data: bytes) -> Any:
    """Strict JSON: no NaN, no key twice, no NUL or lone surrogate in text, no deeper than MAX_JSON_DEPTH."""
    too_deep = InputError([Fault(pointer="", message=f"the body is nested deeper than {MAX_JSON_DEPTH} levels")])
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_object)
    except UnicodeDecodeError as exc:
        raise InputError([Fault(pointer="", message=f"the body is not UTF-8: {exc.reason} at {exc.start}")]) from exc
    except RecursionError as exc:
        raise too_deep from exc
    except ValueError as exc:
        raise InputError([Fault(pointer="", message=f"the body is not JSON: {exc}")]) from exc
    pending: list[tuple[Any, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_JSON_DEPTH:
            raise too_deep
        if isinstance(item, dict):
            pending += [(part, depth + 1) for part in (*item, *item.values())]
        elif isinstance(item, list):
            pending += [(part, depth + 1) for part in item]
        elif isinstance(item, str):
            _check_text(item)
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {doubled!r} stands twice in one object")
    return value


def _check_text(text: str) -> None:
    if "\0" in text:
        raise InputError([Fault(pointer="", message="the body has text with a NUL character")])
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise InputError([Fault(pointer="", message="the body has text with half a surrogate pair")]) from exc


def validate(model: type[Model], value: Any) -> tuple[Model | None, list[Fault]]:
    """``value`` as ``model``, or None and every fault."""
    try:
        return model.model_validate(value), []
    except ValidationError as exc:
        return None, [_fault(error, model) for error in exc.errors(include_url=False)]


def parse(model: type[Model], value: Any) -> Model:
    """``value`` as ``model``; InputError with every fault."""
    parsed, faults = validate(model, value)
    if parsed is None:
        raise InputError(faults)
    return parsed


def pointer_of(parts: Iterable[Any]) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _fault(error: Any, model: type[BaseModel]) -> Fault:
    location = error["loc"]
    pointer = pointer_of(location)
    match error["type"]:
        case "extra_forbidden":
            return Fault(pointer=pointer, message=unknown_field(str(location[-1]), _fields(model, location[:-1])))
        case "missing":
            return Fault(pointer=pointer, message="is missing")
        case "value_error":
            return Fault(pointer=pointer, message=str(error["ctx"]["error"]))
        case "model_type" | "model_attributes_type":
            return Fault(pointer=pointer, message=f"should be an object, got {shown(error['input'])}")
    message = error["msg"].replace("Input should", "should", 1)
    return Fault(pointer=pointer, message=f"{message}, got {shown(error['input'])}")


def unknown_field(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"no such field; did you mean {near[0]!r}?" if near else f"no such field; known: {', '.join(names)}"


def shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _fields(model: type[BaseModel], location: Iterable[Any]) -> list[str]:
    """The field names of the object at ``location``; array indexes do not change the model."""
    for part in location:
        for name, info in model.model_fields.items():
            if part in {name, info.alias}:
                model = _model_in(info.annotation) or model
                break
    return [info.alias or name for name, info in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        found = _model_in(part)
        if found is not None:
            return found
    return None
