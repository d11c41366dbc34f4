"""What a trial is told that asks for another one's checkpoints."""

from __future__ import annotations

import pytest

from tests.builders import EXPERIMENT_ID, a_checkpoint, a_trial, an_experiment
from tests.memory_store import MemoryStore
from trials.wire.checkpoints import BEST_TRIAL, CheckpointsFound, CheckpointsWanted
from tuner_service.dispatcher.changes import Changes
from tuner_service.service.checkpoints import checkpoints_for


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    experiment = an_experiment()
    trials = [a_trial(number=1), a_trial(number=2)]
    made.commit(
        Changes(
            experiments={experiment.id: experiment},
            trials={(t.experiment_id, t.number): t for t in trials},
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
    found = checkpoints_for(store.queries, wanted)
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
