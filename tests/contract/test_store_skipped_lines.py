"""A line that was left out stands in its queue no more."""

from __future__ import annotations

from typing import Any

from tests.builders import EXPERIMENT_ID, START, a_line, a_spec, an_experiment
from tuner_service.dispatcher.changes import Changes, SearchSpaceRevision, SkippedLine, Touched
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


def test_a_space_whose_line_was_skipped_is_no_revision(store: Any) -> None:
    """Its tuner was never told: nothing is suggested from it, and none of the trials lies in it."""
    lines = [a_line(line=line, kind="search_space_changed", queues=(Queue.TUNER,)) for line in (2, 3)]
    spaces = [
        SearchSpaceRevision(experiment_id=EXPERIMENT_ID, line=line, search_space={"n": line}, at=START)
        for line in (1, 2, 3)
    ]
    store.commit(Changes(experiments={EXPERIMENT_ID: an_experiment()}, journal=lines, search_spaces=spaces))
    before = store.queries.sequence()
    store.commit(Changes(skipped_lines=[SkippedLine(experiment_id=EXPERIMENT_ID, line=3, queue=Queue.TUNER)]))

    assert store.queries.search_space(EXPERIMENT_ID) == {"n": 2}
    assert [found.line for found in store.queries.search_space_revisions(EXPERIMENT_ID)] == [1, 2]
    assert store.queries.touched_after(before) == Touched(search_spaces={EXPERIMENT_ID})


def test_the_space_that_grows_is_loaded_as_its_tuner_knows_it(store: Any) -> None:
    """What it is still to be told stands among the items that wait."""
    spaces = [
        SearchSpaceRevision(experiment_id=EXPERIMENT_ID, line=line, search_space={"n": line}, at=START)
        for line in (1, 4)
    ]
    experiment = an_experiment(spec=a_spec(trial={"define_by_run": True}), tuner_cursor=3)
    store.commit(Changes(experiments={EXPERIMENT_ID: experiment}, search_spaces=spaces))

    assert [loaded.search_space for loaded in store.load()] == [{"n": 1}]
