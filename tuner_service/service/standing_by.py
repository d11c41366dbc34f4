"""The service while it stands by: its reads are those of the rows, and whatever would change them is refused."""

from __future__ import annotations

from concurrent.futures import Future

from tuner_service.dispatcher.commands import Command
from tuner_service.dispatcher.totals import Totals
from tuner_service.domain.errors import UnavailableError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.service.measures import Measures

STANDS_BY = "this service is a standby"


class NoCommands:
    """Implements ``experiments.Commands`` where another service has the database."""

    def __init__(self) -> None:
        self._measures = Measures()

    def submit(self, command: Command) -> Future[None]:
        del command
        refused: Future[None] = Future()
        refused.set_exception(UnavailableError(f"{STANDS_BY} and changes nothing"))
        return refused

    def readiness(self) -> dict[str, str]:
        return {"lease": STANDS_BY}

    def commit_hangs(self) -> str:
        """Nothing is committed."""
        return ""

    def queue_depths(self, experiment_id: ExperimentId) -> dict[str, int]:
        """Those are counted by the dispatcher."""
        del experiment_id
        return {}

    def totals(self) -> Totals | None:
        return None

    def waiting(self) -> int:
        return 0

    @property
    def measures(self) -> Measures:
        return self._measures
