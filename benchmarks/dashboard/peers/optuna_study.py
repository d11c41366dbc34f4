"""Fills a study of Optuna with trials that have ended: STORAGE TRIALS REPORTS."""

from __future__ import annotations

import random
import sys

import optuna
import sqlalchemy
from optuna.storages._rdb import models

FLOATS = optuna.distributions.FloatDistribution(0.0, 1.0)


@sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "connect")
def hurry(connection: object, _: object) -> None:
    """Filling it is not measured; a sync for each trial would take most of the time."""
    connection.execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]  # SQLite's


def main() -> None:
    storage, trials, reports = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=storage, study_name="scale")
    drawn = random.Random(0)
    names = [f"x{i}" for i in range(8)]
    made, curves = [], []
    for number in range(trials):
        parameters = {name: drawn.random() for name in names}
        value = sum((one - 0.5) ** 2 for one in parameters.values())
        made.append(
            optuna.trial.create_trial(params=parameters, distributions=dict.fromkeys(names, FLOATS), value=value)
        )
        curves += [
            {"trial_id": number + 1, "step": step, "intermediate_value": value + 1 / (step + 1)}
            for step in range(reports)
        ]
    study.add_trials(made)
    fill(storage, curves)
    last = optuna.load_study(storage=storage, study_name="scale").get_trials(deepcopy=False)[-1]
    assert len(last.intermediate_values) == reports
    assert last.intermediate_values[reports - 1] == last.value + 1 / reports


def fill(storage: str, curves: list[dict[str, object]]) -> None:
    """Through Optuna's own table: by its calls each value is looked for first, a millisecond for each of a million."""
    table = models.TrialIntermediateValueModel.__table__
    kind = models.TrialIntermediateValueModel.TrialIntermediateValueType.FINITE
    engine = sqlalchemy.create_engine(storage)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.insert(table).values(intermediate_value_type=kind), curves)
    engine.dispose()


main()
