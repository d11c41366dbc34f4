"""A token of a provided node opens for the agent it was made for, with the key it was made with."""

from __future__ import annotations

import pytest

from tuner_service.service.node_tokens import agent_of, key_of, secret_of

KEY, AGENT = key_of("of the home"), "ray-0123456789ab"


def test_a_token_names_the_agent_that_it_was_made_for() -> None:
    assert agent_of(KEY, secret_of(KEY, AGENT)) == AGENT


@pytest.mark.parametrize(
    "secret",
    [
        secret_of(key_of("of another home"), AGENT),
        secret_of(KEY, "local"),  # no name of a provided node
        secret_of(KEY, AGENT).replace(AGENT, "ray-ba9876543210"),
        secret_of(KEY, AGENT)[:-1],
        f"{AGENT}.",
        AGENT,
        "",
    ],
)
def test_what_this_key_has_not_made_opens_nothing(secret: str) -> None:
    assert agent_of(KEY, secret) is None
