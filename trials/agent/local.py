"""What runs on this machine, and stopping it, without any service or agent."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from trials.agent.attempts import HeldAttempt, load_attempt
from trials.agent.home import Home
from trials.protocol import AttemptKey

STOP_MARGIN_S = 15.0  # beyond the grace, for the supervisor to record the end
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAttempt:
    """``pid`` is None before the trial runs. ``cause`` is None while it is alive."""

    key: AttemptKey
    nonce: str
    folder: Path
    pid: int | None
    alive: bool
    cause: str | None


def list_local(home: Path) -> list[LocalAttempt]:
    """Attempts under ``home`` that the service has not been told the end of, in the order of their keys."""
    found = [_local(held) for held in _claimed(Home(home))]
    return sorted(found, key=lambda attempt: (attempt.key.experiment_id, attempt.key.number, attempt.key.attempt))


def stop_local(home: Path, key: AttemptKey | None = None, *, grace_s: float = 30.0) -> list[LocalAttempt]:
    """Stop the attempt ``key``, or all; returns those that were running, as they are now.

    Waits for their ends, for ``grace_s`` and STOP_MARGIN_S at most; whoever is still alive then says so.
    The service learns of it when it is back.
    """
    running = [held for held in _claimed(Home(home)) if held.is_supervised() and key in {None, held.key}]
    for held in running:
        held.order_stop(grace_s=grace_s, reason="stopped on the machine")
    deadline = time.monotonic() + grace_s + STOP_MARGIN_S
    while any(held.is_supervised() for held in running) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for held in running:
        held.look()
    return [_local(held) for held in running]


def _claimed(home: Home) -> list[HeldAttempt]:
    loaded = [load_attempt(folder) for folder in home.live().values()]
    return [held for held in loaded if held is not None and held.supervisor is not None]


def _local(held: HeldAttempt) -> LocalAttempt:
    return LocalAttempt(
        key=held.key,
        nonce=held.nonce,
        folder=held.folder,
        pid=None if held.process is None else held.process.pid,
        alive=held.is_supervised(),
        cause=None if held.exit is None else held.exit.cause,
    )
