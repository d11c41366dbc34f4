"""Exports that are made as a whole: what is asked of the process, what is refused, and whoever does not wait."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from typing import Any

import pytest
from starlette.requests import Request

from tests.api_service import a_body, an_api_service
from tests.builders import a_metric, a_trial
from tests.contract.stores import changes_for
from tests.memory_store import MemoryStore
from tuner_service.api import made_files
from tuner_service.api.made_files import MadeFiles
from tuner_service.api.routes import export
from tuner_service.domain.errors import NotInstalledError, UnavailableError
from tuner_service.service.export import Export
from tuner_service.service.questions import NotWantedError


class _File(io.BytesIO):
    def fileno(self) -> int:
        raise AssertionError


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """What was to be made; the file itself is made in a process, which tests of this tier do not start."""
    asked: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []

    def make(head: dict[str, Any], rows: Any, check: Any) -> Any:
        asked.append((json.loads(json.dumps(head)), list(rows)))
        return _File(b"a file")

    monkeypatch.setattr(export, "make_apart", make)
    monkeypatch.setattr(export, "size_of", lambda _: 6)
    monkeypatch.setattr(export, "require_library", lambda _: None)
    return asked


SPACE = {
    "lr": {"type": "float", "low": 0.001, "high": 1, "log": True},
    "width": {"type": "int", "low": 4, "high": 64},
    "kind": {"_type": "choice", "_value": ["a", "b"]},
    "noise": {"_type": "normal", "_value": [0, 1]},
    "steps": {"_type": "quniform", "_value": [0, 10, 2]},
    "layer": {
        "_type": "choice",
        "_value": [{"_name": "none"}, {"_name": "conv", "k": {"_type": "choice", "_value": [3]}}],
    },
}


def test_a_study_is_made_of_the_objectives_the_space_and_the_trials(made: list[Any]) -> None:
    api = an_api_service()
    experiment = api.create(a_body(search_space=SPACE, tuner={"name": "random"}, name="digits"))
    answer = api.client.get(f"/api/v1/experiments/{experiment}/export?format=optuna")

    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"a file", "6")
    assert answer.headers["content-disposition"] == f'attachment; filename="{experiment}.log"'
    ((head, rows),) = made
    assert (head["name"], head["id"], rows) == ("digits", experiment, [])
    assert head["ranges"] == {
        "lr": {"low": 0.001, "high": 1, "log": True, "whole": False},
        "width": {"low": 4, "high": 64, "log": False, "whole": True},
        "kind": {"choices": ["a", "b"]},
        "noise": {"whole": False},
        "steps": {"low": 0, "high": 10, "log": False, "whole": False},
    }


@pytest.mark.parametrize(("metrics", "name"), [("false", "{}.parquet"), ("true", "{}-metrics.parquet")])
def test_a_parquet_file_is_made_of_trials_or_of_reports(metrics: str, name: str, made: list[Any]) -> None:
    api = an_api_service()
    experiment = api.create()
    answer = api.client.get(f"/api/v1/experiments/{experiment}/export?format=parquet&metrics={metrics}")

    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    assert name.format(experiment) in answer.headers["content-disposition"]
    assert made == [({"form": "parquet", "metrics": metrics == "true"}, [])]


def test_a_study_has_trials_and_reports_at_once(made: list[Any]) -> None:
    api = an_api_service()
    answer = api.client.get(f"/api/v1/experiments/{api.create()}/export?format=optuna&metrics=true")

    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/metrics")
    assert api.client.get("/api/v1/experiments/nobody/export?format=optuna").status_code == 404
    assert api.client.get(f"/api/v1/experiments/{api.create()}/export?format=xlsx").status_code == 422
    assert made == []


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Any) -> None:
        raise NotInstalledError("pip install 'tuner-service[parquet]'")

    monkeypatch.setattr(export, "require_library", missing)
    api = an_api_service()
    answer = api.client.get(f"/api/v1/experiments/{api.create()}/export?format=parquet")
    assert answer.status_code == 501
    assert "tuner-service[parquet]" in answer.json()["detail"]


def test_each_trial_has_the_reports_of_its_objective_that_algorithms_saw() -> None:
    store = MemoryStore()
    metrics = [
        a_metric(number=1, sequence=1, step=2, values={"loss": 0.5, "size": 1}),
        a_metric(number=1, sequence=2, step=1, values={"loss": 0.75}),
        a_metric(number=1, attempt=2, sequence=1, step=2, values={"loss": 0.1}, first=False),
        a_metric(number=1, attempt=2, sequence=2, step=None, values={"loss": 0.2}),
        a_metric(number=3, sequence=1, step=0, values={"other": 1}),
        a_metric(number=4, sequence=1, step=0, values={"loss": 4}),
    ]
    store.commit(changes_for(*(a_trial(number=n) for n in (1, 2, 3, 4)), metrics=metrics))
    rows = Export(queries=store.queries, experiment_id=a_trial().experiment_id, now=0).trials_with_reports("loss")

    assert [(row["number"], row["reports"]) for row in rows] == [
        (1, [(1, 0.75), (2, 0.5)]), (2, []), (3, []), (4, [(0, 4)]),
    ]  # fmt: skip


# ── whoever waits ───────────────────────────────────────────────────────────────────────────────
def a_request(gone: asyncio.Event) -> Request:
    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "headers": []}, receive)


def test_a_client_that_leaves_ends_the_work_and_the_file_is_closed() -> None:
    async def leave() -> None:
        files, gone = MadeFiles(), asyncio.Event()
        begun, file = threading.Event(), io.BytesIO(b"late")
        loop = asyncio.get_running_loop()

        def work(check: Any) -> Any:
            begun.set()
            loop.call_soon_threadsafe(gone.set)
            while True:
                try:
                    check()
                except NotWantedError:
                    return file

        assert await files.make(a_request(gone), work) is None
        assert begun.is_set()
        while not file.closed:
            await asyncio.sleep(0)

    asyncio.run(leave())


def test_one_file_is_made_at_a_time_and_too_many_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        monkeypatch.setattr(made_files, "WAITING_LIMIT", 3)
        files, gone, go_on = MadeFiles(), asyncio.Event(), threading.Event()
        at_work: list[int] = []
        most: list[int] = []

        def work(_: Any) -> Any:
            at_work.append(1)
            most.append(len(at_work))
            go_on.wait(10)
            at_work.pop()
            return io.BytesIO()

        waiting = [asyncio.create_task(files.make(a_request(gone), work)) for _ in range(3)]
        while not at_work:
            await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="3 exports wait already"):
            await files.make(a_request(gone), work)
        go_on.set()
        assert [file is not None for file in await asyncio.gather(*waiting)] == [True] * 3
        assert max(most) == 1
        assert await files.make(a_request(gone), work) is not None

    asyncio.run(ask())
