"""A server that hangs while its connections stay up: whoever reads is told so, and waits no longer.

No limit of the server's own ends a statement then, and TCP has nothing to repeat: the kernel has taken every byte. A
read that has heard nothing for ``SILENT_S`` looks whether the server answers somebody else; where it does, the
statement may take its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

SILENT_S = 8.0  # after so long without a byte a read looks whether the server answers
REFUSED_S = 2.0  # after it did not; then the next read looks again
MOST_S = 150.0  # a read waits for one answer: longer than the server lets it take

HANGS = (
    "the server does not answer, though its machine keeps the connection; see whether it was stopped, or its disk hangs"
)


class Silence:
    """``answers``: whether the server lets somebody in, which may take some seconds. Any thread."""

    def __init__(self, answers: Callable[[], bool], elapsed: Callable[[], float] = time.monotonic) -> None:
        self._answers, self._elapsed = answers, elapsed
        self._refused_until = 0.0

    @property
    def is_on(self) -> bool:
        """Whether the server did not answer a moment ago."""
        return self._elapsed() < self._refused_until

    def begin(self) -> None:
        self._refused_until = self._elapsed() + REFUSED_S

    def watch(self, connection: psycopg.Connection[Any], error: Callable[[str], Exception]) -> None:
        """Whatever is asked on ``connection`` from now on ends with ``error`` where the server does not answer."""
        wait = connection.wait

        def watched(gen: Generator[Any, Any, Any], *args: Any, **named: Any) -> Any:
            return wait(self.watched(gen, partial(self._give_up, connection, error)), *args, **named)

        connection.wait = watched  # type: ignore[method-assign]  # of this connection alone

    def watched(self, gen: Generator[Any, Any, Any], give_up: Callable[[], Exception]) -> Generator[Any, Any, Any]:
        """``gen``, which waits for a socket and is woken now and then though nothing has come."""
        begun = looked = self._elapsed()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = self._elapsed()
                if ready:
                    begun = looked = now
                elif now - begun > MOST_S or (now - looked > SILENT_S and not self._answers()):
                    self.begin()
                    raise give_up()
                elif now - looked > SILENT_S:
                    looked = self._elapsed()
                wanted = gen.send(ready)
        except StopIteration as done:
            return done.value

    def _give_up(self, connection: psycopg.Connection[Any], error: Callable[[str], Exception]) -> Exception:
        connection.pgconn.finish()  # what it would answer one day belongs to nobody
        return error(HANGS)
