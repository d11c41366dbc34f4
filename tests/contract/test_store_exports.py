"""``ports.Queries``: what is read for exports and for the history of the search space."""

from __future__ import annotations

from typing import Any

from tests.builders import EXPERIMENT_ID, START, a_metric, a_trial, an_experiment
from tests.contract.stores import NAN, OTHER_ID, changes_for, key_of
from tuner_service.dispatcher.changes import Changes, SearchSpaceRevision


def revision(line: int, **space: Any) -> SearchSpaceRevision:
    return SearchSpaceRevision(experiment_id=EXPERIMENT_ID, line=line, search_space=space, at=START + line)


def test_revisions_of_the_search_space_come_oldest_first(store: Any) -> None:
    store.commit(changes_for(search_spaces=[revision(1, a=1)]))
    store.commit(Changes(search_spaces=[revision(12, a=3)]))
    store.commit(Changes(search_spaces=[revision(5, a=2)]))

    found = store.queries.search_space_revisions(EXPERIMENT_ID)

    assert list(found) == [revision(1, a=1), revision(5, a=2), revision(12, a=3)]
    assert list(store.queries.search_space_revisions(EXPERIMENT_ID, after=1, limit=1)) == [revision(5, a=2)]
    assert list(store.queries.search_space_revisions("nobody")) == []
    assert store.queries.newest_revision(EXPERIMENT_ID) == (3, revision(12, a=3))
    assert store.queries.newest_revision("nobody") is None


def test_metrics_of_all_trials_come_by_trial_attempt_and_sequence_in_pages(store: Any) -> None:
    identities = [(number, attempt, sequence) for number in (1, 2, 11) for attempt in (1, 2) for sequence in (1, 2, 10)]
    store.commit(changes_for(*(a_trial(number=number) for number in (1, 2, 11))))
    store.commit(
        Changes(
            metrics=[
                a_metric(number=n, attempt=a, sequence=s, line=n, values={"loss": float(n), "x": NAN})
                for n, a, s in reversed(identities)
            ]
        )
    )
    other = an_experiment(id=OTHER_ID)
    theirs = a_metric(experiment_id=OTHER_ID)
    store.commit(changes_for(a_trial(experiment_id=OTHER_ID), experiment=other, metrics=[theirs]))

    after, read = (0, 0, 0), []
    while page := store.queries.all_metrics(EXPERIMENT_ID, after=after, limit=4):
        assert len(page) <= 4
        read += page
        after = (page[-1][0], page[-1][1].attempt, page[-1][1].sequence)

    assert [(number, m.attempt, m.sequence) for number, m in read] == identities
    assert key_of(read[0][1].values) == key_of({"loss": 1.0, "x": NAN})
    assert list(store.queries.all_metrics("nobody")) == []
