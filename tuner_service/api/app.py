"""The HTTP application: routes, guards and error answers put together."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI
from pydantic import BaseModel

from tuner_service.api import agents, table
from tuner_service.api.auth import OPEN_PATHS, authorize
from tuner_service.api.bodies.change_bodies import (
    AddTrialBody,
    ChangeBody,
    CloneBody,
    ImportBody,
    RetryBody,
    SearchSpaceBody,
)
from tuner_service.api.bodies.reading import LargeBodies
from tuner_service.api.bodies.schemas import ExperimentBody, ResumeBody
from tuner_service.api.dependencies import refuse_unknown_query
from tuner_service.api.errors import install_error_handlers
from tuner_service.api.guard import Guard, HeadAsGet
from tuner_service.api.kept import KeptAnswers
from tuner_service.api.routes import analyses, devices, experiments, export, live_changes, system, trials
from tuner_service.api.shared_work import SharedWork
from tuner_service.service.experiments import Services

DESCRIPTION = "Start, watch, stop and resume hyperparameter searches. Every error is application/problem+json."
# Handlers read these bodies themselves, to tell every mistake at once; the schema is made when it is asked for.
_EXPERIMENT = "/api/v1/experiments/{experiment_id}"
BODIES: dict[tuple[str, str], type[BaseModel]] = {
    ("/api/v1/experiments", "post"): ExperimentBody,
    (_EXPERIMENT, "patch"): ChangeBody,
    (f"{_EXPERIMENT}/resume", "post"): ResumeBody,
    (f"{_EXPERIMENT}/clone", "post"): CloneBody,
    (f"{_EXPERIMENT}/import", "post"): ImportBody,
    (f"{_EXPERIMENT}/search-space", "put"): SearchSpaceBody,
    (f"{_EXPERIMENT}/trials", "post"): AddTrialBody,
    (f"{_EXPERIMENT}/trials/retry", "post"): RetryBody,
    ("/api/v1/quota-groups/{name}", "put"): devices.QuotaGroupBody,
}
OPTIONAL_BODIES = {
    (f"{_EXPERIMENT}/resume", "post"),
    (f"{_EXPERIMENT}/clone", "post"),
    (f"{_EXPERIMENT}/trials/retry", "post"),
}
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


def create_app(services: Services) -> FastAPI:
    """``services`` must outlive the application; it starts and stops nothing of them."""
    app = FastAPI(
        title="Tuner Service",
        version=services.version,
        description=DESCRIPTION,
        docs_url=None,  # FastAPI's own pages load from elsewhere; /docs is ours and works offline
        redoc_url=None,
        dependencies=[Depends(authorize), Depends(refuse_unknown_query)],
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.large_bodies = LargeBodies()
    app.state.shared_work = SharedWork()
    install_error_handlers(app)
    app.add_middleware(KeptAnswers, queries=services.queries)  # the one added last is asked first
    app.add_middleware(HeadAsGet)
    app.add_middleware(Guard, settings=services.config)
    for module in (analyses, experiments, live_changes, table, export, trials, agents, devices, system):
        app.include_router(module.router)
    app.include_router(live_changes.trial_router)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Adds to the schema what handlers do by hand: bodies, errors, the token."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            components = schema.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            for (path, method), model in BODIES.items():
                body = model.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas.update(body.pop("$defs", {}))
                schema["paths"][path][method]["requestBody"] = {
                    "content": {"application/json": {"schema": body}},
                    "required": (path, method) not in OPTIONAL_BODIES,
                }
            schemas["Problem"] = PROBLEM_SCHEMA
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"token": []}]
            for path, operations in schema["paths"].items():
                for operation in operations.values():
                    if path in OPEN_PATHS:
                        operation["security"] = []
                    operation["responses"].pop("422", None)
                    operation["responses"]["default"] = {
                        "description": "What went wrong",
                        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
                    }
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way to extend the schema
