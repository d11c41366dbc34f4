"""Nodes that an executor brings: one is given back, or gone."""

from __future__ import annotations

from tuner_service.dispatcher.agents import lose_on
from tuner_service.dispatcher.commands import AgentLost, AgentRetired
from tuner_service.dispatcher.limits import RETIRED_LIMIT
from tuner_service.dispatcher.nodes import running_on
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step
from tuner_service.domain.errors import ConflictError


def retired(step: Step, command: AgentRetired) -> None:
    """What runs there is still believed; its end is what frees the node."""
    if command.only_idle and running_on(step, command.agent_id):
        raise ConflictError(f"trials run on agent {command.agent_id!r}")
    step.state.let_node_go(command.agent_id)
    step.state.retired[command.agent_id] = None
    if len(step.state.retired) > RETIRED_LIMIT:
        del step.state.retired[next(iter(step.state.retired))]


def lost(step: Step, command: AgentLost) -> list[ExperimentState]:
    """Its trials go on elsewhere, uncharged; should it come back all the same, what runs there is stopped."""
    step.state.let_node_go(command.agent_id)
    found = running_on(step, command.agent_id)
    for ts in step.one_by_one(found):
        lose_on(ts, command.agent_id)
    return [ts.xs for ts in found]
