"""MLflow: each trial is a run, its reports are the run's metrics. Needs the package mlflow, or mlflow-skinny."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mlflow

from trials.session import Trial

TAGS = {"experiment": "tuner.experiment", "trial": "tuner.trial", "attempt": "tuner.attempt"}


@contextmanager
def mlflow_run(trial: Trial, *, experiment: str | None = None) -> Iterator[Any]:
    """The active MLflow run of this trial, with its parameters as params and each report as metrics.

    Where it is kept is MLflow's own setting (``MLFLOW_TRACKING_URI``). A further attempt of the trial goes on in the
    run of the one before, which is found by its tags.
    """
    found = mlflow.set_experiment(experiment or f"tuner {trial.experiment_id}")
    name = f"{trial.experiment_id}/{trial.number}"
    query = f"tags.`{TAGS['experiment']}` = '{trial.experiment_id}' and tags.`{TAGS['trial']}` = '{trial.number}'"
    earlier = (
        []
        if trial.attempt == 1
        else mlflow.search_runs([found.experiment_id], filter_string=query, max_results=1, output_format="list")
    )
    tags = {
        TAGS["experiment"]: trial.experiment_id,
        TAGS["trial"]: str(trial.number),
        TAGS["attempt"]: str(trial.attempt),
    }
    with mlflow.start_run(run_id=earlier[0].info.run_id if earlier else None, run_name=name, tags=tags) as run:
        if not earlier:
            mlflow.log_params(dict(trial.parameters))

        def write(step: int | None, values: Mapping[str, float]) -> None:
            if step is None:
                mlflow.log_metrics({f"final_{name}": value for name, value in values.items()})
            else:
                mlflow.log_metrics(dict(values), step=step)

        trial.on_report(write)
        yield run
