"""What runs on this machine, and stopping it, without any service or agent."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trials.agent.attempts import NEVER_STARTED, HeldAttempt, load_attempt
from trials.agent.home import Home
from trials.processes.identity import tree
from trials.wire.attempt import AttemptKey
from trials.wire.files import FILE_CLAIM
from trials.wire.records import ExitCause

STOP_MARGIN_S = 15.0  # beyond the grace, for the supervisor to record the end
UNWRITTEN_AFTER_S = 2.0  # a trial that ended this long ago and has no record yet waits for room on the disk
STOPPED_HERE = "stopped on the machine"
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAttempt:
    """``pid`` is None before the trial runs, ``cause`` before its end was written down.

    ``waits``: all is ready, and nobody has begun to start it, as while its fork server imports what it is to find
    there. ``unwritten``: nothing of it runs any more, and its supervisor waits for room on the disk to write down how
    it ended.
    """

    key: AttemptKey
    nonce: str
    folder: Path
    pid: int | None
    alive: bool
    cause: str | None
    waits: bool = False
    unwritten: bool = False


def list_local(home: Path) -> list[LocalAttempt]:
    """Attempts under ``home`` that the service has not been told the end of, in the order of their keys."""
    found = [_local(held) for held in _found(Home(home)) if held.supervisor is not None or _waits(held)]
    return sorted(found, key=lambda attempt: (attempt.key.experiment_id, attempt.key.number, attempt.key.attempt))


def stop_local(home: Path, keys: Collection[AttemptKey] | None = None, *, grace_s: float = 30.0) -> list[LocalAttempt]:
    """Stop the attempts of ``keys``, or all, at the same time; returns those that ran or waited, as they are now.

    Waits for their ends, for ``grace_s`` and STOP_MARGIN_S at most; whoever is still alive then says so.
    The service learns of it when it is back.
    """
    wanted = [held for held in _found(Home(home)) if keys is None or held.key in keys]
    running = [held for held in wanted if held.is_supervised() or _waits(held)]
    for held in running:
        waits = _waits(held)
        held.order_stop(grace_s=grace_s, reason=STOPPED_HERE)
        if waits:  # who claims it first decides; a parent that does finds the order
            with suppress(OSError):
                held.spend(ExitCause.STOPPED, tail=NEVER_STARTED, reason=STOPPED_HERE)
    left, unwritten, since = [held for held in running if _runs(held)], list[HeldAttempt](), dict[str, float]()
    deadline = time.monotonic() + grace_s + STOP_MARGIN_S
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = [held for held in left if _runs(held)]
        for held in [held for held in left if held.process is not None and not held.trial_is_alive()]:
            if time.monotonic() - since.setdefault(held.nonce, time.monotonic()) > UNWRITTEN_AFTER_S:
                left.remove(held)
                unwritten.append(held)
    for held in running:
        held.look()
    return [_local(held, unwritten=held in unwritten and held.is_supervised()) for held in running]


def _found(home: Home) -> list[HeldAttempt]:
    loaded = [load_attempt(folder) for folder in home.live().values()]
    # Those of a format that another version has brought are that version's to list and to stop.
    return [held for held in loaded if held is not None and held.unreadable is None]


def _waits(held: HeldAttempt) -> bool:
    """Where its trial has taken the claim away, or damaged it, something of it runs."""
    has_claim = held.supervisor is not None or os.path.lexists(held.folder / FILE_CLAIM)
    return not has_claim and held.exit is None and held.damage is None and not tree(None, held.nonce)


def _runs(held: HeldAttempt) -> bool:
    """Not where this very process has claimed it, so that it never starts."""
    is_supervised = held.is_supervised()
    return is_supervised and held.supervisor is not None and held.supervisor.pid != os.getpid()


def _local(held: HeldAttempt, *, unwritten: bool = False) -> LocalAttempt:
    return LocalAttempt(
        key=held.key,
        nonce=held.nonce,
        folder=held.folder,
        pid=None if held.process is None else held.process.pid,
        alive=_runs(held) and not unwritten,
        cause=None if held.exit is None else held.exit.cause,
        waits=_waits(held),
        unwritten=unwritten,
    )
