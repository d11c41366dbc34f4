"""Who draws from the generators that all of a process share: those of random, NumPy and torch.

An algorithm worker calls its tuner and its assessor in a thread each. What draws from a shared generator seeds it
first, so that its draws follow from the experiment's seed; and somebody else's draw in between would change them.
"""

from __future__ import annotations

import threading


class InTurn:
    """A lock that is given to those who wait for it in the order in which they came; its holder may take it again."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._came = self._served = 0
        self._holder: int | None = None
        self._again = 0  # times that the holder has taken it beside the first

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._changed:
            if self._holder == me:
                self._again += 1
                return
            mine, self._came = self._came, self._came + 1
            self._changed.wait_for(lambda: self._served == mine)
            self._holder = me

    def __exit__(self, *_: object) -> None:
        with self._changed:
            if self._again:
                self._again -= 1
                return
            self._holder = None
            self._served += 1
            self._changed.notify_all()


alone = InTurn()  # held by whoever draws from a shared generator, or may
