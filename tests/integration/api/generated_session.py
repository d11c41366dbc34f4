"""The README's session in Python, with a client that was generated from the schema: checked by mypy, then run.

python generated_session.py URL TOKEN
"""

from __future__ import annotations

import sys

from tuner_client import AuthenticatedClient
from tuner_client.api.experiments import (
    create_experiment,
    list_experiments,
    pause_experiment,
    read_best,
    read_curves,
    read_experiment,
    resume_experiment,
    stop_experiment,
)
from tuner_client.api.trials import read_table
from tuner_client.models import (
    BestOf,
    ExperimentBody,
    ExperimentDetail,
    Experiments,
    ExperimentStatus,
    LearningCurves,
    Problem,
    Table,
    WordColumn,
)

FILE = {
    "name": "quickstart",
    "objective": {"metric": "loss"},
    "search_space": {"x": {"type": "float", "low": -5, "high": 5}},
    "budget": {"trials": 24, "parallel": 4},
    "trial": {"command": "python train.py"},
}


def session(client: AuthenticatedClient) -> None:
    started = create_experiment.sync(client=client, body=ExperimentBody.from_dict(FILE), idempotency_key="once")
    assert isinstance(started, ExperimentDetail), started
    experiment_id: str = started.id
    listed = list_experiments.sync(client=client, limit=10)
    assert isinstance(listed, Experiments)
    assert [one.id for one in listed.items] == [experiment_id]

    paused = pause_experiment.sync(experiment_id, client=client)
    assert isinstance(paused, ExperimentDetail)
    assert paused.status is ExperimentStatus.PAUSED
    resumed = resume_experiment.sync(experiment_id, client=client)
    assert isinstance(resumed, ExperimentDetail)
    parallel: int = resumed.budget.parallel
    assert parallel == 4

    table = read_table.sync(experiment_id, client=client, columns="number,status,value")
    assert isinstance(table, Table)
    status = table.columns["status"]
    assert isinstance(status, WordColumn)
    assert status.codes == []
    changed = read_table.sync(experiment_id, client=client, since=table.revision)
    assert isinstance(changed, Table)
    assert changed.since == table.revision
    best = read_best.sync(experiment_id, client=client)
    assert isinstance(best, BestOf)
    assert best.best is None
    curves = read_curves.sync(experiment_id, client=client, limit=10)
    assert isinstance(curves, LearningCurves)
    stopped = stop_experiment.sync(experiment_id, client=client)
    assert isinstance(stopped, ExperimentDetail)

    missing = read_experiment.sync("nobody", client=client)
    assert isinstance(missing, Problem)
    assert missing.detail.startswith("there is no experiment 'nobody'")
    refused = create_experiment.sync_detailed(client=client, body=ExperimentBody.from_dict(FILE | {"seed": "seven"}))
    assert refused.status_code == 422
    assert isinstance(refused.parsed, Problem)
    assert isinstance(refused.parsed.errors, list)
    assert refused.parsed.errors[0].pointer == "/seed"


if __name__ == "__main__":
    session(AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2]))
    print("done")
