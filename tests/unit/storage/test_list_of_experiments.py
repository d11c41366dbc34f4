"""The list of experiments finds the best trial of each by one statement, however many experiments it shows."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.api_service import an_api_service
from tests.builders import StillClock, a_trial, an_experiment
from tests.unit.storage.test_newest_reports import statements_of
from tests.unit.storage.test_reads_of_a_start import GROW_WITHOUT_END, read_whole
from tuner_service.dispatcher.changes import Changes
from tuner_service.storage.engine import open_store


def test_best_trials_are_found_by_one_statement_and_no_table_is_read_whole_for_them(tmp_path: Path) -> None:
    counts = []
    with closing(open_store(tmp_path / "tuner.db", StillClock())) as store:
        experiments = replace(an_api_service().services.experiments, queries=store.queries)
        for size in (1, 200):
            listed = [an_experiment(id=f"e{n}", best_number=n, best_value=float(n)) for n in range(1, size + 1)]
            trials = [
                a_trial(experiment_id=one.id, number=number, parameters={"lr": number})
                for one in listed
                for number in (one.best_number, 999)
            ]
            rows = {one.id: one for one in listed}
            store.commit(Changes(experiments=rows, trials={(t.experiment_id, t.number): t for t in trials}))
            statements, shown = statements_of(store.queries, partial(experiments.list_views, listed))
            counts.append(len(statements))
            with read_whole() as scanned:
                assert experiments.list_views(listed) == shown
            assert [one["best"]["parameters"] for one in shown] == [{"lr": n} for n in range(1, size + 1)]
            assert scanned & GROW_WITHOUT_END == set()
    assert counts == [1, 1]
