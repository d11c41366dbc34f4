"""Parts of attempts of several nodes that are ready, and wait for the order to begin.

A part that is ready runs nothing: its folder is complete, and on the first node a port is kept for it. Whoever hears no
order about it for as long as it was told gives it back.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

from trials.wire.attempt import AttemptKey
from trials.wire.messages import Launch, Prepare, Stop

PREPARED_S = 60.0  # of one that an earlier agent has prepared, which was told how long and is gone
NOT_ORDERED = "not_ordered"


class PortTakenError(Exception):
    """Another program listens where the first process is to; the text says so."""


@dataclass(kw_only=True)
class _Ready:
    key: AttemptKey
    timer: asyncio.TimerHandle
    limit_s: float
    port: socket.socket | None = None


class ReadyParts:
    """Lives in one event loop. ``give_back`` is told of one that was waited with for long enough, and why."""

    def __init__(self, give_back: Callable[[Stop, str], None]) -> None:
        self._give_back = give_back
        self._ready: dict[str, _Ready] = {}
        self._begun: dict[str, socket.socket] = {}  # ports of parts that run, kept until they have ended
        self.on_ready: Callable[[AttemptKey, str, int], None] = lambda *_: None

    def __contains__(self, nonce: str) -> bool:
        return nonce in self._ready

    def take(self, order: Prepare) -> None:
        """It is ready. OSError where the first node has no port to give."""
        world = order.spec.world
        port = _kept_port(0) if world is not None and world.node == 0 else None
        self._wait(order.key, order.nonce, limit_s=order.limit_s, port=port)
        self.say(order.nonce)

    def say(self, nonce: str) -> None:
        """Tell once more that it is ready, and wait as long as at first."""
        ready = self._ready[nonce]
        ready.timer.cancel()
        ready.timer = self._timer(ready.key, nonce, ready.limit_s)
        self.on_ready(ready.key, nonce, 0 if ready.port is None else int(ready.port.getsockname()[1]))

    def adopt(self, key: AttemptKey, nonce: str) -> None:
        """One that an earlier agent has prepared; its port is not kept any more."""
        self._wait(key, nonce, limit_s=PREPARED_S, port=None)

    def begin(self, launch: Launch) -> None:
        """It was ordered to begin. PortTakenError where its port is not free any more.

        The port stays bound, and nobody listens there: a process that says SO_REUSEADDR, as PyTorch's store and most
        servers do, may take it, and nobody is given it who asks for any.
        """
        kept = self._let_go(launch.nonce)
        world = launch.spec.world
        if world is None or world.node:
            return
        if kept is None or kept.getsockname()[1] != world.port:
            try:
                kept = _kept_port(world.port)
            except OSError as error:
                raise PortTakenError(
                    f"port {world.port}, where its first process is to listen, is taken: {error}"
                ) from error
        elif _is_listened_to(world.port):
            kept.close()
            raise PortTakenError(f"another program listens on port {world.port}, where its first process is to")
        self._begun[launch.nonce] = kept

    def end(self, nonce: str) -> None:
        """It has ended, or never will begin."""
        port = self._let_go(nonce) or self._begun.pop(nonce, None)
        if port is not None:
            port.close()

    def close(self) -> None:
        for nonce in [*self._ready, *self._begun]:
            self.end(nonce)

    def _wait(self, key: AttemptKey, nonce: str, *, limit_s: float, port: socket.socket | None) -> None:
        self.end(nonce)
        self._ready[nonce] = _Ready(key=key, timer=self._timer(key, nonce, limit_s), limit_s=limit_s, port=port)

    def _timer(self, key: AttemptKey, nonce: str, limit_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(limit_s, self._over, key, nonce, limit_s)

    def _over(self, key: AttemptKey, nonce: str, limit_s: float) -> None:
        self.end(nonce)
        why = f"it was ready, and heard nothing of the service for {limit_s:g} s"
        self._give_back(Stop(key=key, nonce=nonce, grace_s=0.0, reason=NOT_ORDERED), why)

    def _let_go(self, nonce: str) -> socket.socket | None:
        ready = self._ready.pop(nonce, None)
        if ready is None:
            return None
        ready.timer.cancel()
        return ready.port


def _kept_port(number: int) -> socket.socket:
    """Bound to this port, or to a free one for 0, at every address, without listening."""
    kept = socket.socket()
    try:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("", number))
    except BaseException:
        kept.close()
        raise
    return kept


def _is_listened_to(number: int) -> bool:
    """Whether somebody has taken it meanwhile, which SO_REUSEADDR lets them."""
    with socket.socket() as asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asking.bind(("", number))
        except OSError:
            return True
    return False
