"""Every bug that was found, as the commands that led to it: replayed for ever.

docs/testing.md says how a history is recorded. ``expect`` holds what was wrong, so that it stays right.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.histories import check_history
from tests.simulation.recording import Replay, decode, encode
from tuner_service.dispatcher.effects import Effect, Tell, TellAll
from tuner_service.dispatcher.items import Queue

FOLDER = Path(__file__).parent / "histories"
FILES = sorted(FOLDER.glob("*.json"))


def result_of(replay: Replay, experiment_id: str) -> dict[str, Any]:
    """Everything that ``expect`` may name."""
    queries = replay.store.queries
    experiment = queries.experiment(experiment_id)
    assert experiment is not None
    cursors = {Queue.TUNER: experiment.tuner_cursor, Queue.ASSESSOR: experiment.assessor_cursor}
    journal = queries.journal(experiment_id, limit=1_000_000)
    return {
        "status": experiment.status.value,
        "reason": experiment.reason.value,
        "best": experiment.best_number,
        "trials": {str(t.number): t.status.value for t in queries.trials(experiment_id, limit=1_000_000)},
        "told": [line.payload["outcome"]["number"] for line in journal if line.kind == "trial_ended"],
        "attempts": [str(a.key) for a in queries.attempts(experiment_id)],
        "effects": [_name_of(effect) for effect in replay.effects],
        "history": {
            queue.value: [
                item.line for item in replay.store.history(experiment_id, queue, after=0, upto=cursors[queue])
            ]
            for queue in Queue
        },
    }


def _name_of(effect: Effect) -> str:
    """Of a message to an agent, its kind."""
    return type(effect.message if isinstance(effect, Tell | TellAll) else effect).__name__


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_was_wrong_stays_right(file: Path) -> None:
    story = json.loads(file.read_text(encoding="utf-8"))
    steps = decode(story["steps"])
    (experiment_id,) = {step.experiment_id for step in steps if type(step).__name__ == "ExperimentCreated"}
    result = result_of(Replay(steps), experiment_id)

    assert {name: result[name] for name in story["expect"]} == story["expect"], story["about"]
    assert story["expect"], "a history without an expectation shows nothing"


def test_there_are_histories() -> None:
    assert len(FILES) >= 3


def test_a_recorded_history_gives_the_rows_of_the_run_it_was_recorded_from() -> None:
    world = check_history(11, deterministic=False)
    replay = Replay(decode(json.loads(json.dumps(encode(world.story)))))

    assert replay.store.load() == world.store.load()
    recorded, original = replay.store.queries, world.store.queries
    assert recorded.trials("sim", limit=1_000) == original.trials("sim", limit=1_000)
    assert recorded.journal("sim", limit=100_000) == original.journal("sim", limit=100_000)
