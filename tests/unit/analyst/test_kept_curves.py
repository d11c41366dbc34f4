"""Learning curves: every report is read once, and few points are kept."""

from __future__ import annotations

import math

import pytest

from tests.builders import EXPERIMENT_ID, a_metric, a_trial, an_experiment
from tests.memory_store import MemoryStore
from tuner_service.analyst import kept_curves
from tuner_service.analyst.kept_curves import KeptCurve, KeptCurves
from tuner_service.dispatcher.changes import Changes, MetricRow, MetricsCut
from tuner_service.domain.trial import Trial, TrialStatus


def a_store(*trials: Trial) -> MemoryStore:
    store = MemoryStore()
    store.commit(
        Changes(
            experiments={EXPERIMENT_ID: an_experiment()}, trials={(EXPERIMENT_ID, one.number): one for one in trials}
        )
    )
    return store


def report(store: MemoryStore, values: list[float], *, number: int = 1, first: int = 1) -> None:
    rows = [
        a_metric(number=number, sequence=place, line=place, step=place, objective=value)
        for place, value in enumerate(values, first)
    ]
    store.commit(Changes(metrics=rows))


def read(store: MemoryStore, kept: KeptCurves) -> list[KeptCurve]:
    return kept.read(store.queries.trial_entries(EXPERIMENT_ID), lambda: None)


def some(store: MemoryStore, *, cut: bool = False) -> KeptCurves:
    return KeptCurves(store.queries, EXPERIMENT_ID, reports_are_cut=cut)


def test_new_reports_are_added_to_what_was_read() -> None:
    store = a_store(a_trial(number=1), a_trial(number=2))
    kept = some(store)
    report(store, [3.0, 2.0])
    assert [(c.steps, c.values) for c in read(store, kept)] == [([1, 2], [3.0, 2.0]), ([], [])]
    report(store, [1.0], first=3)
    assert read(store, kept)[0].values == [3.0, 2.0, 1.0]


def test_a_curve_that_is_thinned_out_keeps_its_extremes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_curves, "POINTS_KEPT", 10)
    store = a_store(a_trial(number=1))
    values = [math.sin(place) for place in range(95)]
    report(store, values)
    curve = read(store, some(store))[0]
    assert len(curve.values) <= 20
    assert (min(curve.values), max(curve.values), curve.values[0]) == (min(values), max(values), values[0])


def test_so_many_reports_are_read_for_one_answer_and_the_curve_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_curves, "REPORTS_PAGE", 3)
    monkeypatch.setattr(kept_curves, "REPORTS_READ", 6)
    store = a_store(a_trial(number=1), a_trial(number=2))
    kept = some(store)
    report(store, [float(place) for place in range(10)])
    report(store, [1.0], number=2)
    first = read(store, kept)
    assert [(len(curve.steps), curve.complete) for curve in first] == [(6, False), (1, True)]
    assert [(len(curve.steps), curve.complete) for curve in read(store, kept)] == [(10, True), (1, True)]


def test_steps_in_any_order_make_an_ascending_curve() -> None:
    store = a_store(a_trial(number=1))
    rows: list[MetricRow] = [
        a_metric(sequence=place, line=place, step=step, objective=float(step))
        for place, step in enumerate([5, 1, 3], 1)
    ]
    store.commit(Changes(metrics=rows))
    assert read(store, some(store))[0].steps == [1, 3, 5]


def test_of_a_trial_that_has_ended_nothing_is_read_again() -> None:
    store = a_store(a_trial(number=1, status=TrialStatus.SUCCEEDED, told_line=4))
    kept = some(store)
    report(store, [1.0])
    read(store, kept)
    report(store, [2.0], first=2)  # which does not happen
    assert read(store, kept)[0].values == [1.0]


def test_reports_that_were_taken_back_at_the_end_are_not_shown() -> None:
    store = a_store(a_trial(number=1))
    kept = some(store, cut=True)
    report(store, [1.0, 2.0, 3.0])
    read(store, kept)
    cut = MetricsCut(experiment_id=EXPERIMENT_ID, number=1, line=2, sequence=2)
    ended = a_trial(number=1, status=TrialStatus.EARLY_STOPPED, told_line=4)
    store.commit(Changes(trials={(EXPERIMENT_ID, 1): ended}, metric_cuts=[cut]))
    assert read(store, kept)[0].values == [1.0, 2.0]
