"""``ports.Store``: what load and history give back, and that a commit is all or nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import (
    EXPERIMENT_ID,
    a_checkpoint,
    a_line,
    a_metric,
    a_spec,
    a_trial,
    an_attempt,
    an_experiment,
)
from tests.contract.stores import NAN, OTHER_ID, changes_for, ended_line, items, key_of, only, reports_line
from trials.wire.plain import to_plain
from tuner_service.dispatcher.changes import (
    Changes,
    MetricsCut,
)
from tuner_service.dispatcher.items import (
    CustomTrialAdded,
    MetricsReported,
    Queue,
    ResultsImported,
    SearchSpaceUpdated,
    SuggestionRequested,
    TrialEnded,
)
from tuner_service.domain.errors import StorageError
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import (
    AttemptStatus,
    Report,
    TrialOutcome,
    TrialStatus,
)


# ── load ────────────────────────────────────────────────────────────────────────────────────────
def test_load_gives_trials_that_are_not_final_and_ends_not_told(store: Any) -> None:
    waiting = a_trial(number=1, status=TrialStatus.WAITING)
    told = a_trial(number=2, status=TrialStatus.SUCCEEDED, told_line=4)
    untold = a_trial(number=3, status=TrialStatus.FAILED)
    paused = a_trial(number=11, status=TrialStatus.PAUSED)

    store.commit(changes_for(told, paused, untold, waiting))

    assert only(store).trials == (waiting, untold, paused)


def test_load_gives_live_attempts_only(store: Any) -> None:
    attempts = [
        an_attempt(attempt=1, status=AttemptStatus.LOST),
        an_attempt(attempt=2, status=AttemptStatus.STARTING),
        an_attempt(number=2, status=AttemptStatus.EXITED),
        an_attempt(number=3, status=AttemptStatus.RUNNING),
    ]
    store.commit(changes_for(a_trial(), a_trial(number=2), a_trial(number=3), attempts={a.key: a for a in attempts}))

    assert only(store).attempts == (attempts[1], attempts[3])
    assert list(store.queries.attempts(EXPERIMENT_ID)) == attempts


def test_load_gives_paused_trials_of_an_ended_experiment_so_that_it_can_be_resumed(store: Any) -> None:
    paused = a_trial(status=TrialStatus.PAUSED)
    store.commit(changes_for(paused, experiment=an_experiment(status=ExperimentStatus.STOPPED)))

    assert only(store).trials == (paused,)


def test_load_gives_the_items_past_each_cursor(store: Any) -> None:
    outcome = TrialOutcome(number=1, status=TrialStatus.SUCCEEDED, parameters={"lr": 0.1}, value=0.5)
    store.commit(
        changes_for(
            a_trial(decided_line=1),
            experiment=an_experiment(tuner_cursor=1, assessor_cursor=2),
            lines=(
                a_line(line=1),
                reports_line(2, first=1, last=1),
                ended_line(3, outcome),
                a_line(line=4, payload={"number": 2}),
                a_line(line=5, kind="experiment_moved", payload={}, queues=()),
                reports_line(6, first=2, last=3),
            ),
            metrics=[a_metric(), a_metric(sequence=2, line=6, step=2), a_metric(sequence=3, line=6, step=3)],
        )
    )

    unanswered = only(store).unanswered

    assert unanswered == {
        Queue.TUNER: (TrialEnded(line=3, outcome=outcome), SuggestionRequested(line=4, number=2)),
        Queue.ASSESSOR: (
            TrialEnded(line=3, outcome=outcome),
            MetricsReported(
                line=6,
                number=1,
                reports=(Report(step=2, value=0.5), Report(step=3, value=0.5)),
                sequences=(2, 3),
            ),
        ),
    }


def test_a_request_that_the_tuner_answered_carries_the_answer_to_the_assessor(store: Any) -> None:
    store.commit(
        changes_for(
            a_trial(decided_line=1), experiment=an_experiment(tuner_cursor=1), lines=(a_line(queues=tuple(Queue)),)
        )
    )

    assert only(store).unanswered == {
        Queue.TUNER: (),
        Queue.ASSESSOR: (SuggestionRequested(line=1, number=1, recorded=a_trial().parameters),),
    }


def test_unanswered_reports_that_were_cut_away_are_given_without_content(store: Any) -> None:
    """So that the cursor can move past them."""
    store.commit(
        changes_for(
            a_trial(),
            lines=(reports_line(2, first=1, last=1),),
            metrics=[a_metric()],
            metric_cuts=[MetricsCut(experiment_id=EXPERIMENT_ID, number=1, line=1, sequence=0)],
        )
    )

    assert only(store).unanswered[Queue.ASSESSOR] == (MetricsReported(line=2, number=1, reports=(), sequences=()),)
    assert items(store, Queue.ASSESSOR) == []


def test_load_gives_the_steps_that_algorithms_saw(store: Any) -> None:
    store.commit(
        changes_for(
            a_trial(),
            a_trial(number=2),
            a_trial(number=3, status=TrialStatus.SUCCEEDED, told_line=9),
            metrics=[
                a_metric(sequence=1, step=1),
                a_metric(sequence=2, step=2, first=False, objective=None),
                a_metric(sequence=3, step=None, first=False, objective=None),
                a_metric(sequence=4, step=0),
                a_metric(number=3, step=5),
            ],
        )
    )

    assert only(store).seen_steps == {1: frozenset({0, 1}), 2: frozenset()}


def test_load_gives_checkpoints_of_the_loaded_trials_oldest_first(store: Any) -> None:
    second, first, later = a_checkpoint(sequence=9), a_checkpoint(sequence=2), a_checkpoint(attempt=2, sequence=1)
    store.commit(
        changes_for(
            a_trial(),
            a_trial(number=2, status=TrialStatus.FAILED, told_line=1),
            checkpoints=[later, second, first, a_checkpoint(number=2)],
        )
    )

    assert only(store).checkpoints == (first, second, later)
    assert list(store.queries.checkpoints(EXPERIMENT_ID, 1)) == [later, second, first]


def test_experiments_load_oldest_first_and_are_listed_newest_first(store: Any) -> None:
    old, new = an_experiment(id="newer", created_at=1.0), an_experiment(id="older", created_at=2.0)
    store.commit(Changes(experiments={new.id: new, old.id: old}))

    assert [loaded.experiment for loaded in store.load()] == [old, new]
    assert list(store.queries.experiments()) == [new, old]


def test_experiments_keep_their_rows_apart(store: Any) -> None:
    for experiment_id in (EXPERIMENT_ID, OTHER_ID):
        metric = a_metric(experiment_id=experiment_id)
        line = replace(reports_line(2, first=1, last=1), experiment_id=experiment_id)
        store.commit(
            changes_for(
                a_trial(experiment_id=experiment_id), experiment_id=experiment_id, lines=(line,), metrics=[metric]
            )
        )

    assert [len(loaded.trials) for loaded in store.load()] == [1, 1]
    assert [len(loaded.unanswered[Queue.ASSESSOR]) for loaded in store.load()] == [1, 1]
    assert len(items(store, Queue.ASSESSOR)) == 1


# ── history ─────────────────────────────────────────────────────────────────────────────────────
def test_history_is_what_a_queue_was_told_in_order(store: Any) -> None:
    outcome = TrialOutcome(number=1, status=TrialStatus.FAILED, parameters={"lr": 0.01}, value=None)
    imported = TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters={"lr": 1.0}, value=NAN, source="import")
    space = {"lr": {"type": "float", "low": 0.0, "high": 1.0}}
    store.commit(
        changes_for(
            a_trial(decided_line=1),
            a_trial(number=2, decided_line=5, source="custom"),
            lines=(
                a_line(line=1),
                reports_line(2, first=1, last=1),
                ended_line(3, outcome),
                a_line(line=4, kind="outcomes_imported", payload={"outcomes": [to_plain(imported)]}),
                a_line(line=5, kind="trial_added", payload={"number": 2, "parameters": {"lr": 0.3}}),
                a_line(line=6, kind="search_space_changed", payload={"search_space": space}),
            ),
            metrics=[a_metric()],
        )
    )

    told = items(store, Queue.TUNER)

    assert key_of(told) == key_of(
        [
            SuggestionRequested(line=1, number=1, recorded={"lr": 0.01, "batch": 32}),
            TrialEnded(line=3, outcome=outcome),
            ResultsImported(line=4, outcomes=(imported,)),
            CustomTrialAdded(line=5, number=2, parameters={"lr": 0.3}),
            SearchSpaceUpdated(line=6, search_space=space),
        ]
    )
    assert [item.line for item in items(store, Queue.ASSESSOR)] == [2, 3]


def test_history_has_the_lines_after_one_and_up_to_another(store: Any) -> None:
    store.commit(
        changes_for(
            *(a_trial(number=n, decided_line=n) for n in range(1, 7)),
            lines=tuple(a_line(line=n, payload={"number": n}) for n in range(1, 7)),
        )
    )

    assert [item.line for item in items(store, Queue.TUNER, after=2, upto=5)] == [3, 4, 5]
    assert items(store, Queue.TUNER, after=5, upto=5) == []
    assert items(store, Queue.TUNER, after=6, upto=60) == []


def test_history_leaves_out_requests_that_were_answered_with_nothing(store: Any) -> None:
    store.commit(changes_for(a_trial(decided_line=2), lines=(a_line(line=1), a_line(line=2))))

    assert [item.line for item in items(store, Queue.TUNER)] == [2]


def test_history_has_what_further_requests_were_answered_with(store: Any) -> None:
    further = [{"number": 1, "index": 1}, {"number": 1, "index": 1}, {"number": 1, "index": 2}]
    store.commit(
        changes_for(
            a_trial(decided_line=1, further_parameters=({"lr": 0.2}, {"lr": NAN}), further_lines=(4, 5)),
            a_trial(number=2, decided_line=2),
            lines=(
                a_line(line=1),
                a_line(line=2, payload={"number": 2}),
                *(a_line(line=line, payload=payload) for line, payload in enumerate(further, start=3)),
            ),
        )
    )

    told = [(item.line, item.number, item.index, item.recorded) for item in items(store, Queue.TUNER)]

    first = {"lr": 0.01, "batch": 32}  # line 3 was answered with nothing
    expected = [(1, 1, 0, first), (2, 2, 0, first), (4, 1, 1, {"lr": 0.2}), (5, 1, 2, {"lr": NAN})]
    assert key_of(told) == key_of(expected)


def test_the_assessor_is_told_of_a_decision_also_while_the_tuner_has_not_made_it(store: Any) -> None:
    store.commit(changes_for(lines=(a_line(line=1, queues=tuple(Queue)),)))

    assert items(store, Queue.TUNER) == []
    assert items(store, Queue.ASSESSOR) == [SuggestionRequested(line=1, number=1)]


def test_history_leaves_out_values_that_algorithms_did_not_see(store: Any) -> None:
    store.commit(
        changes_for(
            a_trial(),
            lines=(reports_line(2, first=1, last=4), reports_line(3, first=5, last=5)),
            metrics=[
                a_metric(sequence=4, step=3, objective=0.3),
                a_metric(sequence=1, step=1, objective=0.1),
                a_metric(sequence=2, step=1, first=False, objective=None),
                a_metric(sequence=3, step=None, first=False, objective=None),
                a_metric(sequence=5, step=3, line=3, first=False, objective=None),
            ],
        )
    )

    assert items(store, Queue.ASSESSOR) == [
        MetricsReported(
            line=2, number=1, reports=(Report(step=1, value=0.1), Report(step=3, value=0.3)), sequences=(1, 4)
        )
    ]


@pytest.mark.parametrize("deterministic", [False, True])
def test_only_waiting_reports_that_may_be_cut_off_bring_their_other_metrics(store: Any, deterministic: bool) -> None:
    metric = a_metric(values={"loss": 0.5, "accuracy": 0.9})
    experiment = an_experiment(spec=a_spec(deterministic=deterministic))
    lines = (reports_line(2, first=1, last=1),)
    store.commit(changes_for(a_trial(), experiment=experiment, lines=lines, metrics=[metric]))

    assert [item.values for item in items(store, Queue.ASSESSOR)] == [()]
    (unanswered,) = only(store).unanswered[Queue.ASSESSOR]
    assert isinstance(unanswered, MetricsReported)
    assert unanswered.values == ((metric.values,) if deterministic else ())


def test_a_cut_takes_away_what_was_accepted_after_the_report_it_names(store: Any) -> None:
    store.commit(
        changes_for(
            a_trial(),
            a_trial(number=2),
            lines=(
                reports_line(2, first=1, last=3),
                reports_line(3, first=4, last=4),
                reports_line(4, first=1, last=1, number=2),
            ),
            metrics=[
                *(a_metric(sequence=n, step=n) for n in (1, 2, 3)),
                a_metric(sequence=4, line=3, step=4),
                a_metric(number=2, line=4, step=1),
            ],
        )
    )
    cut = MetricsCut(experiment_id=EXPERIMENT_ID, number=1, line=2, sequence=2)
    late = a_metric(sequence=5, line=5, step=5)

    store.commit(Changes(metrics=[late], metric_cuts=[cut]))

    assert [m.sequence for m in store.queries.metrics(EXPERIMENT_ID, 1)] == [1, 2]
    assert [item.line for item in items(store, Queue.ASSESSOR)] == [2, 4]
    assert only(store).seen_steps == {1: frozenset({1, 2}), 2: frozenset({1})}


def test_a_long_history_comes_whole(store: Any) -> None:
    lines = 2_500
    store.commit(
        changes_for(
            a_trial(),
            lines=tuple(reports_line(n, first=n, last=n) for n in range(1, lines + 1)),
            metrics=[a_metric(sequence=n, line=n, step=n) for n in range(1, lines + 1)],
        )
    )

    assert [item.line for item in items(store, Queue.ASSESSOR)] == list(range(1, lines + 1))


def test_history_and_snapshots_are_read_by_other_threads_while_commits_go_on(store: Any) -> None:
    store.commit(changes_for(a_trial(decided_line=1), lines=(a_line(),)))
    found: list[int] = []
    reader = threading.Thread(target=lambda: found.extend(len(items(store, Queue.TUNER, upto=1)) for _ in range(20)))
    reader.start()
    for line in range(2, 40):
        store.commit(Changes(journal=[a_line(line=line)]))
    reader.join()

    assert found == [1] * 20


# ── all or nothing ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "refused",
    [
        Changes(journal=[a_line(line=9), a_line(line=1)]),
        Changes(trials={(EXPERIMENT_ID, 2): a_trial(number=2)}, metrics=[a_metric(sequence=7), a_metric(sequence=1)]),
        Changes(trials={(EXPERIMENT_ID, 2): a_trial(number=2)}, metrics=[a_metric(number=99)]),
        Changes(journal=[a_line(line=9)], trials={("nobody", 1): a_trial(experiment_id="nobody")}),
        Changes(journal=[a_line(line=9)], attempts={an_attempt(number=99).key: an_attempt(number=99)}),
    ],
    ids=[
        "a line twice",
        "a report twice",
        "a report of no trial",
        "a trial of no experiment",
        "an attempt of no trial",
    ],
)
def test_a_refused_commit_changes_nothing_and_the_next_one_works(store: Any, refused: Changes) -> None:
    store.commit(changes_for(a_trial(), lines=(a_line(),), metrics=[a_metric()]))
    before = store.load()

    with pytest.raises(StorageError):
        store.commit(refused)

    assert store.load() == before
    assert [line.line for line in store.queries.journal(EXPERIMENT_ID)] == [1]
    store.commit(Changes(journal=[a_line(line=2)]))
    assert [line.line for line in store.queries.journal(EXPERIMENT_ID)] == [1, 2]


def test_what_stood_in_a_refused_commit_is_written_when_it_comes_again(store: Any) -> None:
    """A store that remembers what it wrote must not take that for written."""
    trial, attempt, experiment = a_trial(), an_attempt(), an_experiment()
    store.commit(changes_for(trial, lines=(a_line(),), attempts={attempt.key: attempt}))
    changed = Changes(
        experiments={EXPERIMENT_ID: replace(experiment, note="another")},
        trials={(EXPERIMENT_ID, 1): replace(trial, charged=1)},
        attempts={attempt.key: replace(attempt, acknowledged=7)},
    )

    with pytest.raises(StorageError):
        store.commit(replace(changed, journal=[a_line(line=1)]))
    store.commit(changed)

    loaded = only(store)
    assert (loaded.experiment.note, loaded.trials[0].charged, loaded.attempts[0].acknowledged) == ("another", 1, 7)
