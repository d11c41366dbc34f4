"""Trials column by column: what the list of trials says, in another form."""

from __future__ import annotations

import json
import math

import pytest

from tests.builders import START, a_trial, an_experiment
from tests.memory_store import MemoryStore
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.table import TABLE_COLUMNS, table_json
from tuner_service.service.views import trial_view

NOW = START + 100
TRIALS = [
    a_trial(number=1, value=0.1, last_step=3, last_metrics={"loss": 1.0}, started_at=START, ended_at=START + 0.0625),
    a_trial(number=2, value=math.nan, parameters={"a": math.inf, "text": 'NaN " \u2028', "nested": {"b": [1, None]}}),
    a_trial(number=3, status=TrialStatus.RUNNING, started_at=START + 0.5, value=None),
    a_trial(number=4, status=TrialStatus.STOPPING, started_at=START, running_s=3.00049, attempts=2, value=-math.inf),
    a_trial(number=5, value=1e300, running_s=1e-9, parameters={}),
]


def test_every_cell_is_what_the_trials_own_view_says() -> None:
    store = MemoryStore()
    experiment = an_experiment()
    trials = {(t.experiment_id, t.number): t for t in TRIALS}
    store.commit(Changes(experiments={experiment.id: experiment}, trials=trials))

    text = table_json(store.queries.trial_entries(TRIALS[0].experiment_id), TABLE_COLUMNS, now=NOW)

    def refuse(name: str) -> None:
        pytest.fail(f"{name} is not strict JSON")

    table = json.loads(text, parse_constant=refuse)
    views = [trial_view(trial, now=NOW) for trial in TRIALS]
    for view in views:
        view["step"] = view["last"] and view["last"]["step"]
    assert table == {column: [view[column] for view in views] for column in TABLE_COLUMNS}


def test_no_trials_are_empty_columns() -> None:
    assert json.loads(table_json([], ("number", "value"), now=NOW)) == {"number": [], "value": []}
