"""A line that was left out stands in its queue no more."""

from __future__ import annotations

from typing import Any

from tests.builders import EXPERIMENT_ID, a_line, an_experiment
from tuner_service.dispatcher.changes import Changes, SkippedLine
from tuner_service.dispatcher.items import Queue

ADDED = {"number": 1, "parameters": {"lr": 0.5}, "retry_of": None}


def test_a_skipped_line_is_read_from_its_other_queue_alone(store: Any) -> None:
    both = (Queue.TUNER, Queue.ASSESSOR)
    lines = [a_line(line=line, kind="trial_added", payload=ADDED | {"number": line}, queues=both) for line in (1, 2, 3)]
    store.commit(Changes(experiments={EXPERIMENT_ID: an_experiment(next_line=4)}, journal=lines))
    skipped = SkippedLine(experiment_id=EXPERIMENT_ID, line=2, queue=Queue.TUNER)
    store.commit(Changes(skipped_lines=[skipped]))
    store.commit(Changes(skipped_lines=[skipped]))  # as a transaction that was repeated

    found = {queue: [item.line for item in store.history(EXPERIMENT_ID, queue, after=0, upto=3)] for queue in both}
    assert found == {Queue.TUNER: [1, 3], Queue.ASSESSOR: [1, 2, 3]}
    [loaded] = store.load()
    assert [item.line for item in loaded.unanswered[Queue.TUNER]] == [1, 3]
    assert [line.line for line in store.queries.journal(EXPERIMENT_ID, after=0, limit=9)] == [1, 2, 3]
