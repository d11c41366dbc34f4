"""A deterministic search whose database is moved while it is under way: its rows are those of one that stayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.postgresql import the_server
from tests.simulation.algorithms import EXPERIMENT
from tests.simulation.histories import STEPS, best_of, check_ended, check_search, faults_for, is_phased, spec_for
from tests.simulation.world import Faults, World, final_rows
from tuner_service.clock import SystemClock
from tuner_service.domain.trial import TrialStatus
from tuner_service.storage.copying import copy_database
from tuner_service.storage.engine import open_store

pytestmark = pytest.mark.slow
MOVES = (0.35, 0.7)  # as parts of all trials that have ended by then


class MovingWorld(World):
    """Goes on in the next one of ``stores`` each time that the next part of its trials has ended.

    What ran at that time stays behind, with its agents: a copy has a lineage of its own.
    """

    def __init__(self, stores: Iterator[Any], **history: Any) -> None:
        super().__init__(**history)
        self._stores, self.moves = stores, list[int]()
        self.store = next(stores)

    def tick(self, service: Any) -> None:
        if self.service is service and len(self.moves) < len(MOVES) and self._has_ended() >= self._next_at():
            self._move()
        else:
            super().tick(service)

    def _has_ended(self) -> int:
        trials = self.store.queries.trials(EXPERIMENT)
        return sum(trial.status in {TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED} for trial in trials)

    def _next_at(self) -> float:
        return MOVES[len(self.moves)] * (self.spec.budget.trials or 0)

    def _move(self) -> None:
        self.moves.append(len(self.store.queries.live_attempts(EXPERIMENT)))
        target: Any = next(self._stores)
        copy_database(self.store, target, lambda _: None)  # type: ignore[arg-type]  # a real one
        self.store = target
        for agent in self.agents.values():
            agent.held.clear()
        self.service_died()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Iterator[Any]]:
    """A file, a database on a server, and another file, each opened when it is asked for."""
    with ExitStack() as opened:
        places = (tmp_path / "before.db", the_server().filled_database(), tmp_path / "after.db")
        yield (opened.enter_context(closing(open_store(place, SystemClock()))) for place in places)


@pytest.mark.parametrize(("seed", "kills"), [(4, False), (17, True)])
def test_a_search_moved_to_a_server_and_back_ends_with_the_rows_of_one_that_stayed(
    seed: int, kills: bool, stores: Iterator[Any]
) -> None:
    history: dict[str, Any] = {
        "seed": seed,
        "spec": spec_for(seed, deterministic=True),
        "steps": STEPS,
        "phased": is_phased(seed),
    }
    stayed = World(faults=Faults(), **history)
    stayed.run()
    moved = MovingWorld(stores, faults=faults_for(seed) if kills else Faults(), **history)
    moved.run()

    check_ended(moved)
    check_search(moved, moved.spec)
    assert len(moved.moves) == len(MOVES)
    assert any(moved.moves), "trials ran when it was moved"
    assert final_rows(moved) == final_rows(stayed)
    assert best_of(moved) == best_of(stayed)
