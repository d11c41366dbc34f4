"""What HTTP promises of every route: HEAD, Allow, If-Match, parameters, cursors."""

from __future__ import annotations

import base64
import re
import time
from collections import Counter
from dataclasses import replace

import pytest

from tests.api_service import ADMIN_TOKEN, ApiService, a_body, an_api_service
from tests.asset_trees import a_tree, added
from tests.builders import START, a_metric, a_trial, an_attempt
from tests.unit.api.test_api_access import routes
from tests.unit.api.test_node_routes import a_hello
from tuner_service.api.app import ROUTERS
from tuner_service.api.described.operations import OPERATIONS
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import TrialStatus

EXPERIMENTS = "/api/v1/experiments"


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def test_what_is_derived_from_the_routes_is_derived_once_for_every_application_of_the_process(api: ApiService) -> None:
    of_the_next = [route for route in an_api_service().client.app.routes if route in api.client.app.routes]

    assert len(of_the_next) == len(ROUTERS)
    assert an_api_service().client.app.openapi() is api.client.app.openapi()


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


def test_what_running_trials_report_is_another_answer_and_no_change_of_what_somebody_has_seen(api: ApiService) -> None:
    experiment_id = api.create()
    trial, attempt = a_trial(experiment_id=experiment_id, started_at=START), an_attempt(experiment_id=experiment_id)
    api.store.commit(Changes(trials={(experiment_id, 1): trial}, attempts={attempt.key: attempt}))
    experiment, of_it = f"{EXPERIMENTS}/{experiment_id}", f"/api/v1/trials/{experiment_id}/1"
    seen = {path: {"If-Match": api.client.get(path).headers["etag"]} for path in (experiment, of_it)}

    progress = replace(trial, last_step=1, last_value=0.5, last_metrics={"loss": 0.5}, final={"size": 3.0})
    for reported in (
        Changes(metrics=[a_metric(experiment_id=experiment_id, first=False, at=START + 1)]),
        Changes(trials={(experiment_id, 1): progress}),
    ):
        before = {path: api.client.get(path).headers["etag"] for path in seen}
        api.store.commit(reported)
        for path, tag in before.items():
            assert api.client.get(path, headers={"If-None-Match": tag}).status_code == 200

    api.store.commit(Changes(attempts={attempt.key: replace(attempt, peak_gpu_bytes=7)}))
    # It is asked for, of one that the dispatcher does not know: it is in the database alone.
    assert api.client.post(f"{of_it}/stop", headers=seen[of_it]).status_code in {404, 409}
    changed = [api.client.request("PATCH", experiment, json={"note": "x"}, headers=seen[experiment]) for _ in range(2)]
    assert [answer.status_code for answer in changed] == [200, 412]
    api.store.commit(Changes(trials={(experiment_id, 1): replace(trial, status=TrialStatus.PAUSED)}))
    assert api.client.post(f"{of_it}/stop", headers=seen[of_it]).status_code == 412


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


@pytest.mark.parametrize("name", ["vision", "default"])
def test_a_quota_group_that_is_to_be_made_stays_as_it_is_where_it_is_there(api: ApiService, name: str) -> None:
    path, new = f"/api/v1/quota-groups/{name}", {"If-None-Match": "*"}
    if name != "default":
        assert api.client.request("PUT", path, json={"gpus": 1}, headers=new).status_code == 201
    before = api.client.get(path).json()

    again = api.client.request("PUT", path, json={"gpus": 2}, headers=new)
    assert (again.status_code, again.json()["type"]) == (412, "urn:tuner:problem:precondition-failed")
    assert api.client.get(path).json() == before
    tag = {"If-None-Match": 'W/"1c8a0f"'}
    assert api.client.request("PUT", path, json={"gpus": 2}, headers=tag).status_code == 422


def test_a_quota_group_that_has_changed_since_it_was_read_is_neither_changed_nor_deleted(api: ApiService) -> None:
    path = "/api/v1/quota-groups/vision"
    assert api.client.request("PUT", path, json={"gpus": 1}).status_code == 201
    tag = api.client.get(path).headers["etag"]
    assert api.client.request("PUT", path, json={"gpus": 2}, headers={"If-Match": tag}).status_code == 200

    assert api.client.request("PUT", path, json={"gpus": 3}, headers={"If-Match": tag}).status_code == 412
    assert api.client.delete(path, headers={"If-Match": tag}).status_code == 412
    assert api.client.delete(path, headers={"If-Match": "*"}).status_code == 204
    assert api.client.delete(path, headers={"If-Match": "*"}).status_code == 404


