"""Every answer that a test is given is what the schema says of it."""

from __future__ import annotations

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import ValidationError

from tuner_service.api.described.operations import OPERATIONS, Answer
from tuner_service.api.described.parts import Problem

HOW_TO_MEND = (
    "say what it answers: a line in OPERATIONS (tuner_service/api/described/operations.py), and the model of its "
    "answer in the file of tuner_service/api/described/ that it belongs to; then write tests/approved/openapi.json "
    "anew with `make openapi`"
)


def check_as_described(app: FastAPI, method: str, answer: httpx.Response) -> None:
    """AssertionError with what to change, where code and description differ."""
    if answer.headers.get("content-type", "").startswith("application/problem+json"):
        if method == "HEAD":
            return
        Problem.model_validate_json(answer.content)
        return
    route = _route_of(app, "GET" if method == "HEAD" else method, answer.request.url.path)
    if route is None or answer.status_code == 499:  # nobody reads that one
        return
    described = OPERATIONS.get(route.name)
    assert described is not None, f"{method} {route.path} ({route.name}) is not described: {HOW_TO_MEND}"
    found = described.answers.get(answer.status_code)
    assert found is not None, f"{route.name} answers {answer.status_code}, of which its description says nothing"
    _check(route.name, found, answer, has_body=method != "HEAD")


def _check(name: str, described: Answer, answer: httpx.Response, *, has_body: bool) -> None:
    kind = answer.headers.get("content-type", "").partition(";")[0]
    for header in described.headers:
        assert header in answer.headers, f"{name} is described as sending {header}"
    if described.media:
        assert kind in described.media, f"{name} answers {kind}, of which its description says nothing"
    elif described.model is None:
        assert not answer.content, f"{name} is described as sending nothing, and sent {answer.content[:100]!r}"
    elif has_body:
        try:
            described.model.model_validate_json(answer.content)
        except ValidationError as exc:
            raise AssertionError(f"{name} answers another object than {described.model.__name__}: {exc}") from exc


def _route_of(app: FastAPI, method: str, path: str) -> APIRoute | None:
    for route in app.state.routes:
        if method in route.methods and route.path_regex.match(path) and route.include_in_schema:
            assert isinstance(route, APIRoute)
            return route
    return None
