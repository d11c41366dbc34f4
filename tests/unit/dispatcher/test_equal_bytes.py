"""Checkpoints of equal content have one blob, which stays while one of them is there or on its way."""

from __future__ import annotations

import pytest

from tests.unit.dispatcher.harness import Harness, a_checkpoint_record
from tuner_service.dispatcher import commands as c


def test_equal_bytes_of_two_trials_outlive_what_the_first_of_them_drops(h: Harness) -> None:
    digest = f"{0:064x}"
    h.run(2, trial={"keep_last": 1, "keep_best": 0})
    for _ in range(2):
        h.handle(c.BlobReceived(at=h.at, digest=digest, data=b"same"))
    h.report(1, a_checkpoint_record(0))
    h.report(1, a_checkpoint_record(7))
    assert h.store.queries.blob(digest) == b"same"

    h.report(2, a_checkpoint_record(0))
    assert h.store.queries.blob(digest) == b"same"
    h.report(2, a_checkpoint_record(8))
    assert h.store.queries.blob(digest) is None


def test_bytes_that_no_report_named_yet_outlive_an_experiment_with_the_same_content(h: Harness) -> None:
    received = c.BlobReceived(at=h.at, digest=f"{0:064x}", data=b"same")
    h.run()
    h.handle(received)
    h.report(1, a_checkpoint_record(0))
    h.stop()
    h.exit(1)
    h.handle(received)
    h.delete()

    assert h.store.queries.blob(received.digest) == b"same"


def test_bytes_received_just_after_their_like_was_dropped_are_saved_with_it(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    received = c.BlobReceived(at=h.at, digest=f"{0:064x}", data=b"same")
    h.run(trial={"keep_last": 1, "keep_best": 0})
    h.handle(received)
    h.report(1, a_checkpoint_record(0))
    with monkeypatch.context() as patched:
        patched.setattr(h, "_save", lambda: None)
        h.report(1, a_checkpoint_record(7))
    h.handle(received)

    assert h.store.queries.blob(received.digest) == b"same"
