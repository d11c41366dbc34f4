"""What the contract suite of the store runs on, and short ways to fill and ask one.

Another database joins with one entry in ``STORES``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.builders import EXPERIMENT_ID, StillClock, a_line, an_experiment
from tests.memory_store import MemoryStore
from tests.postgresql import the_server
from trials.wire.plain import to_plain
from tuner_service.dispatcher.changes import (
    Changes,
    JournalLine,
)
from tuner_service.dispatcher.items import (
    Queue,
)
from tuner_service.domain.trial import (
    Trial,
    TrialOutcome,
)
from tuner_service.ports import LoadedExperiment
from tuner_service.storage.engine import open_store

OTHER_ID = "zzzzz"
NAN, INF = math.nan, math.inf


def _memory(folder: Path) -> Any:
    return MemoryStore()


def _sqlite(folder: Path) -> Any:
    return open_store(folder / "tuner.db", StillClock())


def _postgresql(folder: Path) -> Any:
    return open_store(the_server().filled_database(), StillClock())


STORES: dict[str, Callable[[Path], Any]] = {"memory": _memory, "sqlite": _sqlite, "postgresql": _postgresql}


def changes_for(
    *trials: Trial, experiment_id: str = EXPERIMENT_ID, lines: tuple[JournalLine, ...] = (), **fields: Any
) -> Changes:
    """An experiment with trials and lines; other fields of Changes by keyword."""
    experiment = fields.pop("experiment", an_experiment(id=experiment_id))
    return Changes(
        experiments={experiment.id: experiment},
        trials={(t.experiment_id, t.number): t for t in trials},
        journal=list(lines),
        **fields,
    )


def only(store: Any) -> LoadedExperiment:
    (loaded,) = store.load()
    return loaded  # type: ignore[no-any-return]  # the fixture's stores have no common type


def items(store: Any, queue: Queue, *, after: int = 0, upto: int = 10_000) -> list[Any]:
    return list(store.history(EXPERIMENT_ID, queue, after=after, upto=upto))


def ended_line(line: int, outcome: TrialOutcome) -> JournalLine:
    return a_line(line=line, kind="trial_ended", payload={"outcome": to_plain(outcome)}, queues=tuple(Queue))


def reports_line(line: int, *, first: int, last: int, number: int = 1) -> JournalLine:
    payload = {"number": number, "attempt": 1, "first": first, "last": last}
    return a_line(line=line, kind="reports", payload=payload, queues=(Queue.ASSESSOR,))


def key_of(row: Any) -> Any:
    """Something that compares NaN as equal."""
    return repr(row)
