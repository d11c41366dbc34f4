"""Agents without a connection: what they hold is given up in the end, where the service is told to.

A short silence says nothing: a service is restarted, a network comes back. After ``service_lost_timeout`` the agent
ends its trials by itself, and once these have had the time to save, they go on elsewhere. Should the agent be there all
the same, what it runs is stopped, and what it reports is refused.
"""

from __future__ import annotations

from tuner_service.dispatcher import agents
from tuner_service.dispatcher.nodes import running_on
from tuner_service.dispatcher.step import Step
from tuner_service.domain.trial import EVALUATOR


def begin(step: Step) -> None:
    """Of a service that has just started: nobody is connected yet, and all that rows name are waited for anew."""
    for xs in step.all():
        for attempt in xs.attempts.values():
            for agent_id in attempt.agent_ids - {EVALUATOR}:
                step.state.away[agent_id] = step.at


def time_passed(step: Step) -> None:
    away, limit_s = step.state.away, step.state.service_lost_s
    for agent_id in [name for name, since in away.items() if limit_s is None or step.at - since >= limit_s]:
        if limit_s is None:
            del away[agent_id]  # nobody is given up
        else:
            _give_up(step, agent_id, limit_s=limit_s)


def _give_up(step: Step, agent_id: str, *, limit_s: float) -> None:
    """Each trial once its agent has let it save. The agent is minded for as long as it holds any."""
    silent_s = step.at - step.state.away[agent_id]
    why = f"agent {agent_id} was not connected for {limit_s:g} s (service_lost_timeout)"
    left_over = False
    for ts in step.one_by_one(running_on(step, agent_id)):
        if silent_s >= limit_s + ts.spec.trial.stop_grace_s:
            agents.lose_on(ts, agent_id, why=why)
        else:
            left_over = True
    if not left_over:
        del step.state.away[agent_id]
