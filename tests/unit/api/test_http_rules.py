"""What HTTP promises of every route: HEAD, Allow, If-Match, parameters, cursors."""

from __future__ import annotations

import base64
import re
from collections import Counter
from dataclasses import replace

import pytest

from tests.api_service import ApiService, a_body, an_api_service
from tests.unit.api.test_api_access import routes

EXPERIMENTS = "/api/v1/experiments"


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


# ── methods ─────────────────────────────────────────────────────────────────────────────────────
def test_head_answers_as_get_does_without_a_body(api: ApiService) -> None:
    experiment_id = api.create()
    of_it = [f"{EXPERIMENTS}/{experiment_id}{rest}" for rest in ("", "/trials", "/search-space")]
    for path in ["/healthz", "/docs", EXPERIMENTS, f"{EXPERIMENTS}/none", *of_it]:
        got, head = api.client.get(path), api.client.request("HEAD", path)
        assert head.status_code == got.status_code
        assert head.headers == got.headers
        assert head.content == b""


def test_head_is_taken_wherever_get_is(api: ApiService) -> None:
    experiment_id = api.create()
    filled = [(method, re.sub(r"/e(?=/|\?|$)", f"/{experiment_id}", path)) for method, path in routes(api)]
    reads = [path for method, path in filled if method == "GET"]
    assert {"/metrics", "/api/v1/sessions"} < set(reads)
    statuses: Counter[int] = Counter()
    for path in reads:
        got, head = api.client.get(path), api.client.request("HEAD", path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        statuses[got.status_code] += 1
        assert head.headers.get("content-type") == got.headers.get("content-type"), path
    assert statuses[200] > len(reads) / 2, statuses


def test_head_of_an_export_has_its_headers_and_nothing_else(api: ApiService) -> None:
    head = api.client.request("HEAD", f"{EXPERIMENTS}/{api.create()}/export")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/csv")


def test_head_needs_the_token_that_get_needs(api: ApiService) -> None:
    assert api.as_role(None).request("HEAD", EXPERIMENTS).status_code == 401
    assert api.as_role("read-only-token").request("HEAD", EXPERIMENTS).status_code == 200
    assert api.as_role("agent-token").request("HEAD", EXPERIMENTS).status_code == 403


def test_allow_names_every_method_of_a_path(api: ApiService) -> None:
    methods: dict[str, set[str]] = {}
    for method, path in routes(api):
        methods.setdefault(path.partition("?")[0], set()).add(method)
    for path, known in methods.items():  # `missing` is a path of its own below `assets`, and no asset of this name
        answer = api.client.request("TRACE", path)
        expected = known | {"HEAD"} if "GET" in known else known
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == expected, path


# ── what changed since ──────────────────────────────────────────────────────────────────────────
def test_an_experiment_that_has_changed_since_it_was_read_is_not_deleted(api: ApiService) -> None:
    path = f"{EXPERIMENTS}/{api.create()}"
    api.client.post(f"{path}/stop")
    tag = api.client.get(path).headers["etag"]
    api.client.request("PATCH", path, json={"note": "keep it"})

    assert api.client.delete(path, headers={"If-Match": tag}).status_code == 412
    now = api.client.get(path).headers["etag"]
    assert api.client.delete(path, headers={"If-Match": f'W/"x", {now}'}).status_code == 204


def test_a_search_space_that_has_changed_since_it_was_read_is_not_replaced(api: ApiService) -> None:
    path = f"{EXPERIMENTS}/{api.create()}/search-space"
    read = api.client.get(path)
    first, second = ({"search_space": {"lr": {"_type": "uniform", "_value": [0, high]}}} for high in (1, 2))

    assert api.client.get(path, headers={"If-None-Match": read.headers["etag"]}).status_code == 304
    changed = api.client.request("PUT", path, json=first, headers={"If-Match": read.headers["etag"]})
    assert changed.status_code == 200
    assert api.client.request("PUT", path, json=second, headers={"If-Match": read.headers["etag"]}).status_code == 412
    assert (
        api.client.request("PUT", path, json=second, headers={"If-Match": changed.headers["etag"]}).status_code == 200
    )


def test_a_quota_group_that_has_changed_since_it_was_read_is_neither_changed_nor_deleted(api: ApiService) -> None:
    path = "/api/v1/quota-groups/vision"
    assert api.client.request("PUT", path, json={"gpus": 1}).status_code == 201
    tag = api.client.get(path).headers["etag"]
    assert api.client.request("PUT", path, json={"gpus": 2}, headers={"If-Match": tag}).status_code == 200

    assert api.client.request("PUT", path, json={"gpus": 3}, headers={"If-Match": tag}).status_code == 412
    assert api.client.delete(path, headers={"If-Match": tag}).status_code == 412
    assert api.client.delete(path, headers={"If-Match": "*"}).status_code == 204
    assert api.client.delete(path, headers={"If-Match": "*"}).status_code == 404


# ── parameters ──────────────────────────────────────────────────────────────────────────────────
def test_a_query_parameter_that_a_route_does_not_have_is_refused_and_its_own_are_named(api: ApiService) -> None:
    path = f"{EXPERIMENTS}/{api.create()}/trials"
    answer = api.client.get(f"{path}?state=failed&limit=3&x=1")

    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/query/state", "/query/x"]
    assert "known: cursor, limit, metrics, status" in answer.json()["errors"][0]["detail"]
    assert api.client.get(f"{path}?limit=3&status=failed&status=running").status_code == 200


def test_every_route_refuses_a_query_parameter_that_it_does_not_have(api: ApiService) -> None:
    for method, path in routes(api):
        answer = api.client.request(method, f"{path}{'&' if '?' in path else '?'}nonsense=1", json={})
        assert answer.status_code == 422, (method, path)
        assert answer.json()["errors"][0]["pointer"] == "/query/nonsense"


def test_a_name_that_is_null_is_refused(api: ApiService) -> None:
    path = f"{EXPERIMENTS}/{api.create()}"
    for answer in (
        api.client.request("PATCH", path, json={"name": None}),
        api.client.post(f"{path}/clone", json={"name": None}),
    ):
        assert answer.status_code == 422
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/name"]


# ── cursors ─────────────────────────────────────────────────────────────────────────────────────
def test_pages_go_on_where_the_experiment_that_ended_the_last_one_was_deleted(api: ApiService) -> None:
    made = [api.create(a_body(name=f"e{number}")) for number in range(5)]
    for place, experiment_id in enumerate(made):
        rows = api.store.queries._rows[experiment_id]  # every experiment of these tests is made at one moment
        rows.experiment = replace(rows.experiment, created_at=float(place))
    first = api.client.get(f"{EXPERIMENTS}?limit=2").json()
    last = first["items"][-1]["id"]
    api.client.post(f"{EXPERIMENTS}/{last}/stop")
    assert api.client.delete(f"{EXPERIMENTS}/{last}").status_code == 204

    second = api.client.get(f"{EXPERIMENTS}?limit=10&cursor={first['next']}").json()

    assert [item["id"] for item in first["items"] + second["items"]] == made[::-1]


@pytest.mark.parametrize("text", ["nan e", "inf e", "1.0", "1.0 ", " e", "x e"])
def test_a_cursor_that_no_page_gave_is_refused(api: ApiService, text: str) -> None:
    cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    assert api.client.get(f"{EXPERIMENTS}?cursor={cursor}").status_code == 422
