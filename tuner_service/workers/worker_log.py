"""What a worker writes to its standard error: in a file of bounded size, and its end in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

from trials.wire.texts import valid_text

LOG_LIMIT_BYTES = 8 << 20  # then the file is moved to .log.1, over an older one
TAIL_BYTES = 4 << 10  # kept for the message about a worker that died
BYTES_A_SECOND = 16 << 20  # a worker that prints faster waits, so that the service does nothing else as well


class WorkerLog(threading.Thread):
    """Copies ``stream`` to ``path`` until it ends. A file that cannot be written loses text."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        super().__init__(name=f"log {path.name}", daemon=True)
        self._stream, self._path = stream, path
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._lock = threading.Lock()

    @property
    def tail(self) -> str:
        with self._lock:
            return valid_text(b"".join(self._tail)[-TAIL_BYTES:].decode(errors="replace").strip())

    def run(self) -> None:
        with self._stream:
            self._copy()

    def _copy(self) -> None:
        begun, copied = time.monotonic(), 0
        while chunk := self._read():
            copied += len(chunk)
            if copied >= BYTES_A_SECOND:
                time.sleep(max(0.0, begun + 1.0 - time.monotonic()))
                begun, copied = time.monotonic(), 0
            with self._lock:
                self._tail.append(chunk)
                self._tail_bytes += len(chunk)
                while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
                    self._tail_bytes -= len(self._tail.popleft())
            self._write(chunk)

    def _read(self) -> bytes:
        return self._stream.read1(64 << 10) if hasattr(self._stream, "read1") else b""

    def _write(self, chunk: bytes) -> None:
        try:
            if self._path.exists() and self._path.stat().st_size + len(chunk) > LOG_LIMIT_BYTES:
                self._path.replace(self._path.with_suffix(".log.1"))
            with self._path.open("ab") as file:
                file.write(chunk)
        except OSError:
            return  # a full disk must not stop the search
