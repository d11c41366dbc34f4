"""``ports.Store``: of what nobody has judged, reports beyond a limit stay in their rows until they are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests import memory_store
from tests.builders import EXPERIMENT_ID, a_metric, a_spec, a_trial, an_experiment
from tests.contract.stores import changes_for, only, reports_line
from tuner_service.dispatcher.items import MetricsReported, Queue
from tuner_service.domain.experiment import AlgorithmSpec
from tuner_service.domain.trial import Report
from tuner_service.storage import reading


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (memory_store, reading):
        monkeypatch.setattr(module, "ASSESSOR_REPORTS_LIMIT", 3)
    monkeypatch.setattr(reading, "HISTORY_PAGE_REPORTS", 2)


def with_reports(store: Any, *, deterministic: bool = False) -> None:
    """On lines 2, 3 and 4 two reports each."""
    spec = a_spec(assessor=AlgorithmSpec(name="median_stop"), deterministic=deterministic)
    lines = tuple(reports_line(line, first=2 * line - 3, last=2 * line - 2) for line in (2, 3, 4))
    metrics = [
        a_metric(line=line, sequence=n, step=n, objective=n / 10, values={"loss": n / 10, "acc": 0.5})
        for line in (2, 3, 4)
        for n in (2 * line - 3, 2 * line - 2)
    ]
    store.commit(changes_for(a_trial(), experiment=an_experiment(spec=spec), lines=lines, metrics=metrics))


@pytest.mark.parametrize("deterministic", [False, True])
def test_reports_beyond_the_limit_are_loaded_unread(store: Any, deterministic: bool) -> None:
    with_reports(store, deterministic=deterministic)

    loaded = only(store).unanswered[Queue.ASSESSOR]
    assert [(item.line, len(item.reports), item.unread) for item in loaded] == [(2, 2, 0), (3, 2, 0), (4, 0, 2)]
    assert [len(item.values) for item in loaded] == ([2, 2, 0] if deterministic else [0, 0, 0])


def test_where_those_that_were_read_are_as_many_as_the_limit_no_more_are_read(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (memory_store, reading):
        monkeypatch.setattr(module, "ASSESSOR_REPORTS_LIMIT", 4)
    with_reports(store)

    loaded = only(store).unanswered[Queue.ASSESSOR]
    assert [(item.line, len(item.reports), item.unread) for item in loaded] == [(2, 2, 0), (3, 2, 0), (4, 0, 2)]


def test_and_are_read_by_their_line(store: Any) -> None:
    with_reports(store)

    assert store.reports_on(EXPERIMENT_ID, 4) == MetricsReported(
        line=4,
        number=1,
        reports=(Report(step=5, value=0.5), Report(step=6, value=0.6)),
        sequences=(5, 6),
        values=({"loss": 0.5, "acc": 0.5}, {"loss": 0.6, "acc": 0.5}),
    )


def test_a_step_that_a_later_attempt_has_reported_again_is_not_among_them(store: Any) -> None:
    metrics = [
        a_metric(sequence=1, step=1, objective=0.1),
        a_metric(sequence=2, step=1, objective=0.2, first=False),
        a_metric(sequence=3, step=None, objective=0.3),
        a_metric(sequence=4, step=2, objective=None),
        a_metric(sequence=5, step=3, objective=0.5),
    ]
    lines = (reports_line(2, first=1, last=5),)
    spec = a_spec(assessor=AlgorithmSpec(name="median_stop"))
    store.commit(changes_for(a_trial(), experiment=an_experiment(spec=spec), lines=lines, metrics=metrics))

    (loaded,) = only(store).unanswered[Queue.ASSESSOR]
    assert loaded.reports == (Report(step=1, value=0.1), Report(step=3, value=0.5))
    assert loaded.sequences == (1, 5)