def of_each_kind(api: ApiService) -> dict[str, str]:
    """One of each thing that is changed, by the name that it has in paths."""
    trial = a_trial(experiment_id=api.create())
    api.store.commit(Changes(trials={(trial.experiment_id, 1): trial}))
    assert api.client.request("PUT", "/api/v1/quota-groups/vision", json={"gpus": 1}).status_code == 201
    assert api.client.post("/api/v1/tokens", json={"name": "ann", "role": "operator"}).status_code == 201
    api.hub.hellos = [a_hello("n1")]
    opened = api.services.sessions.open_with_token(ADMIN_TOKEN)
    assert opened is not None
    return {
        "{experiment_id}": trial.experiment_id,
        "{number}": "1",
        "{agent_id}": "n1",
        "{session_id}": opened[1].stored.id,
        "{reference}": added(api, a_tree())["id"],
        "quota-groups/{name}": "quota-groups/vision",
        "tokens/{name}": "tokens/ann",
    }


def test_nothing_is_changed_that_was_seen_as_another_than_it_is(api: ApiService) -> None:
    names, walked = of_each_kind(api), 0
    before = len(api.runner.commands)
    for path, operations in api.client.app.openapi()["paths"].items():
        filled = path
        for name, value in names.items():
            filled = filled.replace(name, value)
        for method, operation in operations.items():
            if not any(parameter["name"] == "if-match" for parameter in operation.get("parameters", ())):
                continue
            body = OPERATIONS[operation["operationId"]].body
            refused = api.client.request(method.upper(), filled, json=body, headers={"If-Match": 'W/"another"'})
            assert refused.status_code == 412, (method, filled, refused.text)
            assert "read it again" in refused.json()["detail"]
            walked += 1
    assert walked > 20
    assert len(api.runner.commands) == before


@pytest.mark.parametrize(
    ("thing", "changed_by"),
    [("tokens/ann", ("POST", "tokens/ann/rotate")), ("agents/n1", None), ("sessions/{session_id}", None)],
)
def test_what_lists_show_is_read_alone_and_changed_as_it_was_seen(
    api: ApiService, thing: str, changed_by: tuple[str, str] | None
) -> None:
    path = "/api/v1/" + thing.replace("{session_id}", of_each_kind(api)["{session_id}"])
    read = api.client.get(path)
    assert read.status_code == 200, read.text
    assert read.json() in api.client.get(path.rpartition("/")[0]).json()["items"]
    tag = read.headers["etag"]
    assert api.client.get(path, headers={"If-None-Match": tag}).status_code == 304
    if changed_by is not None:
        api.clock.at += 1
        answer = api.client.request(changed_by[0], f"/api/v1/{changed_by[1]}", headers={"If-Match": tag})
        assert answer.status_code == 201, answer.text
        assert api.client.delete(path, headers={"If-Match": tag}).status_code == 412
        tag = api.client.get(path).headers["etag"]
    assert api.client.delete(path, headers={"If-Match": tag}).status_code == 204
    assert api.client.get(f"{path}x").status_code == 404


def test_the_use_of_a_token_is_no_change_of_it(api: ApiService) -> None:
    secret = api.client.post("/api/v1/tokens", json={"name": "ann", "role": "operator"}).json()["token"]
    tag = api.client.get("/api/v1/tokens/ann").headers["etag"]
    assert api.as_role(secret).get(EXPERIMENTS).status_code == 200
    used = api.client.get("/api/v1/tokens/ann")
    assert (used.json()["last_used_at"] is not None, used.headers["etag"]) == (True, tag)


