"""The OpenAPI schema: what FastAPI derives from the routes, what handlers do by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from tuner_service.api.auth import OPEN_PATHS
from tuner_service.api.bodies.reading import DeclaredBody, body_of

PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "allowed": {"type": "array", "items": {"type": "string"}},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
            },
        },
    },
}
_PROBLEM_RESPONSE = {
    "description": "What went wrong",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def describe(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """``routers`` are all that ``app`` includes. The schema is made when it is asked for."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(generate(), routers)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to extend the schema


def _completed(schema: dict[str, Any], routers: Sequence[APIRouter]) -> dict[str, Any]:
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    for route in routes:
        declared = body_of(route.endpoint)
        if declared is not None:
            content = _content_of(declared, schemas)
            for method in route.methods or ():
                schema["paths"][route.path][method.lower()]["requestBody"] = {
                    "content": content,
                    "required": not declared.optional,
                }
    schemas["Problem"] = PROBLEM_SCHEMA
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}]
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            if path in OPEN_PATHS:
                operation["security"] = []
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = _PROBLEM_RESPONSE
    return schema


def _content_of(declared: DeclaredBody, schemas: dict[str, Any]) -> dict[str, Any]:
    """By media type; what the body's model refers to is added to ``schemas``."""
    if declared.model is None:
        return {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    body = declared.model.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(body.pop("$defs", {}))
    return {"application/json": {"schema": body}}
