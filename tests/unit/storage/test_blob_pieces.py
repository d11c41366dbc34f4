"""How many bytes blobs take in the database."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

from sqlalchemy import create_engine

from tests.builders import StillClock, a_checkpoint, a_trial
from tests.contract.stores import changes_for
from tuner_service.dispatcher.changes import Changes
from tuner_service.storage.engine import open_store
from tuner_service.storage.tables import BLOB_CHUNK_BYTES


def stored_bytes(path: Path) -> int:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        size = connection.exec_driver_sql("SELECT coalesce(sum(length(data)), 0) FROM chunks").scalar_one()
    engine.dispose()
    return int(size)


def test_of_two_checkpoints_that_are_nearly_equal_the_difference_is_stored(tmp_path: Path) -> None:
    frozen = random.Random(1).randbytes(20 * BLOB_CHUNK_BYTES)
    blobs = {digit * 64: frozen + digit.encode() * 1_000 for digit in "abc"}
    rows = [a_checkpoint(sequence=n, digest=digest) for n, digest in enumerate(blobs, start=1)]
    with closing(open_store(tmp_path / "tuner.db", StillClock())) as store:
        store.commit(changes_for(a_trial(), blobs=blobs, checkpoints=rows))
        assert stored_bytes(tmp_path / "tuner.db") == len(frozen) + 3_000

        store.commit(Changes(dropped_checkpoints=rows[:2]))
        assert stored_bytes(tmp_path / "tuner.db") == len(frozen) + 1_000
        store.commit(Changes(dropped_checkpoints=rows[2:]))
        assert stored_bytes(tmp_path / "tuner.db") == 0
