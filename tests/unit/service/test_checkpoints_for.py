"""What a trial is told that asks for another one's checkpoints."""

from __future__ import annotations

import pytest

from tests.builders import EXPERIMENT_ID, a_checkpoint, a_trial, an_attempt, an_experiment
from tests.memory_store import MemoryStore
from trials.wire.checkpoints import CheckpointsFound, CheckpointsWanted
from trials.wire.files import BEST_TRIAL
from tuner_service.dispatcher.changes import Changes
from tuner_service.service.checkpoints import blob_for, checkpoints_for


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    experiment = an_experiment()
    trials = [a_trial(number=1), a_trial(number=2)]
    made.commit(
        Changes(
            experiments={experiment.id: experiment},
            trials={(t.experiment_id, t.number): t for t in trials},
            attempts={a.key: a for a in (an_attempt(number=2, nonce="n", agent_id="agent-1"),)},
            blobs={"a" * 64: b"weights"},
            checkpoints=[
                a_checkpoint(sequence=1, step=3, digest="a" * 64),
                a_checkpoint(sequence=2, step=5, digest="b" * 64, inline=False, location="s3://b/5"),
                a_checkpoint(sequence=3, step=7, digest="c" * 64, damaged=True),
            ],
        )
    )
    return made


def asked(store: MemoryStore, number: int, step: int | None = None) -> CheckpointsFound:
    wanted = CheckpointsWanted(request_id="r", nonce="n", experiment_id=EXPERIMENT_ID, number=number, step=step)
    found = checkpoints_for(store.queries, wanted, agent_id="agent-1")
    assert (found.request_id, found.nonce) == ("r", "n")
    return found


def test_the_intact_ones_newest_first_with_where_they_are(store: MemoryStore) -> None:
    found = asked(store, 1)

    assert [(ref.step, ref.path) for ref in found.checkpoints] == [(5, "s3://b/5"), (3, None)]
    assert found.error is None


def test_the_one_of_a_step(store: MemoryStore) -> None:
    assert [ref.digest for ref in asked(store, 1, step=3).checkpoints] == ["a" * 64]


@pytest.mark.parametrize(
    ("number", "step", "error"),
    [
        (9, None, "there is no trial 9"),
        (2, None, "trial 2 of experiment .* has saved no checkpoint so far"),
        (1, 4, "keeps no checkpoint of step 4; it has those of step 5, 3"),
        (1, 7, "keeps no checkpoint of step 7"),
        (0, None, "has no best trial so far"),
        (-1, None, "numbers from 0 to"),
        (2**70, None, "numbers from 0 to"),
        (1, 2**70, "numbers from 0 to"),
    ],
)
def test_where_there_is_none_the_error_says_what_there_is(
    store: MemoryStore, number: int, step: int | None, error: str
) -> None:
    found = asked(store, number, step)

    assert found.checkpoints == ()
    assert found.error is not None
    import re

    assert re.search(error, found.error)


def test_the_best_trial_so_far_may_be_asked_for(store: MemoryStore) -> None:
    experiment = an_experiment(best_number=1, best_value=0.5)
    store.commit(Changes(experiments={experiment.id: experiment}))

    assert [ref.step for ref in asked(store, BEST_TRIAL).checkpoints] == [5, 3]
    assert [ref.step for ref in asked(store, BEST_TRIAL, step=3).checkpoints] == [3]


@pytest.mark.parametrize(
    ("nonce", "agent_id", "experiment_id"),
    [("n", "agent-2", EXPERIMENT_ID), ("another", "agent-1", EXPERIMENT_ID), ("n", "agent-1", "other"), ("n", "", "")],
)
def test_an_agent_is_told_nothing_of_experiments_of_which_it_has_no_attempt(
    store: MemoryStore, nonce: str, agent_id: str, experiment_id: str
) -> None:
    wanted = CheckpointsWanted(request_id="r", nonce=nonce, experiment_id=experiment_id, number=1)

    found = checkpoints_for(store.queries, wanted, agent_id=agent_id)

    assert found.checkpoints == ()
    assert "has no such attempt" in (found.error or "")


def test_an_agent_is_sent_what_its_attempts_may_need_and_nothing_else(store: MemoryStore) -> None:
    assert blob_for(store.queries, "a" * 64, agent_id="agent-1") == b"weights"
    assert blob_for(store.queries, "a" * 64, agent_id="agent-2") is None
    assert blob_for(store.queries, "f" * 64, agent_id="agent-1") is None
