"""What people and agents want of whole nodes: in trouble, drained, given up."""

from __future__ import annotations

from dataclasses import replace

from tuner_service.dispatcher import agents, launching
from tuner_service.dispatcher.commands import NodeChanged, NodeRemoved
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep, Why
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.trial import EVALUATOR, TrialReason, TrialStatus


def changed(step: Step, command: NodeChanged) -> None:
    """What runs there runs on; nothing is started there while it is in trouble."""
    node = step.state.agents.get(command.agent_id)
    if node is not None:
        step.state.agents[command.agent_id] = replace(node, trouble=command.trouble, drained=command.drained)
        step.state.placement_is_due = True
        if command.drained:
            make_room(step, command.agent_id)


def make_room(step: Step, agent_id: str) -> None:
    """What runs there is told to save and leave, and goes on elsewhere, uncharged."""
    why = Why(reason=TrialReason.PREEMPTED, message=f"agent {agent_id} is drained; goes on elsewhere")
    for ts in step.one_by_one(running_on(step, agent_id)):
        if ts.trial.status is TrialStatus.RUNNING:
            launching.ask_to_stop(ts, why)


def removed(step: Step, command: NodeRemoved) -> list[ExperimentState]:
    """Its trials go on elsewhere, uncharged; should it come back all the same, what runs there is stopped."""
    found = running_on(step, command.agent_id)
    if found and not command.force:
        raise ConflictError(
            f"{'1 trial runs' if len(found) == 1 else f'{len(found)} trials run'} on agent {command.agent_id!r}; drain "
            "it first, or let what runs there be lost and go on elsewhere with --force",
            ("drain",),
        )
    step.state.let_node_go(command.agent_id)
    for ts in step.one_by_one(found):
        agents.lose_on(ts, command.agent_id)
    return list(step.all())


def running_on(step: Step, agent_id: str) -> list[TrialStep]:
    """Those that an agent has, and no evaluator."""
    return [
        step.trial(xs, attempt.key.number)
        for xs in step.all()
        for attempt in list(xs.attempts.values())
        if agent_id != EVALUATOR and attempt.is_held_by(agent_id)
    ]
