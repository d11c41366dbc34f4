"""One wrong value for every field: each has its clear answer, and none changes the database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from tests.api_service import ApiService, a_body, an_api_service
from tuner_service.api.bodies.reading import _model_in
from tuner_service.api.bodies.schemas import ExperimentBody, ResumeBody
from tuner_service.api.guard import MAX_BODY_BYTES

# Pointer → wrong values; every field of the experiment file must stand here.
WRONG: dict[str, list[Any]] = {
    "/name": ["", "a/b", "@last", 7, "x" * 201, "a\nb"],
    "/project": ["", "a/b", 7, "x" * 201],
    "/note": [7, "x" * 10_001],
    "/tags": ["a", [""], [7], ["a", "a"], ["a\nb"], ["x" * 101], [f"t{n}" for n in range(51)]],
    "/seed": ["seven", -1, 2**63, 1.5, True],
    "/objective": [None, "accuracy", [], [{"metric": "a"}, {"metric": "a"}], [{"metric": "a", "goal": "up"}]],
    "/objective/metric": ["", 3, None, "loss\n", "a\x7fb", "\u2028"],
    "/objective/goal": ["max", 1],
    "/objective/optional": ["yes", True],  # of a search
    "/search_space": [[], "lr", {"lr": 5}, {"lr\n": {"type": "bool"}}],
    "/tuner": [7, {}, {"name": "tpe", "class": "a:B"}],
    "/tuner/name": ["tpee", 3],
    "/tuner/class": ["no_colon", 3],
    "/tuner/args": [7, "x"],
    "/assessor": [7, {}],
    "/assessor/name": ["media_stop", 3],
    "/assessor/class": ["x", 1],
    "/assessor/args": [7],
    "/advisor": [7, {}],
    "/advisor/name": ["hyperbrand", 3],
    "/advisor/class": ["x", 1],
    "/advisor/args": [7],
    "/budget": [None, {}, 5],
    "/budget/trials": [0, -1, "many", 1.5, True],
    "/budget/parallel": [0, "two", None],
    "/budget/duration": ["soon", -1, "0s", "10 parsecs", [1], 10**400, "9" * 20_000],
    "/budget/failures": [0, "none"],
    "/trial": [None, {}, "python train.py", {"command": "a", "entry_point": "a:b"}],
    "/trial/code": [".", "/etc", 5, {}, {"files": [], "digest": "x"}, "sha256:abc"],
    "/trial/code_origin": ["main", 5],
    "/trial/code_origin/commit": ["main", "abc", 5],
    "/trial/code_origin/branch": [5, "x" * 1_001],
    "/trial/code_origin/ref": [5, "x" * 1_001],
    "/trial/code_origin/dirty": ["yes", 1],
    "/trial/code_origin/changes": [5, "x" * (1 << 20) + "x", "sha256:" + "0" * 64],
    "/trial/lease": [0, -1, "soon", True, "4000d"],
    "/trial/code_changes": ["forbid", 5, "refuse"],
    "/trial/command": ["", [], "unclosed 'quote", [1], 5, "a" * 100_001, ["a" * 50_001] * 2, ["a"] * 1_001],
    "/trial/define_by_run": ["yes", 1],
    "/trial/entry_point": ["train", "train:", "os;x:y", 4],
    "/trial/arguments": ["--", 5],
    "/trial/arguments/prefix": [5],
    "/trial/arguments/delimiter": [5, "x" * 11],
    "/trial/environment": [
        [],
        {"1A": "x"},
        {"TUNER_HOME": "x"},
        {"TRIAL_PARAM_LR": "1"},
        dict.fromkeys((f"A{n}" for n in range(1_001)), "1"),
    ],
    "/trial/environment/secret": [[], None, True, {}, {"secret": 5}, {"secret": "../token"}, {"secret": "a", "b": 1}],
    "/trial/pass_environment": ["A", ["1A"], ["TUNER_TOKEN"], ["TRIAL_PARAM_X"], [5], ["A"] * 1_001],
    "/trial/python": [5, ""],
    "/trial/metrics_pattern": [
        "(",
        "loss",
        5,
        "(?P<a>b{99999999999999999999})",
        "(" * 900,
        "(?P<a>" + "b" * 1_000 + ")",
    ],
    "/trial/final": ["first", 5],
    "/trial/keep": [5],
    "/trial/keep/last": [0, "two"],
    "/trial/keep/best": [-1, "two"],
    "/trial/resources": [5],
    "/trial/resources/cpus": [-1, "two"],
    "/trial/resources/gpus": [-1, 1.5, 1025, "some", "1", True, [1]],
    "/trial/resources/gpu_memory": ["much", -1, 1.5, "1MB", "8GB"],
    "/trial/resources/labels": [5, ["zone"], {"zone": 5}, {"": "b"}],
    "/trial/resources/memory": ["much", "8 cubits", -1, 1.5, True, "1MB", "9999TB"],
    "/trial/heartbeat": ["often", 0, 10**400],
    "/trial/max_duration": ["long", 0, 10**400],
    "/trial/max_attempts": [0, "three"],
    "/trial/stop_grace": ["long", -1, 10**400],
    "/trial/compat": ["optuna", 5],
    "/trial/datasets": [
        "digits",
        5,
        [],
        {"data": "./data"},
        {"data": "/data"},
        {"data": ""},
        {"data": []},
        {"data": 5},
        {"data": None},
        {"data": ["digits", 5]},
        {"data": {"asset": 5}},
        {"data": {"asset": "a/b"}},
        {"data": {"asset": "a", "x": 1}},
        {"data": {"path": "data", "mode": "reference"}},
        {"data": {"path": "/data", "mode": "copy"}},
        {"data": {"path": ["/a"], "mode": "reference"}},
        {"data": {"asset": "a", "inside": "../b"}},
        {"data": "a@0"},
        {"data": "a@b"},
        {"data": "digits"},
        {"lr": "digits"},
        {"": "digits"},
        {"a\nb": "digits"},
        {"x" * 257: "digits"},
        {"data": ["a"] * 1_001},
        {f"d{n}": "digits" for n in range(101)},
    ],
    "/trial/models": ["resnet", {"m": "./x"}, {"m": "x"}],
    "/trial/pretrained_from": [
        "a/1",
        {"warm": "a"},
        {"warm": "a/0"},
        {"warm": "a/last"},
        {"warm": "/1"},
        {"warm": 5},
        {"warm": "abc12/1"},
        {"warm": {"trial": "abc12/1", "what": "logs"}},
        {"warm": {"trial": 5}},
        {"warm": {"trial": "abc12/1", "x": 1}},
        {"warm": "a/" + "9" * 30},
    ],
    "/trial/output": ["/out", "../out", "a/../b", ".", "", "a//b", 5, ["out"], "x" * 1_001],
    "/trial/keep_outputs": ["never", 5],
    "/trial/nodes": [0, "two", 1.5, 65],
    "/trial/processes_per_node": [0, "two", 1.5, 2_000],
    "/trial/preload": ["torch", ["not a module"], [5]],
    "/trial/isolation": ["container", 5],
    "/trial/data": ["shared", True],
    "/trial/data/shared": ["yes", 1],
    "/trial/data/dataset": ["sets", "sets:", 5],
    "/trial/data/arguments": [["a"], "x"],
    "/trial/data/memory": ["much", 1000],
    "/trial/data/workers": [0, 65, "two", True],
    "/deterministic": ["yes", 1],
    "/algorithm_timeout": ["never", 0, 10**400],
    "/quota_group": ["", "a b", "../x", "x" * 65, 3],
    "/priority": ["high", 1.5, True, None, 1_001, -1_001, 10**400],
    "/preemptible": ["maybe", 2, []],
    "/workers": [0, "two", 1.5, None, True],
    "/executor": [
        "kubernetes",
        7,
        {},
        {"name": "ray", "address": "auto"},
        {"name": "local", "agents": {"cpus": 2}},
        {"name": "ray", "agents": {"max": 3}},
        {"name": "ray", "agents": {"cpus": 0}},
        {"name": "ray", "runtime_env": {"working_dir": "."}},
        {"name": "ray", "runtime_env": ["torch"]},
    ],
    "/warm_start": ["abc12", [7], [""]],
    "/on_end": [7, [7], [""]],
    "/on_pause": [{"mail": 1}, [""]],
    "/on_failures": [["a"] * 21],
}
CODE_FILE_WRONG: dict[str, list[Any]] = {
    "/path": ["/etc/passwd", "a/" * 101 + "b", "../up", "a//b", "a\\b", "", ".", "a/../b", "x" * 1001, 5],
    "/content": [5],
    "/content_base64": [5],
    "/mode": ["777", 644],
}
RESUME_WRONG: dict[str, list[Any]] = {
    "/budget": [5],
    "/budget/trials": [0, "many"],
    "/budget/parallel": [0],
    "/budget/duration": ["soon"],
    "/budget/failures": [0],
    "/code": [".", 5],
    "/code_origin": ["main", 5],
    "/code_origin/commit": ["main"],
    "/code_origin/branch": [5],
    "/code_origin/ref": [5],
    "/code_origin/dirty": ["yes"],
    "/code_origin/changes": [5],
    "/skip_line": [0, -1, "3", 1.5, 2**60],
    "/algorithm_timeout": ["never", 0, 10**400],
}
BASE_FILE = {"path": "a", "content": "x"}


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        pointer = f"{prefix}/{info.alias or name}"
        yield pointer
        inner = _model_in(info.annotation)
        if inner is not None and not pointer.endswith("/code"):
            yield from fields_of(inner, pointer)


def with_value(body: dict[str, Any], pointer: str, value: Any) -> dict[str, Any]:
    """A copy of ``body`` with one value changed."""
    copy: dict[str, Any] = json.loads(json.dumps(body))
    *path, last = pointer.strip("/").split("/")
    target = copy
    for part in path:
        target = target.setdefault(part, {})
    target[last] = value
    return copy


def cases(wrong: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(pointer, value) for pointer, values in wrong.items() for value in values]


def test_every_field_of_the_bodies_has_a_wrong_value_here() -> None:
    assert set(fields_of(ExperimentBody)) == set(WRONG)
    assert set(fields_of(ResumeBody)) == set(RESUME_WRONG)


@pytest.mark.parametrize(("pointer", "value"), cases(WRONG))
def test_a_wrong_value_in_the_experiment_file_is_refused_at_its_place(
    api: ApiService, pointer: str, value: Any
) -> None:
    answer = api.client.post("/api/v1/experiments", json=with_value(a_body(), pointer, value))

    assert answer.status_code == 422
    errors = answer.json()["errors"]
    # A list's or an object's fault may stand at one of its items.
    assert any(error["pointer"].startswith(pointer) for error in errors), errors
    assert all(len(error["detail"]) > 8 or error["detail"] == "is missing" for error in errors)
    assert "Value error" not in answer.text
    assert api.runner.commands == []


@pytest.mark.parametrize(("pointer", "value"), cases(CODE_FILE_WRONG))
def test_a_wrong_value_in_a_code_file_is_refused_at_its_place(api: ApiService, pointer: str, value: Any) -> None:
    file = with_value(BASE_FILE, pointer, value)
    body = with_value(a_body(), "/trial/code", {"files": [{"path": "ok", "content": ""}, file]})

    answer = api.client.post("/api/v1/experiments", json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith("/trial/code/files/1")
    assert api.runner.commands == []


@pytest.mark.parametrize(("pointer", "value"), cases(RESUME_WRONG))
def test_a_wrong_value_in_a_resume_is_refused_at_its_place(api: ApiService, pointer: str, value: Any) -> None:
    experiment_id = api.create()

    answer = api.client.post(f"/api/v1/experiments/{experiment_id}/resume", json=with_value({}, pointer, value))

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    assert len(api.runner.commands) == 1


@pytest.mark.parametrize(
    ("pointer", "near"),
    [
        ("/serch_space", "search_space"),
        ("/trial/comand", "command"),
        ("/trial/keep/lost", "last"),
        ("/budget/trial", "trials"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_known_one(api: ApiService, pointer: str, near: str) -> None:
    answer = api.client.post("/api/v1/experiments", json=with_value(a_body(), pointer, 1))

    assert {"pointer": pointer, "detail": f"no such field; did you mean '{near}'?"} in answer.json()["errors"]


@pytest.mark.parametrize("verb", ["pause", "stop"])
def test_a_verb_without_arguments_takes_none(api: ApiService, verb: str) -> None:
    experiment_id = api.create()

    answer = api.client.post(f"/api/v1/experiments/{experiment_id}/{verb}", json={"force": True})

    assert answer.status_code == 422
    assert answer.json()["errors"] == [{"pointer": "/force", "detail": "no such field; known: none"}]
    assert len(api.runner.commands) == 1


def test_every_mistake_is_told_at_once(api: ApiService) -> None:
    body = a_body(
        nam="x",
        objective={"metric": "loss", "goal": "low"},
        search_space={"lr": {"_type": "uniform", "_value": [1, 0]}},
        tuner={"name": "grid", "args": {"point": 3}},
        budget={"trials": 0},
        trial={"resources": {"gpus": 2.5}},
        deterministic=True,
    )
    body["budget"]["duration"] = "1h"

    errors = {error["pointer"] for error in api.client.post("/api/v1/experiments", json=body).json()["errors"]}

    assert {
        "/nam",
        "/objective/goal",
        "/tuner/args/point",
        "/budget/trials",
        "/trial/resources/gpus",
        "/trial",
        "/budget/duration",
    } <= errors
    assert any(pointer.startswith("/search_space/lr") for pointer in errors)


@pytest.mark.parametrize(
    ("pointer", "value"), [("/budget/duration", "1h"), ("/trial/heartbeat", "1m"), ("/workers", 2)]
)
def test_a_deterministic_experiment_refuses_what_depends_on_time(api: ApiService, pointer: str, value: Any) -> None:
    body = with_value(a_body(deterministic=True), pointer, value)

    answer = api.client.post("/api/v1/experiments", json=body)

    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_the_same_path_twice_or_as_file_and_folder_is_refused(api: ApiService) -> None:
    for paths in (["a", "a"], ["a", "a/b"]):
        files = [{"path": path, "content": ""} for path in paths]
        answer = api.client.post("/api/v1/experiments", json=with_value(a_body(), "/trial/code", {"files": files}))
        assert answer.status_code == 422, paths


# ── the body itself ─────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"[]", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b'{"a": NaN}', 422),
        (b'{"a": Infinity}', 422),
        (b'{"a": 1, "a": 2}', 422),
        (b"\xff\xfe", 422),
        (b'{"name": "a\\u0000b"}', 422),
        (b'{"name": "\\ud800"}', 422),
        (b"[" * 100_000, 422),
        (b'{"a":' * 60 + b"1" + b"}" * 60, 422),
        (b'{"seed": ' + b"9" * 10_000 + b"}", 422),
    ],
)
def test_a_body_that_is_not_what_it_should_be_is_refused(api: ApiService, content: bytes, status: int) -> None:
    answer = api.client.post("/api/v1/experiments", content=content, headers={"content-type": "application/json"})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert api.runner.commands == []


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"])
def test_another_content_type_than_json_is_refused(api: ApiService, content_type: str) -> None:
    answer = api.client.post(
        "/api/v1/experiments", content=json.dumps(a_body()), headers={"content-type": content_type}
    )

    assert answer.status_code == 415
    assert api.runner.commands == []


def test_a_compressed_body_is_refused_with_what_to_leave_out(api: ApiService) -> None:
    answer = api.client.post("/api/v1/experiments", content=b"\x1f\x8b", headers={"content-encoding": "gzip"})

    assert answer.status_code == 415
    assert answer.json()["detail"] == "bodies are taken as they are: send it without Content-Encoding: gzip"


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api: ApiService) -> None:
    answer = api.client.post("/api/v1/experiments", content=b"{}", headers={"content-length": str(MAX_BODY_BYTES + 1)})

    assert answer.status_code == 413
    assert str(MAX_BODY_BYTES) in answer.json()["detail"]


def test_a_length_in_digits_of_other_scripts_is_no_mistake_of_ours(api: ApiService) -> None:
    headers = [(b"content-length", "²".encode("latin-1")), (b"content-type", b"application/json")]
    answer = api.client.request("POST", "/api/v1/experiments", content=b"{}", headers=headers)
    assert answer.status_code == 422


def test_code_beyond_the_limit_is_refused_naming_the_limit(api: ApiService) -> None:
    files = [{"path": "big", "content": "x" * (17 << 20)}]

    answer = api.client.post("/api/v1/experiments", json=with_value(a_body(), "/trial/code", {"files": files}))

    assert answer.status_code == 413
    assert "16 MiB" in answer.json()["detail"]


def test_a_file_is_as_long_as_it_may_be_without_its_code(api: ApiService) -> None:
    files = [{"path": "a", "content": "x" * (5 << 20)}]
    taken = with_value(a_body(), "/trial/code", {"files": files})
    refused = a_body(search_space={"a": {"_type": "choice", "_value": ["x" * (5 << 20)]}})

    assert api.client.post("/api/v1/experiments?dry_run=true", json=taken).status_code == 200
    assert api.client.post("/api/v1/experiments?dry_run=true", json=refused).status_code == 413


def test_many_unknown_fields_are_one_fault(api: ApiService) -> None:
    answer = api.client.post("/api/v1/experiments", json=a_body() | {f"k{number}": 1 for number in range(5_000)})

    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == [""]
    assert "known: name, project," in answer.json()["errors"][0]["detail"]


def test_of_many_faulty_code_files_the_first_are_named(api: ApiService) -> None:
    files: list[Any] = [{"path": f"f{number}", "content": ""} for number in range(9_000)]
    files[700] = files[8_000] = {"path": "a"}

    answer = api.client.post("/api/v1/experiments", json=with_value(a_body(), "/trial/code", {"files": files}))
    too_many = api.client.post(
        "/api/v1/experiments", json=with_value(a_body(), "/trial/code", {"files": [{}] * 10_001})
    )

    assert (answer.status_code, too_many.status_code) == (422, 413)
    assert "10000" in too_many.json()["detail"]


def test_a_long_body_is_looked_at_by_a_thread_and_answered_alike(api: ApiService) -> None:
    experiment_id = api.create()
    odd: dict[str, Any] = {"tags": ["t" * 101] * 300}
    long = odd | {"note": "n" * 20_000}

    short_answer, long_answer = (
        api.client.request("PATCH", f"/api/v1/experiments/{experiment_id}", json=body) for body in (odd, long)
    )

    assert short_answer.json()["errors"][0] in long_answer.json()["errors"]
    assert (
        api.client.request("PATCH", f"/api/v1/experiments/{experiment_id}", json={"note": "n" * (8 << 20)}).status_code
        == 413
    )
