"""Whether the script was asked to stop: by the service, through a file, or by SIGTERM."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class StopSignal:
    """Costs about a microsecond to ask. Once it says yes it stays so."""

    def __init__(self, stop_file: Path | None, *, on_first_ask: Callable[[], None]) -> None:
        self._stop_file = None if stop_file is None else str(stop_file)
        self._on_first_ask: Callable[[], None] | None = on_first_ask
        self._stopping = False
        self._catching = False

    def is_set(self) -> bool:
        if self._on_first_ask is not None:
            announce, self._on_first_ask = self._on_first_ask, None
            announce()
        if not self._catching:
            self._catch()
        if not self._stopping and self._stop_file is not None:
            self._stopping = os.access(self._stop_file, os.F_OK)
        return self._stopping

    def was_told(self) -> bool:
        """Like ``is_set``, without the promise that the script will go on asking."""
        return self._stopping or (self._stop_file is not None and os.access(self._stop_file, os.F_OK))

    def _catch(self) -> None:
        """From the first question on, SIGTERM is an answer to it; a script that never asks is ended by it."""
        if threading.current_thread() is not threading.main_thread():
            return  # Python allows handlers in the main thread only; a later question may come from there
        self._catching = True
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._note)

    def _note(self, *_: Any) -> None:
        self._stopping = True
