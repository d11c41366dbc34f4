"""The schema: every operation has its answers, an example of each, and a name of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api_service import an_api_service
from tests.described_answers import HOW_TO_MEND
from tuner_service.api.described.examples import example_of
from tuner_service.api.described.operations import OPERATIONS

SCHEMA: dict[str, Any] = an_api_service().client.app.openapi()
MODELS = {
    answer.model.__name__: answer.model
    for operation in OPERATIONS.values()
    for answer in operation.answers.values()
    if answer.model is not None
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in SCHEMA["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_operation_says_what_it_answers() -> None:
    missing = [name for _, _, operation in operations() if (name := operation["operationId"]) not in OPERATIONS]
    assert not missing, f"{', '.join(missing)}: {HOW_TO_MEND}"
    unknown = OPERATIONS.keys() - {operation["operationId"] for _, _, operation in operations()}
    assert not unknown, f"no handler has the name {', '.join(unknown)}: take the line out of OPERATIONS"


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(names)) == len(names), "two handlers have one name, and a generated client would lose one of them"
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in names)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_example_of_an_answer_is_one(name: str) -> None:
    assert example_of(MODELS[name]) == json.loads(json.dumps(example_of(MODELS[name])))
    MODELS[name].model_validate(example_of(MODELS[name]))


def test_every_content_has_a_schema_and_an_example() -> None:
    for method, path, operation in operations():
        contents = [operation["requestBody"]["content"]] if "requestBody" in operation else []
        contents += [response["content"] for response in operation["responses"].values() if "content" in response]
        for content in contents:
            for media, described in content.items():
                where = f"{method} {path}: {media}"
                assert described["schema"], where
                assert "example" in described or described["schema"].get("format") == "binary", where


def test_what_is_referred_to_is_there() -> None:
    known = SCHEMA["components"]["schemas"].keys()
    referred = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(SCHEMA)))
    assert referred == known, f"missing: {referred - known}; referred to by nothing: {known - referred}"


# Changes of nothing that was read before, each with why. All others take `If-Match`.
WITHOUT_IF_MATCH = {
    "create_experiment": "makes what is new",
    "make_token": "makes what is new",
    "make_code": "makes what is new",
    "sign_in": "makes what is new",
    "add_asset": "its content is its name",
    "put_piece": "its content is its name",
    "find_missing": "asks, and changes nothing",
    "ask_trial": "holds whichever trial is next",
    "tell_trial": "its token names who holds the trial",
    "collect_experiments": "of whichever are old enough at that moment",
    "end_sessions": "of whichever are open at that moment",
    "sign_out": "of the sender's own session",
}


def test_every_change_of_what_is_there_takes_if_match() -> None:
    without = {
        operation["operationId"]
        for method, _, operation in operations()
        if method != "GET" and "if-match" not in {parameter["name"] for parameter in operation.get("parameters", ())}
    }
    assert without == WITHOUT_IF_MATCH.keys()


def test_each_access_of_an_operation_says_whom_it_means() -> None:
    roles = SCHEMA["x-roles"]
    assert {operation["x-access"] for _, _, operation in operations()} <= roles.keys()
    assert roles["administer"] == ["admin"]
    assert roles["operate"] == ["admin", "operator"]
    assert roles["read"] == ["admin", "operator", "read_only"]


def methods_of(path: str) -> set[str]:
    methods = {method.upper() for method in SCHEMA["paths"][path]}
    return methods | ({"HEAD"} if "GET" in methods else set())


@pytest.mark.parametrize("path", sorted(SCHEMA["paths"]))
def test_a_method_that_a_path_does_not_take_is_answered_with_those_it_takes(path: str) -> None:
    api = an_api_service()
    place = path.replace("{experiment_id}", "none").replace("{number}", "1").replace("{", "").replace("}", "")
    matching = [one for one in SCHEMA["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one), place)]
    taken = methods_of(path)
    elsewhere = {method for one in matching for method in methods_of(one)}  # of an asset whose name is `store`
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - taken - elsewhere:
        answer = api.client.request(method, place)
        assert answer.status_code == 405, (method, answer.text)
        assert set(answer.headers["allow"].split(", ")) == taken
