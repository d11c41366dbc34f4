"""A service that was told to end: what hangs keeps it for a limited time, and is named."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.waiting import wait_until
from tuner_service.service.ending import Ending


def test_what_hangs_is_ended_and_named_and_nothing_happens_before(caplog: pytest.LogCaptureFixture) -> None:
    codes, gate = list[int](), threading.Event()

    def waits_for_nobody() -> None:
        gate.wait()

    hanging = threading.Thread(target=waits_for_nobody, name="that hangs")
    hanging.start()
    try:
        ending = Ending(limit_s=0.0, leave=codes.append)
        assert not ending.has_begun
        assert codes == []
        with caplog.at_level(logging.ERROR):
            ending.begin()
            ending.begin()
            wait_until(lambda: codes)
    finally:
        gate.set()
        hanging.join()

    assert ending.has_begun
    assert codes == [1]
    (record,) = [record for record in caplog.records if record.message == "end_took_too_long"]
    assert "that hangs: wait" in str(record.threads)  # type: ignore[attr-defined]  # a field of this event
    assert "waits_for_nobody (test_ending.py:" in str(record.threads)  # type: ignore[attr-defined]
