"""Reading a request's body: JSON only, bounded in size and depth, every fault with its pointer."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from tuner_service.api.bodies.strict_json import MAX_SHOWN, parse_json, shown
from tuner_service.domain.errors import Fault, InputError, LimitExceededError

MAX_PLAIN_BODY_BYTES = 8 << 20  # of a request that brings no code; beyond: 413
SMALL_BODY_BYTES = 16 << 10  # looked at at once; a larger one by a thread, so that others are answered meanwhile
LARGE_BODIES = 2  # or slow ones, looked at at a time; the other threads go on reading

Model = TypeVar("Model", bound=BaseModel)
Handler = TypeVar("Handler", bound=Callable[..., Any])
T = TypeVar("T")
_MARK = "declared_body"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredBody:
    """What the OpenAPI schema says of a route's body. ``optional``: an empty one is taken as {}.

    ``model`` None: it is bytes, and no JSON.
    """

    model: type[BaseModel] | None
    optional: bool


def takes_body(model: type[BaseModel], *, optional: bool = False) -> Callable[[Handler], Handler]:
    """Declares, between a route and its handler, the body that the handler reads.

    Handlers read their bodies themselves and not by FastAPI, so that every mistake is told at once.
    """

    def declare(handler: Handler) -> Handler:
        setattr(handler, _MARK, DeclaredBody(model=model, optional=optional))
        return handler

    return declare


def takes_bytes(handler: Handler) -> Handler:
    """As ``takes_body``, of a handler that reads bytes (`application/octet-stream`)."""
    setattr(handler, _MARK, DeclaredBody(model=None, optional=False))
    return handler


def body_of(handler: Callable[..., Any]) -> DeclaredBody | None:
    declared: DeclaredBody | None = getattr(handler, _MARK, None)
    return declared


class LargeBodies:
    """Its turn for each body that is large, or slow to look at."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(LARGE_BODIES)

    async def run(self, work: Callable[[], T]) -> T:
        async with self._turns:
            return await asyncio.to_thread(work)


async def read_body(
    request: Request,
    make: Callable[[Any], T],
    *,
    optional: bool = False,
    most: int = MAX_PLAIN_BODY_BYTES,
    is_slow: bool = False,
) -> T:
    """What ``make`` makes of the body's value, which is {} for an ``optional`` body that is empty.

    It runs in another thread where the body is large, or where it ``is_slow`` whatever the body.
    """
    data = await _read(request, most)
    large_bodies: LargeBodies = request.app.state.large_bodies
    if optional and not data:
        return await large_bodies.run(lambda: make({})) if is_slow else make({})
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise HTTPException(
            415, f"send JSON with Content-Type: application/json, not {content_type or 'nothing'!r:.60}"
        )
    if is_slow or len(data) > SMALL_BODY_BYTES:
        return await large_bodies.run(lambda: make(parse_json(data)))
    return make(parse_json(data))


async def read_as(request: Request, model: type[Model], *, optional: bool = False) -> Model:
    """The body as ``model``; InputError with every fault."""
    return await read_body(request, lambda value: parse(model, value), optional=optional)


async def _read(request: Request, most: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise LimitExceededError(f"the body is larger than {most} bytes, the most that is taken here")
        chunks.append(chunk)
    return b"".join(chunks)


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
    near = difflib.get_close_matches(name[:MAX_SHOWN], names, n=1)
    return (
        f"no such field; did you mean {near[0]!r}?" if near else f"no such field; known: {', '.join(names) or 'none'}"
    )


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
