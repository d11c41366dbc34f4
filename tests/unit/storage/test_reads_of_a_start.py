"""A start reads what is unfinished: with a database of gigabytes it takes no longer than with an empty one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.builders import EXPERIMENT_ID, START, StillClock, a_checkpoint, a_line, a_trial, an_attempt, an_experiment
from tuner_service.dispatcher.changes import Changes
from tuner_service.storage.engine import open_store

GROW_WITHOUT_END = {"journal", "metrics", "trials", "attempts", "checkpoints"}
OF_WHAT_IS_UNTOLD = "USING INDEX ix_trials_untold"  # it holds no other trials


@contextmanager
def read_whole() -> Iterator[set[str]]:
    """The large tables that SQLite reads from their beginning to their end, as it plans the statements meanwhile."""
    found = set[str]()

    def look(connection: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        if not statement.lstrip().upper().startswith(("SELECT", "DELETE", "UPDATE")):
            return
        raw = connection.connection.dbapi_connection
        steps: Sequence[str] = [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        scans = [(step, re.match(r"SCAN (\w+)", step)) for step in steps]
        found.update(scan[1] for step, scan in scans if scan and OF_WHAT_IS_UNTOLD not in step)

    event.listen(Engine, "before_cursor_execute", look)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", look)


def test_no_table_that_grows_is_read_whole_when_a_service_starts(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    with closing(open_store(path, StillClock())) as store:
        store.commit(
            Changes(
                experiments={EXPERIMENT_ID: an_experiment(next_line=3)},
                trials={(EXPERIMENT_ID, 1): a_trial()},
                attempts={(key := an_attempt().key): an_attempt(key=key)},
                checkpoints=[a_checkpoint()],
                journal=[a_line(line=1), a_line(line=2, at=START + 7)],
            )
        )

    with read_whole() as scanned, closing(open_store(path, StillClock())) as store:
        (loaded,) = store.load()
        assert store.newest_at() == START + 7

    assert [len(rows) for rows in (loaded.trials, loaded.attempts, loaded.checkpoints)] == [1, 1, 1]
    assert scanned & GROW_WITHOUT_END == set()
    assert "queue_cursors" in scanned, "and this would have seen it"
