"""The OpenAPI schema: what FastAPI derives from the routes, the bodies that handlers read, the answers they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from tuner_service.api.auth import OPEN_PATHS, ROLES, Access, access_of
from tuner_service.api.bodies.reading import body_of
from tuner_service.api.errors import PROBLEM_TYPE, kind_of, title_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from tuner_service.api.described.operations import Answer, Operation

_REF = "#/components/schemas/{model}"
_PROBLEM: dict[str, Any] = {"$ref": _REF.format(model="Problem")}
_UNUSED = ("HTTPValidationError", "ValidationError")  # FastAPI's own answer to bad input, which is never given


def describe(app: FastAPI, routers: Sequence[APIRouter], made: dict[str, dict[str, Any]]) -> None:
    """``routers`` are all that ``app`` includes. The schema is made when it is asked for.

    ``made``: by version, those that applications like this one have made, to which its own is added.
    """
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            if app.version not in made:
                made[app.version] = _completed(generate(), routers)
            app.openapi_schema = made[app.version]
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to extend the schema


def _completed(schema: dict[str, Any], routers: Sequence[APIRouter]) -> dict[str, Any]:
    # Imported now: the models of all answers cost more to build than the rest of the application.
    from tuner_service.api.described.operations import OPERATIONS

    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(_models(OPERATIONS))
    for name in _UNUSED:
        schemas.pop(name, None)
    for route, method, operation in _operations(schema, routers):
        described = OPERATIONS.get(route.name)
        _describe_body(route, operation, schemas, None if described is None else described.body)
        access = access_of(route.endpoint, method)
        operation["x-access"] = access.value
        if access is Access.ANYBODY:
            operation["security"] = []
        if described is not None:
            operation["responses"] = {
                str(status): _response(route.name, answer, schemas) for status, answer in described.answers.items()
            }
        operation["responses"].pop("422", None)
        for status in _refusals(route, method):
            operation["responses"].setdefault(str(status), _problem(status))
        operation["responses"]["default"] = _problem(None)
    schema["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": "tuner_session_LINEAGE"},
    }
    # Who is meant by the `x-access` of an operation.
    schema["x-roles"] = {access.value: sorted(role.value for role in roles) for access, roles in ROLES.items()}
    schema["security"] = [{"token": []}, {"session": []}]
    return schema


def _operations(
    schema: Mapping[str, Any], routers: Sequence[APIRouter]
) -> Iterator[tuple[APIRoute, str, dict[str, Any]]]:
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                for method in sorted(route.methods or ()):
                    yield route, method, schema["paths"][route.path_format][method.lower()]


def _describe_body(route: APIRoute, operation: dict[str, Any], schemas: dict[str, Any], example: Any) -> None:
    declared = body_of(route.endpoint)
    if declared is None:
        return
    if declared.model is None:
        octets = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"content": {"application/octet-stream": octets}, "required": True}
        return
    body = declared.model.model_json_schema(ref_template=_REF)
    schemas.update(body.pop("$defs", {}))
    schemas[declared.model.__name__] = body
    content: dict[str, Any] = {"schema": {"$ref": _REF.format(model=declared.model.__name__)}}
    if example is not None:
        content["example"] = example
    operation["requestBody"] = {"content": {"application/json": content}, "required": not declared.optional}


# ── answers ─────────────────────────────────────────────────────────────────────────────────────
def _models(operations: Mapping[str, Operation]) -> dict[str, Any]:
    """The schemas of all answers, by name."""
    from pydantic.json_schema import models_json_schema

    from tuner_service.api.described.parts import Problem

    answers = [answer for operation in operations.values() for answer in operation.answers.values()]
    models: dict[type[BaseModel], None] = {answer.model: None for answer in answers if answer.model is not None}
    models[Problem] = None
    _, found = models_json_schema([(model, "serialization") for model in models], ref_template=_REF)
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _response(name: str, answer: Answer, schemas: Mapping[str, Any]) -> dict[str, Any]:
    from tuner_service.api.described.examples import example_of
    from tuner_service.api.described.operations import HEADERS

    response: dict[str, Any] = {"description": answer.description}
    if answer.model is not None:
        assert answer.model.__name__ in schemas, name  # noqa: S101  # two models of one name would have longer ones
        response["content"] = {
            "application/json": {
                "schema": {"$ref": _REF.format(model=answer.model.__name__)},
                "example": example_of(answer.model),
            }
        }
    elif answer.media:
        response["content"] = {media: _media(media, example) for media, example in answer.media.items()}
    if answer.headers:
        response["headers"] = {
            header: {"description": HEADERS[header][0], "schema": {"type": "string"}, "example": HEADERS[header][1]}
            for header in answer.headers
        }
    return response


def _media(media: str, example: Any) -> dict[str, Any]:
    if media == "application/json":
        return {"schema": {"type": "array", "items": {"type": "object"}}, "example": example}
    if example is None:
        return {"schema": {"type": "string", "format": "binary"}}
    if media == "text/event-stream":  # of each event: the stream itself has no end
        fields = {name: {"type": "string"} for name in ("id", "event", "data")} | {"retry": {"type": "integer"}}
        return {"schema": {"type": "object", "properties": fields}, "example": example}
    return {"schema": {"type": "string"}, "example": example}


def _refusals(route: APIRoute, method: str) -> list[int]:
    """Statuses of problems that every operation of this form may answer with."""
    found = [] if route.path in OPEN_PATHS else [401, 403]  # signing in is refused, too
    if "{" in route.path:
        found.append(404)
    if method != "GET":
        found += [409, 412, 413]
    if body_of(route.endpoint) is not None:
        found.append(415)
    if route.dependant.query_params or route.dependant.path_params or method != "GET":
        found.append(422)
    return [*found, 503]


def _problem(status: int | None) -> dict[str, Any]:
    title = "What went wrong" if status is None else title_of(status)
    shown = status or 404
    example = {
        "type": f"urn:tuner:problem:{kind_of(shown)}",
        "title": title_of(shown),
        "status": shown,
        "detail": "what, which, and what to do",
    }
    return {"description": title, "content": {PROBLEM_TYPE: {"schema": _PROBLEM, "example": example}}}
