"""What agents are told of an attempt: to start it, or each of its parts, and to stop it.

What is owed follows from the rows, so that it is the same after a crash: see ``_owed``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from trials.wire.launch import CheckpointRef, GivenDevice, LaunchSpec, World, settings_of
from trials.wire.messages import Launch, Prepare, Stop
from tuner_service.dispatcher.limits import PREPARE_LIMIT_S
from tuner_service.dispatcher.step import TrialStep
from tuner_service.domain.resources import Holding
from tuner_service.domain.seeds import trial_seed
from tuner_service.domain.trial import EVALUATOR, Part, PartState, TrialReason, TrialStatus

PART_FAILED = "part_failed"  # why the other parts of an attempt are stopped


def order_launch(ts: TrialStep) -> None:
    """Owe the launch of a starting attempt. Ordering it again is harmless: the nonce is spent once."""
    attempt = ts.live
    if attempt.parts:
        order_parts(ts)
        return
    ts.xs.ordered_at[ts.number] = ts.step.at
    spec = _spec(ts, attempt.holdings, None)
    ts.tell(Launch(key=attempt.key, nonce=attempt.nonce, lineage=attempt.lineage, spec=spec))


def order_stop(ts: TrialStep, reason: TrialReason) -> None:
    """Nobody is told where an evaluator holds it, from whom it is taken back."""
    attempt = ts.live
    if attempt.agent_id == EVALUATOR:
        return
    ts.xs.ordered_at[ts.number] = ts.step.at
    for part in attempt.parts or (Part(agent_id=attempt.agent_id, nonce=attempt.nonce),):
        if part.state is not PartState.ENDED:
            ts.step.tell(part.agent_id, _stop(ts, part.nonce, reason.value))


# ── of several nodes ────────────────────────────────────────────────────────────────────────────
def order_parts(ts: TrialStep) -> None:
    """Tell every part's agent what it is owed. Repeating it is harmless."""
    for node in range(len(ts.live.parts)):
        order_part(ts, node)


def order_part(ts: TrialStep, node: int) -> None:
    ts.xs.ordered_at[ts.number] = ts.step.at
    if (message := _owed(ts, node)) is not None:
        ts.step.tell(ts.live.parts[node].agent_id, message)


def give_back(ts: TrialStep) -> None:
    """No part was ordered to begin, and none ever will be."""
    for part in ts.live.parts:
        if part.state is not PartState.ENDED:
            stop = Stop(key=ts.live.key, nonce=part.nonce, grace_s=0.0, reason=TrialReason.NODES_NOT_READY.value)
            ts.step.tell(part.agent_id, stop)


def is_owed_anything(ts: TrialStep) -> bool:
    """Whether an agent is to be told something that it has not confirmed."""
    return any(_owed(ts, node) is not None for node in range(len(ts.live.parts)))


def _owed(ts: TrialStep, node: int) -> Prepare | Launch | Stop | None:
    """What the agent of this part is to be told by now; None where it does what is wanted.

    A part begins only once all are ready, and the rows say so before the first of them is told: whatever is killed in
    between, the others are told the same.
    """
    attempt, trial = ts.live, ts.trial
    part = attempt.parts[node]
    if part.state is PartState.ENDED:
        return None
    if trial.status is TrialStatus.STOPPING or attempt.has_failed_part:
        return _stop(ts, part.nonce, trial.reason.value if trial.status is TrialStatus.STOPPING else PART_FAILED)
    held = attempt.holdings[node : node + 1]
    if attempt.is_preparing:
        spec = _spec(ts, held, World(node=node))
        return Prepare(key=attempt.key, nonce=part.nonce, lineage=attempt.lineage, spec=spec, limit_s=PREPARE_LIMIT_S)
    if part.state is PartState.READY:
        first = attempt.parts[0]
        world = World(node=node, address=_address(attempt.parts), port=first.port, key=first.world_key)
        return Launch(key=attempt.key, nonce=part.nonce, lineage=attempt.lineage, spec=_spec(ts, held, world))
    return None


def _stop(ts: TrialStep, nonce: str, reason: str) -> Stop:
    return Stop(key=ts.live.key, nonce=nonce, grace_s=ts.spec.trial.stop_grace_s, reason=reason)


def _address(parts: Sequence[Part]) -> str:
    """Where all of them reach the first: its loopback address is no use to those of another machine."""
    first = parts[0]
    try:
        is_loopback = ipaddress.ip_address(first.address).is_loopback
    except ValueError:
        is_loopback = first.address == "localhost"
    return first.host if is_loopback and any(part.host != first.host for part in parts) else first.address


def _spec(ts: TrialStep, holdings: Sequence[Holding], world: World | None) -> LaunchSpec:
    trial, spec = ts.trial, ts.spec
    newest_first = reversed(ts.checkpoints)
    return LaunchSpec(
        **settings_of(spec.trial),
        parameters=trial.parameters,
        seed=trial_seed(spec.seed, ts.number),
        objective=spec.objective.metric,
        checkpoints=tuple(
            CheckpointRef(digest=c.digest, step=c.step, size=c.size, path=c.location) for c in newest_first
        ),
        further_parameters=trial.further_parameters,
        until_step=trial.rungs.until_step,
        devices=_given(holdings),
        world=world,
    )


def _given(holdings: Sequence[Holding]) -> tuple[GivenDevice, ...]:
    return tuple(GivenDevice(uuid=uuid, share=share) for one in holdings for uuid, share in one.shares.items())
