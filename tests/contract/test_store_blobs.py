"""Blobs: equal pieces are stored once, and stay as long as some blob has them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.builders import a_checkpoint, a_trial, an_attempt
from tests.contract.stores import changes_for
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import AttemptStatus, Part

PIECE = 64 << 10


def some_bytes(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7])
def test_a_blob_is_read_back_as_it_was(store: Any, size: int) -> None:
    data = some_bytes(size, size)
    store.commit(Changes(blobs={"d": data}))
    assert store.queries.blob("d") == data


def test_what_two_checkpoints_share_outlives_either(store: Any) -> None:
    shared = some_bytes(1, 3 * PIECE) * 2
    first, second = shared + some_bytes(2, 100), some_bytes(3, PIECE) + shared
    rows = [a_checkpoint(sequence=n, digest=digest * 64) for n, digest in enumerate("ab", start=1)]
    store.commit(changes_for(a_trial(), blobs={"a" * 64: first, "b" * 64: second}, checkpoints=rows))

    store.commit(Changes(dropped_checkpoints=[rows[0]]))

    assert store.queries.blob("a" * 64) is None
    assert store.queries.blob("b" * 64) == second
    store.commit(Changes(dropped_checkpoints=[rows[1]], blobs={"c": first}))
    assert store.queries.blob("b" * 64) is None
    assert store.queries.blob("c") == first


def test_a_checkpoint_is_for_the_agents_whose_attempts_of_its_experiment_live(store: Any) -> None:
    parts = (Part(agent_id="agent-2", nonce="n"), Part(agent_id="agent-3", nonce="m"))
    running = an_attempt(number=2, agent_id="agent-2", parts=parts)
    ended = an_attempt(agent_id="agent-1", status=AttemptStatus.EXITED, ended_at=5.0)
    elsewhere = an_attempt(experiment_id="other", agent_id="agent-4")
    store.commit(
        changes_for(
            a_trial(),
            a_trial(number=2),
            attempts={one.key: one for one in (running, ended)},
            blobs={"a" * 64: b"abc"},
            checkpoints=[a_checkpoint()],
        )
    )
    store.commit(
        changes_for(a_trial(experiment_id="other"), experiment_id="other", attempts={elsewhere.key: elsewhere})
    )

    found = [agent for agent in range(6) if store.queries.is_for_agent("a" * 64, f"agent-{agent}")]
    held = {agent: [one.key for one in store.queries.live_attempts_of(f"agent-{agent}")] for agent in range(6)}
    assert held == {0: [], 1: [], 2: [running.key], 3: [running.key], 4: [elsewhere.key], 5: []}
    assert found == [2, 3]
    assert not store.queries.is_for_agent("b" * 64, "agent-2")
