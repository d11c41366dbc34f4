"""What an agent observes against what the rows say: a pure function from both to what has to happen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trials.wire.attempt import AttemptKey
from trials.wire.messages import ObservedAttempt
from trials.wire.records import ProcessRecord
from tuner_service.domain.trial import Attempt, AttemptStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """The rows' attempt is alive: its reports are read on from the acknowledged sequence."""

    nonce: str
    process: ProcessRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitExit:
    """It ended and its exit is recorded: the agent sends what is left of its reports, then the exit."""

    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAgain:
    """It was owed and never started: the same nonce is ordered again."""

    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareLost:
    """It ran, or reported at least, and nobody holds it any more."""

    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStray:
    """Alive, of this database's lineage, and not believed: stopped, the whole tree."""

    key: AttemptKey
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetStray:
    """Ended, of this database's lineage, and not believed: its exit is in the rows already, or never mattered."""

    nonce: str


Finding = Adopt | AwaitExit | LaunchAgain | DeclareLost | StopStray | ForgetStray


def reconcile(
    believed: Mapping[str, Attempt], observed: Iterable[ObservedAttempt], *, lineage: str
) -> tuple[Finding, ...]:
    """``believed``: the live attempts the rows give to this agent, by nonce. Other lineages are left alone."""
    findings: list[Finding] = []
    held = {o.nonce: o for o in observed}
    for nonce, attempt in believed.items():
        seen = held.get(nonce)
        if seen is not None and seen.exit is None:
            findings.append(Adopt(nonce=nonce, process=seen.process))
        elif seen is not None:
            findings.append(AwaitExit(nonce=nonce))
        elif attempt.status is AttemptStatus.STARTING and not attempt.acknowledged:
            findings.append(LaunchAgain(nonce=nonce))
        else:
            findings.append(DeclareLost(nonce=nonce))
    for nonce, seen in held.items():
        if nonce in believed or seen.lineage != lineage:
            continue
        findings.append(StopStray(key=seen.key, nonce=nonce) if seen.exit is None else ForgetStray(nonce=nonce))
    return tuple(findings)
