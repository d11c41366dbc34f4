"""Effects done: each order is one message, one call, or one line of the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from trials.wire.messages import PROTOCOL_VERSION, DeleteCheckpoint, RemoveExperiment, Welcome
from tuner_service.dispatcher import effects as e
from tuner_service.ports import Workers
from tuner_service.service.cluster import AgentHub

logger = logging.getLogger(__name__)


def _nothing(_: str) -> None:
    """Nodes have sent nothing."""


@dataclass(frozen=True, kw_only=True)
class Performer:
    hub: AgentHub
    workers: Workers
    lineage: str
    checkpoint_store: str = ""  # a folder or a URL; empty: each agent's own folder
    asset_store: str = ""  # a folder or a URL
    asset_staging: str = ""  # the folder in which assets are taken in
    asset_cache_bytes: int = 0  # of what a node keeps of them
    service_lost_s: float | None = None
    removed: Callable[[str], None] = _nothing  # of what nodes have sent: a checkpoint, by where it lies
    removed_experiment: Callable[[str], None] = _nothing  # and all of an experiment

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
            case e.Tell(message=message):
                if not isinstance(message, DeleteCheckpoint):
                    self.hub.send(effect.agent_id, message)
                    return
                if message.location is not None:
                    self.removed(message.location)
                self.hub.send_owed(effect.agent_id, message)  # no row says any more that there is a file
            case e.TellAll(message=message):
                if isinstance(message, RemoveExperiment):
                    self.removed_experiment(message.experiment_id)
                self.hub.send_to_all(message)
            case e.WelcomeAgent():
                welcome = Welcome(
                    version=PROTOCOL_VERSION,
                    lineage=self.lineage,
                    acknowledged=effect.acknowledged,
                    checkpoint_store=self.checkpoint_store,
                    asset_store=self.asset_store,
                    asset_staging=self.asset_staging,
                    asset_cache_bytes=self.asset_cache_bytes,
                    service_lost_s=self.service_lost_s,
                )
                self.hub.send(effect.agent_id, welcome)
                self.hub.welcomed(effect.agent_id)
            case e.WarnQueueLength():
                fields = {"experiment": effect.experiment_id, "queue": effect.queue.value, "depth": effect.depth}
                logger.warning("queue_is_long", extra=fields)
            case e.WarnNoCheckpoint():
                fields = {"experiment": effect.experiment_id, "trial": effect.number}
                logger.warning("trial_begins_anew", extra=fields)
            case _:
                assert_never(effect)
