"""Effects done: each order becomes one message, or one call."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import assert_never

from trials.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Busy,
    DeleteCheckpoint,
    Forget,
    FurtherParameters,
    Launch,
    RemoveExperiment,
    Stop,
    Welcome,
)
from tuner_service.dispatcher import effects as e
from tuner_service.ports import Workers
from tuner_service.service.cluster import AgentHub

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Performer:
    hub: AgentHub
    workers: Workers
    lineage: str
    checkpoint_store: str = ""  # a folder or a URL; empty: each agent's own folder

    def perform(self, effect: e.Effect) -> None:
        """Carry ``effect`` out. Repeating one that was carried out is harmless."""
        match effect:
            case e.StartWorker():
                self.workers.start(effect)
            case e.Deliver():
                self.workers.deliver(effect)
            case e.PingWorker():
                self.workers.ping(effect)
            case e.StopWorker():
                self.workers.stop(effect.experiment_id)
            case e.RemoveExperimentFolders():
                self.hub.send_to_all(RemoveExperiment(experiment_id=effect.experiment_id))
            case e.WarnQueueLength():
                fields = {"experiment_id": effect.experiment_id, "queue": effect.queue.value, "depth": effect.depth}
                logger.warning("a queue is long", extra=fields)
            case e.WarnNoCheckpoint():
                fields = {"experiment_id": effect.experiment_id, "trial": effect.number}
                logger.warning("a trial saved no checkpoint: promoted or forked, it begins anew", extra=fields)
            case _:
                self._tell_agent(effect)

    def _tell_agent(
        self,
        effect: e.WelcomeAgent
        | e.LaunchAttempt
        | e.StopAttempt
        | e.SendParameters
        | e.AcknowledgeReports
        | e.RefuseReports
        | e.ForgetAttempt
        | e.DeleteCheckpointFile,
    ) -> None:
        match effect:
            case e.WelcomeAgent():
                welcome = Welcome(
                    version=PROTOCOL_VERSION,
                    lineage=self.lineage,
                    acknowledged=effect.acknowledged,
                    checkpoint_store=self.checkpoint_store,
                )
                self.hub.send(effect.agent_id, welcome)
            case e.LaunchAttempt():
                launch = Launch(key=effect.key, nonce=effect.nonce, lineage=effect.lineage, spec=effect.spec)
                self.hub.send(effect.agent_id, launch)
            case e.StopAttempt():
                stop = Stop(key=effect.key, nonce=effect.nonce, grace_s=effect.grace_s, reason=effect.reason)
                self.hub.send(effect.agent_id, stop)
            case e.SendParameters():
                further = FurtherParameters(
                    key=effect.key, nonce=effect.nonce, index=effect.index, parameters=effect.parameters
                )
                self.hub.send(effect.agent_id, further)
            case e.AcknowledgeReports():
                self.hub.send(effect.agent_id, Acknowledge(nonce=effect.nonce, sequence=effect.sequence))
            case e.RefuseReports():
                self.hub.send(effect.agent_id, Busy(nonce=effect.nonce, retry_after_s=effect.retry_after_s))
            case e.ForgetAttempt():
                self.hub.send(effect.agent_id, Forget(nonce=effect.nonce))
            case e.DeleteCheckpointFile():
                order = DeleteCheckpoint(nonce=effect.nonce, name=effect.name, location=effect.location)
                self.hub.send(effect.agent_id, order)
            case _:
                assert_never(effect)
