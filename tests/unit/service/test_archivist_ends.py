"""An archivist that is told to end does not wait for a server that looks for room to give back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.memory_store import MemoryStore
from tuner_service.domain.errors import UnavailableError
from tuner_service.service.archiving import Archivist

PATIENCE_S = 30.0


class SlowRows:
    """Gives back until it is told to stop, ``deaf`` times in vain: between two statements, an order ends none."""

    def __init__(self, deaf: int) -> None:
        self.begun, self._stopped, self._deaf = threading.Event(), threading.Event(), deaf

    def give_back(self) -> bool:
        self.begun.set()
        assert self._stopped.wait(2 * PATIENCE_S)
        raise UnavailableError("the server gave the statement up")

    def stop_giving_back(self) -> None:
        self._deaf -= 1
        if self._deaf < 0:
            self._stopped.set()


class NoFiles:
    def close(self) -> None: ...


@pytest.mark.parametrize("deaf", [0, 2])
def test_giving_back_room_is_broken_off_at_the_end_without_a_complaint(
    deaf: int, caplog: pytest.LogCaptureFixture
) -> None:
    rows, others = SlowRows(deaf), dict.fromkeys(("assets", "clock", "submit"))
    anything: dict[str, Any] = {"rows": rows, "files": NoFiles(), "queries": MemoryStore().queries, **others}
    archivist = Archivist(**anything)
    archivist.start()
    assert rows.begun.wait(PATIENCE_S)
    closing = threading.Thread(target=archivist.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_S)

    assert not closing.is_alive()
    assert caplog.records == []