@pytest.mark.parametrize(("method", "path"), [("DELETE", "tokens/ann"), ("POST", "tokens/ann/rotate")])
def test_who_has_a_token_that_opens_nothing_any_more_is_sent_away_at_once(
    api: ApiService, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    sent_away: list[str] = []
    monkeypatch.setattr(api.services.events, "end_those_who_may_not", lambda: sent_away.append("streams"))
    monkeypatch.setattr(api.services.hub, "close_those_who_may_not", lambda: sent_away.append("channels"))
    api.client.post("/api/v1/tokens", json={"name": "ann", "role": "operator"})

    assert api.client.request(method, f"/api/v1/{path}").status_code in {201, 204}
    assert sent_away == ["streams", "channels"]


# ── parameters ──────────────────────────────────────────────────────────────────────────────────
def test_a_query_parameter_that_a_route_does_not_have_is_refused_and_its_own_are_named(api: ApiService) -> None:
    path = f"{EXPERIMENTS}/{api.create()}/trials"
    answer = api.client.get(f"{path}?state=failed&limit=3&x=1")

    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/query/state", "/query/x"]
    assert "known: cursor, limit, metrics, status" in answer.json()["errors"][0]["detail"]
    assert api.client.get(f"{path}?limit=3&status=failed&status=running").status_code == 200


def test_a_query_parameter_that_takes_one_value_is_refused_when_it_stands_twice(api: ApiService) -> None:
    answer = api.client.get("/api/v1/experiments?limit=1&limit=2&status=running&status=failed&tag=a&tag=b")

    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"pointer": "/query/limit", "detail": "stands 2 times; it takes one value"}]
    assert api.client.get("/api/v1/experiments?status=running&status=failed&tag=a&tag=b").status_code == 200


@pytest.mark.parametrize("text", ["1_0", "%2B1", "+1", "%201", "1%20", "1.0", "%EF%BC%91", "0x1", "", "1_"])
def test_a_number_of_an_address_stands_in_digits(api: ApiService, text: str) -> None:
    experiment_id = api.create()
    for path, name in (
        (f"{EXPERIMENTS}?limit=", "limit"),
        (f"{EXPERIMENTS}/{experiment_id}/table?digits=", "digits"),
        (f"/api/v1/trials/{experiment_id}/1/logs?rank=", "rank"),
    ):
        answer = api.client.get(path + text)
        assert answer.status_code == 422, path
        assert [error["pointer"] for error in answer.json()["errors"]] == [f"/query/{name}"]
        assert "a whole number in digits, not " in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize("text", ["1_0", "%2B1", "%201", "1.0", "%EF%BC%91"])
@pytest.mark.parametrize("query", ["", "?timeout=1"])  # an address without a query is answered by a way of its own
def test_a_number_of_a_path_stands_in_digits(api: ApiService, text: str, query: str) -> None:
    answer = api.client.get(f"/api/v1/trials/{api.create()}/{text}{query}")

    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"pointer": "/path/number", "detail": "should be a whole number in digits"}]


def test_a_time_of_an_address_may_have_a_fraction_and_an_exponent(api: ApiService) -> None:
    path = f"{EXPERIMENTS}/{api.create()}?wait_for=ended&timeout="

    assert [api.client.get(path + text).status_code for text in ("0", "0.01", ".01", "1e-2", "1_0", "nan")] == [
        200, 200, 200, 200, 422, 422,
    ]  # fmt: skip


@pytest.mark.parametrize("behind", ["x", ".x", "ex"])
def test_a_number_of_very_many_digits_is_looked_at_once(api: ApiService, behind: str) -> None:
    """Every other request waits meanwhile."""
    path = f"{EXPERIMENTS}/{api.create()}?wait_for=ended&timeout="
    begun = time.process_time()
    answer = api.client.get(path + "9" * 30_000 + behind)

    assert answer.status_code == 422
    assert time.process_time() - begun < 2


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

    for listed in (EXPERIMENTS, "/api/v1/assets"):
        assert api.client.get(f"{listed}?cursor={cursor}").status_code == 422


@pytest.mark.parametrize("text", ["9999999999999999999.1", "1.9999999999999999999", "99999999999999999999999999.1"])
def test_a_cursor_of_reports_with_a_number_that_no_database_takes_is_refused(api: ApiService, text: str) -> None:
    trial = a_trial(experiment_id=api.create())
    api.store.commit(Changes(trials={(trial.experiment_id, 1): trial}))
    cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    answer = api.client.get(f"/api/v1/trials/{trial.experiment_id}/1/metrics?cursor={cursor}")
    assert answer.status_code == 422


@pytest.mark.parametrize("path", [EXPERIMENTS, "/api/v1/assets", "/api/v1/trials/{id}/1/metrics", "/api/v1/tokens"])
def test_a_cursor_with_a_nul_is_none(api: ApiService, path: str) -> None:
    """Behind the number of a list it would reach the database, and PostgreSQL takes none."""
    cursor = base64.urlsafe_b64encode(b"1 a\0b").decode().rstrip("=")
    answer = api.client.get(f"{path.format(id=api.create(a_body()))}?cursor={cursor}")
    assert 400 <= answer.status_code < 500
