"""An answer of somebody else is a clear sentence, not a traceback."""

from __future__ import annotations

import pickle

import pytest

from tuner_service.cli.output.tables import format_rows
from tuner_service.client import Answer, ClientError


def answer(text: str) -> Answer:
    return Answer(status=200, headers={}, data=text.encode())


@pytest.mark.parametrize("text", ["[]", "3", '"text"', '{"items": 3}', "{", "<html>"])
def test_what_is_no_object_is_told_with_its_beginning(text: str) -> None:
    with pytest.raises(ClientError, match="is it a service of Tuner Service"):
        answer(text).json()


def test_what_an_object_lacks_is_told_by_name() -> None:
    with pytest.raises(ClientError, match="the answer has no 'id'; is it a service"):
        answer('{"items": []}').json()["id"]
    (item,) = answer('{"items": [{"id": 1}]}').json()["items"]
    with pytest.raises(ClientError, match="the answer has no 'name'"):
        item["name"]
    assert item.get("name") is None


def test_it_is_written_and_kept_as_any_other_object() -> None:
    found = answer('{"id": "x", "items": [{"a": 1}]}').json()
    assert found == {"id": "x", "items": [{"a": 1}]}
    assert format_rows(found["items"], output="yaml", columns=()) == "- a: 1\n"
    assert type(pickle.loads(pickle.dumps(found))) is dict
    assert answer("").json() is None
