"""``ports.Queries``: when something was committed, and reads that belong together."""

from __future__ import annotations

import math
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.builders import EXPERIMENT_ID, START, a_metric, a_trial, an_attempt, an_experiment
from tests.contract.stores import STORES, changes_for
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import AttemptStatus, TrialStatus


def test_the_version_stays_while_nothing_is_committed(store: Any) -> None:
    store.commit(changes_for(a_trial()))
    before = store.queries.version()

    store.queries.trial(EXPERIMENT_ID, 1)
    store.load()

    assert before is not None
    assert store.queries.version() == before


def test_an_id_that_nothing_can_have_is_that_of_nothing(store: Any) -> None:
    """Whoever asks may have written anything into the address."""
    store.commit(changes_for(a_trial()))
    for name in (EXPERIMENT_ID + "\0", "\0", "\ud800", ""):
        assert store.queries.experiment(name) is None
        assert store.queries.trial(name, 1) is None
        assert not store.moved_rows.has_more_than(name, 0)


def test_every_commit_makes_another_version(store: Any) -> None:
    versions = [store.queries.version()]
    store.commit(changes_for(a_trial()))
    versions.append(store.queries.version())
    for sequence in range(1, 20):
        store.commit(Changes(metrics=[a_metric(sequence=sequence)]))
        versions.append(store.queries.version())

    assert len(set(versions)) == len(versions)


def test_another_thread_is_told_the_same_version(store: Any) -> None:
    store.commit(changes_for(a_trial()))
    told: list[int | None] = []
    asking = threading.Thread(target=lambda: told.append(store.queries.version()))
    asking.start()
    asking.join()

    assert told == [store.queries.version()]


def test_reads_of_a_snapshot_say_what_they_say_alone(store: Any) -> None:
    store.commit(changes_for(a_trial()))

    with store.queries.snapshot():
        found = store.queries.experiment(EXPERIMENT_ID), list(store.queries.trials(EXPERIMENT_ID))

    assert found == (an_experiment(), [a_trial()])


def test_reads_of_a_snapshot_are_of_one_state(tmp_path: Path) -> None:
    with closing(STORES["sqlite"](tmp_path)) as store:
        store.commit(changes_for(a_trial()))
        with store.queries.snapshot():
            before = store.queries.experiment(EXPERIMENT_ID)
            store.commit(changes_for(a_trial(), a_trial(number=2), experiment=an_experiment(note="later")))
            after = store.queries.experiment(EXPERIMENT_ID)
            numbers = [trial.number for trial in store.queries.trials(EXPERIMENT_ID)]
        assert (before, numbers) == (after, [1])
        assert store.queries.experiment(EXPERIMENT_ID).note == "later"


def test_a_curve_goes_on_behind_any_of_its_points(store: Any) -> None:
    points = [(attempt, sequence) for attempt in (1, 2) for sequence in (1, 2, 3)]
    metrics = [a_metric(attempt=attempt, sequence=sequence) for attempt, sequence in points]
    store.commit(
        Changes(experiments={EXPERIMENT_ID: an_experiment()}, trials={(EXPERIMENT_ID, 1): a_trial()}, metrics=metrics)
    )

    whole = list(store.queries.curve_points(EXPERIMENT_ID, 1))
    assert [(point.attempt, point.sequence) for point in whole] == points
    for place, after in enumerate(points):
        assert list(store.queries.curve_points(EXPERIMENT_ID, 1, after=after)) == whole[place + 1 :]
    assert list(store.queries.curve_points(EXPERIMENT_ID, 1, after=(0, 5))) == whole


def test_of_no_trials_there_are_no_entries(store: Any) -> None:
    assert list(store.queries.entries_of(EXPERIMENT_ID, [])) == []


def test_when_those_that_have_not_ended_reported_the_last_time(store: Any) -> None:
    trials = [
        a_trial(number=1, started_at=START),  # of two attempts, the second of which has reported less
        a_trial(number=2, started_at=START, status=TrialStatus.SUCCEEDED, ended_at=START + 99),
        a_trial(number=3, started_at=START),
        a_trial(number=4, started_at=START, status=TrialStatus.PAUSED),
    ]
    metrics = [
        a_metric(
            number=number, attempt=attempt, sequence=sequence, step=None, first=False, objective=None, at=START + at
        )
        for number, attempt, sequence, at in [(1, 1, 9, 5), (1, 2, 1, 7), (1, 2, 2, 8), (2, 1, 1, 6), (4, 1, 1, 0.25)]
    ]
    store.commit(changes_for(*trials, metrics=metrics))
    queries, expected = store.queries, {1: START + 8, 4: START + 0.25}

    assert dict(queries.reported_at(EXPERIMENT_ID, [4, 3, 2, 1, 99])) == expected
    assert dict(queries.reported_at(EXPERIMENT_ID, range(1, 1_200))) == expected
    assert dict(queries.reported_at(EXPERIMENT_ID, [])) == {}
    for entries in (queries.trial_entries(EXPERIMENT_ID), queries.entries_of(EXPERIMENT_ID, [1, 2, 3, 4])):
        assert {e.number: e.reported_at for e in entries} == {1: START + 8, 2: None, 3: None, 4: START + 0.25}
    (paused,) = queries.trial_entries(EXPERIMENT_ID, statuses=["paused"])
    assert paused.reported_at == START + 0.25


def test_a_report_with_a_time_that_is_none_is_read_as_a_number(store: Any) -> None:
    store.commit(changes_for(a_trial(started_at=START), metrics=[a_metric(at=math.nan)]))

    told = [store.queries.reported_at(EXPERIMENT_ID, [1])[1], store.queries.trial_entries(EXPERIMENT_ID)[0].reported_at]

    assert all(isinstance(at, float) and math.isnan(at) for at in told)


def test_trials_with_a_live_attempt_are_found_with_when_they_reported_the_last_time(store: Any) -> None:
    trials = [a_trial(number=number, started_at=START, last_value=float("inf")) for number in (1, 2, 3, 4)]
    attempts = [
        an_attempt(number=1, status=AttemptStatus.LOST),
        an_attempt(number=1, attempt=2),
        an_attempt(number=2, status=AttemptStatus.EXITED),
        an_attempt(number=4, status=AttemptStatus.STARTING),
    ]
    metrics = [a_metric(number=number, attempt=1, at=START + number) for number in (1, 2)]
    changes = changes_for(*trials, metrics=metrics)
    store.commit(changes)
    store.commit(Changes(attempts={a.key: a for a in attempts}))

    assert store.queries.live_trials(EXPERIMENT_ID) == [(trials[0], START + 1), (trials[3], None)]
    assert list(store.queries.live_trials("other")) == []


def test_the_best_trials_of_several_experiments_are_those_that_each_of_them_names(store: Any) -> None:
    named = {"a": 2, "b": 1, "c": None, "d": 9}
    listed = [an_experiment(id=name, best_number=number, best_value=0.5) for name, number in named.items()]
    trials = {(name, number): a_trial(experiment_id=name, number=number) for name in named for number in (1, 2)}
    store.commit(Changes(experiments={one.id: one for one in listed}, trials=trials))

    assert store.queries.best_trials([*named, "nowhere"]) == {"a": trials["a", 2], "b": trials["b", 1]}
    assert store.queries.best_trials(["c", "d"]) == store.queries.best_trials([]) == {}
