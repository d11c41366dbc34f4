"""What routes declare: the bodies they take, and the reads that may share an answer."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from tuner_service.api.app import ROUTERS
from tuner_service.api.bodies.reading import body_of
from tuner_service.api.cached_reads import LONGEST_PATH, CachedReads, cached_read

ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
TAKE_BODIES = {"POST", "PUT", "PATCH"}


def test_the_body_that_a_handler_reads_is_the_one_that_its_route_declares() -> None:
    checked = 0
    for route in ROUTES:
        if not TAKE_BODIES & set(route.methods or ()):
            assert body_of(route.endpoint) is None, route.path
            continue
        declared = body_of(route.endpoint)
        read = re.findall(r"read_as\(request, (\w+)(, optional=True)?", inspect.getsource(route.endpoint))
        checked += len(read)
        for model, optional in read:
            if model != "NothingBody":  # a verb without arguments, of which the schema says nothing
                assert declared is not None, route.path
                assert declared.model is not None, route.path
                assert (declared.model.__name__, declared.optional) == (model, bool(optional)), route.path
        assert read or declared is not None, f"{route.path} declares no body: name it with takes_body"
    assert checked > 5


def test_a_read_is_found_by_its_path_and_no_other_path_is() -> None:
    reads = CachedReads(ROUTERS)

    assert reads.find("/api/v1/experiments/e/journal") is not None
    for path in ("/api/v1/experiments/e/export", "/api/v1/experiments/e/trials\n", "/healthz", "/api/v1/experiments/"):
        assert reads.find(path) is None, path


def test_long_paths_are_neither_found_nor_remembered() -> None:
    experiments = "/api/v1/experiments/"

    assert CachedReads(ROUTERS).find(experiments + "x" * (LONGEST_PATH - len(experiments) + 1)) is None


def test_every_valid_path_of_a_declared_read_is_short_enough_to_be_found() -> None:
    reads = CachedReads(ROUTERS)
    declared = [route for route in ROUTES if hasattr(route.endpoint, "cached_read")]

    assert len(declared) > 5
    for route in declared:
        path = route.path.replace("{experiment_id}", "x" * 64).replace("{number}", "2147483647")
        found = reads.find(path)
        assert found is not None, path
        assert found.arguments is not None, path


def test_a_read_that_cannot_be_called_without_a_query_is_refused_when_the_application_is_made() -> None:
    router = APIRouter()

    @router.get("/of/{number}")
    @cached_read()
    def read(number: int, wanted: str) -> Any:
        return number, wanted

    with pytest.raises(TypeError, match="'wanted' has no default"):
        CachedReads([router])
