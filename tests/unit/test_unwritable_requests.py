"""A request that JSON has no form for is refused before it is sent, and says which number is why."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tuner_service.client import Client, UnsendableError
from tuner_service.client_paths import agent_path, asset_path, experiment_path, group_path, token_path, unwritable


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"assessor": {"args": {"upper": math.nan}}}, "/assessor/args/upper is nan, and a number there is finite"),
        ({"a": [1, (2, -math.inf)]}, "/a/1/1 is -inf, and a number there is finite"),
        ({"seed": 10**5_000}, "/seed is a whole number of too many digits"),
        (math.inf, "/ is inf, and a number there is finite"),
    ],
)
def test_the_number_is_named_by_its_pointer(body: Any, said: str) -> None:
    assert unwritable(body) == said
    with pytest.raises(UnsendableError, match=f"cannot be written as JSON: {said}"):
        Client("http://127.0.0.1:9", "t").create(body)


def test_what_holds_itself_is_told_as_the_library_tells_it() -> None:
    body: dict[str, Any] = {"a": 1.5}
    body["self"] = body["again"] = [body, body]

    with pytest.raises(UnsendableError, match="cannot be written as JSON: Circular reference"):
        Client("http://127.0.0.1:9", "t").create(body)


def test_what_is_too_deep_is_refused_as_well() -> None:
    body: dict[str, Any] = {}
    for _ in range(100_000):
        body = {"a": body}

    with pytest.raises(UnsendableError, match="cannot be written as JSON: maximum recursion depth"):
        Client("http://127.0.0.1:9", "t").create(body)
    while body:  # from outside, as its end would be a recursion, too
        body = body["a"]


@pytest.mark.parametrize("path", [agent_path, asset_path, experiment_path, group_path, token_path])
def test_a_name_that_was_typed_and_is_no_text_goes_as_its_bytes(path: Callable[[str], str]) -> None:
    assert path("a\udcff/b").endswith("/a%FF%2Fb")
