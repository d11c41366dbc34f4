"""Knowing when something of an experiment changes: a thread reads its events, so that nobody asks again and again.

What changes is not taken from the events but asked for: they only say when. Where there are none (the service is away,
or has too many readers) whoever waits looks from time to time, as long as ``hears`` is false.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

from tuner_service.client import Client, ClientError

QUIET_S = 3.0  # after which those who listen look all the same: time passes, and a line may be dead without a word
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 5.0  # from a stream that could not be read to the next one
HEARTBEAT = b"heartbeat"
NAME = b"event: "
NAME_BYTES = 64  # of a line that has not come to its end, which are kept: what an event says is not


class Listener:
    """``changed`` is called, by a thread of its own, when the stream begins, at each change, and when it breaks off."""

    def __init__(self, connect: Callable[[], Client], experiment_id: str, changed: Callable[[], None]) -> None:
        self.hears = False
        self._connect, self._experiment_id, self._changed = connect, experiment_id, changed
        self._closed = threading.Event()
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Safe to repeat."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Nothing is called any more. It waits for nobody: the thread ends as soon as it sees it."""
        self._closed.set()
        client = self._client
        if client is not None:
            client.hang_up()

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self._closed.is_set():
            if self._listen():
                retry_s = FIRST_RETRY_S
            self._closed.wait(retry_s)
            retry_s = min(LAST_RETRY_S, retry_s * 2)

    def _listen(self) -> bool:
        """Whether there was a stream; returns when it has ended."""
        try:
            self._client = client = self._connect()
        except Exception:  # noqa: BLE001  # whoever waits looks for itself, and says what is wrong
            return False
        try:
            for event in names_of_events(client.events(self._experiment_id)):
                if self._closed.is_set():
                    return True
                self.hears = True
                if event != HEARTBEAT:
                    self._changed()
        except ClientError:
            pass  # likewise
        finally:
            client.close()
        was_heard, self.hears = self.hears, False
        if was_heard and not self._closed.is_set():
            self._changed()
        return was_heard


def names_of_events(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Of a stream of server-sent events, however it is cut."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[:NAME_BYTES]
        yield from (line[len(NAME) :] for line in lines if line.startswith(NAME))


class Heard:
    """Pauses that end when something has changed; the first one begins to listen, and ``with`` ends it."""

    def __init__(self, connect: Callable[[], Client], experiment_id: str) -> None:
        self._changed = threading.Event()
        self._listener = Listener(connect, experiment_id, self._changed.set)

    @property
    def hears(self) -> bool:
        return self._listener.hears

    def pause(self, seconds: float) -> None:
        """For so long, or until something has changed since the last pause."""
        self._listener.start()
        self._changed.wait(seconds)
        self._changed.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._listener.close()
