"""What Prometheus reads: parsed by its own parser, open to whoever may read, bounded whatever clients send."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from anyio.to_thread import current_default_thread_limiter, run_sync
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from tests.api_service import AGENT_TOKEN, READ_ONLY_TOKEN, ApiService, a_body, an_api_service
from trials.wire.devices import NodeDevice
from tuner_service.api.app import ROUTERS
from tuner_service.api.measured import METHODS, OTHER, PAGE, MeasuredRequests
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.measures import RequestMeasures

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;"
    "version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
Labels = frozenset[tuple[str, str]]


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def samples(api: ApiService) -> dict[tuple[str, Labels], float]:
    text = api.client.get("/metrics").text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in plain(text)
        for sample in family.samples
    }


def value(api: ApiService, name: str, **labels: str) -> float | None:
    return samples(api).get((name, frozenset(labels.items())))


def by(api: ApiService, name: str, label: str) -> dict[str, float]:
    return {dict(labels)[label]: found for (its, labels), found in samples(api).items() if its == name}


# ── formats ─────────────────────────────────────────────────────────────────────────────────────
def test_every_family_has_a_type_and_a_sentence(api: ApiService) -> None:
    families = {family.name: family for family in plain(api.client.get("/metrics").text)}

    own = {name: family for name, family in families.items() if name.startswith("tuner_")}
    assert len(own) > 12
    for name, family in own.items():
        assert family.type in {"gauge", "counter", "histogram"}, name
        assert family.documentation.endswith("."), name
    assert "process_resident_memory_bytes" in families


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("text/plain", "text/plain; version=0.0.4"),
        (PROMETHEUS_3, "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0"),
        ("text/html, application/json", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_one_that_the_reader_takes(api: ApiService, accept: str, expected: str) -> None:
    api.create()
    answer = api.client.get("/metrics", headers={"accept": accept})

    assert answer.headers["content-type"].startswith(expected)
    parse = openmetrics if "openmetrics" in expected else plain
    assert "tuner_trials" in {family.name for family in parse(answer.text)}


@pytest.mark.parametrize(
    "accept",
    [
        "text/plain;version=x",
        "text/plain;version=1..0",
        "application/openmetrics-text;version=9.9.9\u00e9",
        "application/openmetrics-text;version=" + "9" * 5_000,
        "application/openmetrics-text;version=1.0.0;escaping=" + "x" * 500,
        ",;,=;",
    ],
)
def test_whatever_a_reader_asks_for_it_is_answered_in_the_plain_format(api: ApiService, accept: str) -> None:
    answer = api.client.get("/metrics", headers={"accept": accept.encode("latin-1")})

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_head_is_answered_without_the_text(api: ApiService) -> None:
    head = api.client.request("HEAD", "/metrics")

    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/plain")


def test_two_services_of_one_process_count_for_themselves(api: ApiService) -> None:
    api.create()
    other = an_api_service()

    assert value(api, "tuner_experiments", status="running") == 1
    assert value(other, "tuner_experiments", status="running") == 0


# ── the page ────────────────────────────────────────────────────────────────────────────────────
PAGE_TEXT = (Path(__file__).resolve().parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")


def test_the_page_names_every_measure_with_its_labels_and_no_other(api: ApiService) -> None:
    api.client.get("/version")
    found: dict[str, set[str]] = {}
    for family in plain(api.client.get("/metrics").text):
        if family.name.startswith("tuner_"):
            name = family.name + ("_total" if family.type == "counter" else "")
            found[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    documented = {
        name: set(labels.split(",")) - {""}
        for row in PAGE_TEXT.splitlines()
        if row.startswith("| `tuner_")
        for name, labels in re.findall(r"`(tuner_[a-z_]+)(?:\{([a-z,]+)\})?`", row.split("|")[1])
    }

    assert documented == found


def test_the_rules_of_the_page_ask_for_measures_and_labels_that_there_are(api: ApiService) -> None:
    (text,) = re.findall(r"```yaml\n# tuner-rules.yml\n(.*?)```", PAGE_TEXT, re.DOTALL)
    api.client.get("/version")
    known = samples(api)
    names = {name for name, _ in known}
    pairs = {(name, label) for name, labels in known for label, _ in labels}
    (group,) = yaml.safe_load(text)["groups"]

    assert len(group["rules"]) > 5
    for rule in group["rules"]:
        assert rule["annotations"]["summary"], rule
        used = re.findall(r"(tuner_[a-z_]+)(?:\{([a-z_]+)=)?", rule["expr"])
        assert used or "up{" in rule["expr"]
        for name, label in used:
            assert name in names, rule
            assert not label or (name, label) in pairs, rule


# ── access ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("token", "status"), [(None, 401), ("wrong", 401), (AGENT_TOKEN, 403), (READ_ONLY_TOKEN, 200)])
def test_it_is_read_as_everything_else_is(api: ApiService, token: str | None, status: int) -> None:
    for method in ("GET", "HEAD"):
        assert api.as_role(token).request(method, "/metrics").status_code == status


# ── what is said ────────────────────────────────────────────────────────────────────────────────
def test_every_status_is_there_before_anything_has_it(api: ApiService) -> None:
    assert by(api, "tuner_trials", "status") == {status.value: 0 for status in TrialStatus}
    assert by(api, "tuner_experiments", "status") == {status.value: 0 for status in ExperimentStatus}
    assert by(api, "tuner_queue_lines", "queue") == {"tuner": 0, "assessor": 0}


def test_experiments_and_trials_are_counted_by_status(api: ApiService) -> None:
    first = api.create(a_body(budget={"trials": 4, "parallel": 2}))
    api.create()
    api.client.post(f"/api/v1/experiments/{first}/trials", json={"parameters": {"lr": 0.01}})
    api.client.post(f"/api/v1/experiments/{first}/pause")

    assert by(api, "tuner_experiments", "status") | {"paused": 1.0, "running": 1.0} == by(
        api, "tuner_experiments", "status"
    )
    assert value(api, "tuner_trials", status="waiting") == 1
    assert (value(api, "tuner_queue_lines", queue="tuner") or 0) > 0


def test_devices_are_counted_by_state(api: ApiService) -> None:
    def device(name: str, **overrides: Any) -> NodeDevice:
        return NodeDevice(**({"uuid": name, "name": "GPU", "memory_bytes": 1, "occupied": False} | overrides))

    held, named = device("h"), [device("f"), device("o", occupied=True), device("l", lost="fell off the bus")]
    api.hub.node_devices = {"a": (held, *named), "b": (device("h"),)}
    api.runner._dispatcher.state.ledger.shares[("a", "h")] = 1

    assert by(api, "tuner_devices", "state") == {"free": 2, "held": 1, "occupied": 1, "lost": 1}


def test_a_part_in_trouble_is_said_and_what_nobody_knows_is_left_out(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.runner.trouble["database"] = "the disk is full"
    monkeypatch.setattr(api.runner, "totals", lambda: None)

    assert value(api, "tuner_part_ready", part="database") == 0
    assert value(api, "tuner_warning", about="certificate") == 0
    api.warnings["certificate"] = "it ends in 9 days"
    assert value(api, "tuner_warning", about="certificate") == 1
    assert value(api, "tuner_warning", about="database") == 0
    assert by(api, "tuner_trials", "status") == {}
    assert "the disk is full" not in api.client.get("/metrics").text


def test_the_size_of_the_database_is_that_of_its_files(tmp_path: Path) -> None:
    file = tmp_path / "tuner.db"
    api = an_api_service(db=f"sqlite:///{file}")
    assert by(api, "tuner_database_bytes", "file") == {"database": 0, "log": 0}
    file.write_bytes(b"x" * 1_000)
    Path(f"{file}-wal").write_bytes(b"x" * 10)

    assert by(api, "tuner_database_bytes", "file") == {"database": 1_000, "log": 10}
    assert "tuner_database_bytes" not in an_api_service(db="postgresql://host/tuner").client.get("/metrics").text


def test_nothing_that_somebody_chose_stands_in_the_text(api: ApiService) -> None:
    experiment_id = api.create(a_body(name='a-hostile"} 1.0', tags=["a-tag"]))
    for path in (f"/api/v1/experiments/{experiment_id}", f"/api/v1/trials/{experiment_id}/1", "/a-path"):
        api.client.get(path)

    text = api.client.get("/metrics").text
    for chosen in (experiment_id, "a-hostile", "a-tag", "a-path"):
        assert chosen not in text


# ── requests ────────────────────────────────────────────────────────────────────────────────────
def test_requests_are_counted_by_the_template_of_their_route(api: ApiService) -> None:
    experiment_id = api.create()
    for path in (f"/api/v1/experiments/{experiment_id}", "/api/v1/experiments/none"):
        api.client.get(path)
    for _ in range(3):  # the second and the third are answered from the cache
        api.client.get(f"/api/v1/experiments/{experiment_id}/journal")
    api.client.request("HEAD", "/version")
    api.as_role(None).get("/api/v1/agents")
    api.client.get("/healthz", headers={"host": "evil.example"})
    api.client.get("/login")

    def count(method: str, route: str, status: str) -> float | None:
        return value(api, "tuner_http_requests_total", method=method, route=route, status=status)

    one = "/api/v1/experiments/{experiment_id}"
    assert (count("POST", "/api/v1/experiments", "2xx"), count("GET", one, "2xx"), count("GET", one, "4xx")) == (
        1,
        1,
        1,
    )
    assert count("GET", f"{one}/journal", "2xx") == 3
    assert count("HEAD", "/version", "2xx") == 1
    assert count("GET", "/api/v1/agents", "4xx") == 1
    assert count("GET", OTHER, "4xx") == 1
    assert sum(found for (name, labels), found in samples(api).items() if dict(labels).get("route") == PAGE) >= 1
    found = value(api, "tuner_http_request_duration_seconds_count", method="GET", route=f"{one}/journal")
    assert found == 3


def test_a_mistake_of_ours_is_counted_as_one(api: ApiService) -> None:
    def broken() -> str:
        raise RuntimeError("secret")

    api.services.experiments.new_id = broken
    api.client.post("/api/v1/experiments", json=a_body())

    assert value(api, "tuner_http_requests_total", method="POST", route="/api/v1/experiments", status="5xx") == 1


def hostile() -> Mapping[str, str]:
    words = ["%00", "%0a", "..%2f", '"', "{number}", "é", "x" * 200, "\\", "a b", "1e309"]
    paths = [
        f"{start}{word}{place}" for start in ("/", "/api/v1/experiments/") for word in words for place in range(20)
    ]
    return dict.fromkeys(paths, "GET") | {f"/api/v1/trials/e/{number}": f"METHOD{number}" for number in range(50)}


def test_no_path_and_no_method_that_is_sent_makes_a_series_of_its_own(api: ApiService) -> None:
    for path, method in hostile().items():
        api.client.request(method, path)

    known = {route.path for router in ROUTERS for route in router.routes} | {OTHER, PAGE}
    seen = {dict(labels)["route"] for name, labels in samples(api) if name == "tuner_http_requests_total"}
    methods = {dict(labels)["method"] for name, labels in samples(api) if name == "tuner_http_requests_total"}
    assert seen <= known
    assert methods <= METHODS | {OTHER}
    assert len(samples(api)) < 400


def test_a_request_is_timed_until_its_answer_begins_and_counted_once() -> None:
    measures, times = RequestMeasures(), iter([10.0, 12.5])

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        raise ConnectionResetError

    async def nowhere(*_: Any) -> None:
        return None

    measured = MeasuredRequests(application, measures, elapsed=lambda: next(times))
    with pytest.raises(ConnectionResetError):
        asyncio.run(measured({"type": "http", "method": "GET", "path": "/"}, nowhere, nowhere))

    assert [(request.status, count) for request, count in measures.answered.items()] == [("2xx", 1)]
    assert [histogram.total for histogram in measures.durations.values()] == [2.5]


def test_a_scrape_is_answered_while_every_thread_for_reads_is_held(api: ApiService) -> None:
    held = threading.Event()

    async def scrape() -> int:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        current_default_thread_limiter().total_tokens = 1
        holding = [asyncio.create_task(asyncio.to_thread(held.wait)), asyncio.create_task(run_sync(held.wait))]
        answer = await asyncio.wait_for(api.client.ask("GET", "/metrics"), 10)
        held.set()
        await asyncio.gather(*holding)
        return answer.status_code

    assert asyncio.run(scrape()) == 200
