"""What experiments ask of the runner and of the hub of agents, who are given to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from trials.wire.attempt import AttemptKey
from trials.wire.devices import NodeDevice
from trials.wire.messages import Hello, LogChunk
from tuner_service.dispatcher.commands import Command
from tuner_service.dispatcher.totals import Totals
from tuner_service.domain.experiment import ExperimentId
from tuner_service.service.cluster import Channel
from tuner_service.service.measures import Measures


class Commands(Protocol):
    """The runner, as the API uses it."""

    def submit(self, command: Command) -> Future[None]:
        """Resolves when ``command`` is on disk, or with the domain error that refused it."""

    def readiness(self) -> dict[str, str]:
        """Part → "ok" or the trouble."""

    def commit_hangs(self) -> str:
        """What is wrong, and what to do, while a commit does not return; else ""."""

    def queue_depths(self, experiment_id: ExperimentId) -> dict[str, int]:
        """How many lines wait for each algorithm, about now."""

    def totals(self) -> Totals | None:
        """What all experiments come to, about now; None while the database takes no writes."""

    def waiting(self) -> int:
        """How many commands wait to be taken, about now."""

    @property
    def measures(self) -> Measures: ...


class Agents(Protocol):
    """The agents connected now, as the API uses them."""

    async def read_log(  # noqa: PLR0913  # the fields of one ReadLog message
        self, agent_id: str, key: AttemptKey, *, nonce: str, stream: str, offset: int, limit: int
    ) -> LogChunk:
        """UnavailableError when the agent is away."""

    def agents(self) -> Sequence[Hello]: ...

    def close_those_who_may_not(self) -> None:
        """Agents whose tokens are no longer good are hung up on."""

    def channels(self) -> Sequence[Channel]: ...

    async def drain(self, agent_id: str, *, on: bool) -> None:
        """UnavailableError when the agent is away, or does not say in time that it is so."""

    def hang_up(self, agent_id: str) -> bool: ...

    def devices(self) -> Mapping[str, Sequence[NodeDevice]]:
        """By agent, as each of them told last."""
