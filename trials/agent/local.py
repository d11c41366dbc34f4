"""What runs on this machine, and stopping it, without any service or agent."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from trials.agent.attempts import HeldAttempt, load_attempt
from trials.agent.home import Home
from trials.wire.attempt import AttemptKey

STOP_MARGIN_S = 15.0  # beyond the grace, for the supervisor to record the end
UNWRITTEN_AFTER_S = 2.0  # a trial that ended this long ago and has no record yet waits for room on the disk
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAttempt:
    """``pid`` is None before the trial runs. ``cause`` is None while it is alive, and while its end is ``unwritten``:

    nothing of it runs any more, and its supervisor waits for room on the disk to write down how it ended.
    """

    key: AttemptKey
    nonce: str
    folder: Path
    pid: int | None
    alive: bool
    cause: str | None
    unwritten: bool = False


def list_local(home: Path) -> list[LocalAttempt]:
    """Attempts under ``home`` that the service has not been told the end of, in the order of their keys."""
    found = [_local(held) for held in _claimed(Home(home))]
    return sorted(found, key=lambda attempt: (attempt.key.experiment_id, attempt.key.number, attempt.key.attempt))


def stop_local(home: Path, keys: Collection[AttemptKey] | None = None, *, grace_s: float = 30.0) -> list[LocalAttempt]:
    """Stop the attempts of ``keys``, or all, at the same time; returns those that were running, as they are now.

    Waits for their ends, for ``grace_s`` and STOP_MARGIN_S at most; whoever is still alive then says so.
    The service learns of it when it is back.
    """
    running = [held for held in _claimed(Home(home)) if held.is_supervised() and (keys is None or held.key in keys)]
    for held in running:
        held.order_stop(grace_s=grace_s, reason="stopped on the machine")
    left, unwritten, since = list(running), list[HeldAttempt](), dict[str, float]()
    deadline = time.monotonic() + grace_s + STOP_MARGIN_S
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = [held for held in left if held.is_supervised()]
        for held in [held for held in left if held.process is not None and not held.trial_is_alive()]:
            if time.monotonic() - since.setdefault(held.nonce, time.monotonic()) > UNWRITTEN_AFTER_S:
                left.remove(held)
                unwritten.append(held)
    for held in running:
        held.look()
    return [_local(held, unwritten=held in unwritten and held.is_supervised()) for held in running]


def _claimed(home: Home) -> list[HeldAttempt]:
    loaded = [load_attempt(folder) for folder in home.live().values()]
    # Those of a format that another version has brought are that version's to list and to stop.
    return [held for held in loaded if held is not None and held.supervisor is not None and held.unreadable is None]


def _local(held: HeldAttempt, *, unwritten: bool = False) -> LocalAttempt:
    return LocalAttempt(
        key=held.key,
        nonce=held.nonce,
        folder=held.folder,
        pid=None if held.process is None else held.process.pid,
        alive=held.is_supervised() and not unwritten,
        cause=None if held.exit is None else held.exit.cause,
        unwritten=unwritten,
    )
