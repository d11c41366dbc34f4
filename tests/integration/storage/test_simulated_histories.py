"""Whole histories of the simulation on real databases: they end with the rows that they end with in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.postgresql import the_server
from tests.simulation.algorithms import EXPERIMENT
from tests.simulation.histories import STEPS, check_ended, check_search, faults_for, is_phased, spec_for
from tests.simulation.world import World, final_rows
from tuner_service.clock import SystemClock
from tuner_service.storage.engine import open_store

pytestmark = pytest.mark.slow
DATABASES: dict[str, Callable[[Path], Any]] = {
    "sqlite": lambda folder: folder / "tuner.db",
    "postgresql": lambda _: the_server().filled_database(),
}


def a_world(seed: int) -> World:
    spec = spec_for(seed, deterministic=False)
    return World(seed=seed, spec=spec, steps=STEPS, faults=faults_for(seed), phased=is_phased(seed))


def everything(world: World) -> Any:
    """All rows, but for the name of the database."""
    queries = world.store.queries
    numbers = [trial.number for trial in queries.trials(EXPERIMENT, limit=10_000)]
    attempts = [repr(replace(attempt, lineage="")) for attempt in queries.attempts(EXPERIMENT)]
    lines = queries.journal(EXPERIMENT, limit=10_000)
    journal = [(line.line, line.at, line.kind, line.queues, json.dumps(line.payload)) for line in lines]
    checkpoints = [repr(list(queries.checkpoints(EXPERIMENT, number))) for number in numbers]
    return repr(final_rows(world)), attempts, journal, checkpoints, repr(queries.experiment(EXPERIMENT))


@pytest.mark.parametrize("database", list(DATABASES))
@pytest.mark.parametrize("seed", [5, 12])
def test_a_history_on_a_database_has_the_rows_it_has_in_memory(database: str, seed: int, tmp_path: Path) -> None:
    in_memory = a_world(seed)
    in_memory.run()
    with closing(open_store(DATABASES[database](tmp_path), SystemClock())) as store:
        world = a_world(seed)
        world.store = store  # type: ignore[assignment]  # the port is the same
        world.run()
        check_ended(world)
        check_search(world, world.spec)

        assert everything(world) == everything(in_memory)
