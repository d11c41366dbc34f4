"""Nodes that an executor brings: one is given back, or gone."""

from __future__ import annotations

from tuner_service.dispatcher.agents import lose
from tuner_service.dispatcher.commands import AgentLost, AgentRetired
from tuner_service.dispatcher.limits import RETIRED_LIMIT
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.trial import EVALUATOR


def retired(step: Step, command: AgentRetired) -> None:
    """What runs there is still believed; its end is what frees the node."""
    if command.only_idle and _running_on(step, command.agent_id):
        raise ConflictError(f"trials run on agent {command.agent_id!r}")
    step.state.agents.pop(command.agent_id, None)
    step.state.retired[command.agent_id] = None
    if len(step.state.retired) > RETIRED_LIMIT:
        del step.state.retired[next(iter(step.state.retired))]


def lost(step: Step, command: AgentLost) -> list[ExperimentState]:
    """Its trials go on elsewhere, uncharged; should it come back all the same, what runs there is stopped."""
    step.state.agents.pop(command.agent_id, None)
    found = _running_on(step, command.agent_id)
    for ts in found:
        lose(ts)
    return [ts.xs for ts in found]


def _running_on(step: Step, agent_id: str) -> list[TrialStep]:
    return [
        step.trial(xs, attempt.key.number)
        for xs in step.all()
        for attempt in list(xs.attempts.values())
        if attempt.agent_id == agent_id != EVALUATOR
    ]
