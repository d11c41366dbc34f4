"""Trials as objects, for programs that await: those that are run, and those that are held to be evaluated.

The blocking twin, ``handle_trials.py``, is this file without its awaiting: ``python -m tests.program_twin`` writes it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal

from tuner_service.program import reading
from tuner_service.program.downloads import Download
from tuner_service.program.following_logs import LOOK_S, LogFollowing
from tuner_service.program.lines import AsyncLine
from tuner_service.program.typed import typed

FilePath = str | os.PathLike[str]
Table = dict[str, Any]


class AsyncAskedTrial:
    """A trial that is held to be evaluated, for as long as it is told of at least once in ``lease`` seconds."""

    def __init__(self, line: AsyncLine, experiment_id: str, view: Table) -> None:
        self.line = line
        self.experiment_id = experiment_id
        self.view = view
        self.number: int = view["number"]
        self.parameters: Table = dict(view["parameters"])
        self.seed: int = view["seed"]

    @property
    def view(self) -> Table:
        """The object of REST that was seen last."""
        return self._view

    @view.setter
    def view(self, view: Table) -> None:
        self._view = reading.checked(view, reading.ASKED)

    @property
    def id(self) -> str:
        return f"{self.experiment_id}/{self.number}"

    @typed
    async def tell(
        self,
        value: float | str | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        step: int | None = None,
        error: str | None = None,
        ended: bool | None = None,
    ) -> Literal["continue", "stop"]:
        """What came of it, or with ``step`` a report; whether to go on. Telling the same again is harmless.

        ``value`` is of the objective, ``values`` further metrics; ``error`` says that it failed; ``ended=False`` alone,
        that whoever evaluates it is alive.
        """
        told = reading.given(value=value, values=values, step=step, error=error, ended=ended)
        body = {"token": self.view["token"], **told}
        answer = await self.line.run(
            lambda line: line.call_lasting(lambda client: client.tell(self.experiment_id, body))
        )
        return "stop" if answer["decision"] == "stop" else "continue"

    def __repr__(self) -> str:
        return f"<asked trial {self.id}: {self.parameters}>"


class AsyncTrial:
    """One trial, as it was when it was read; ``show()`` reads it anew."""

    def __init__(self, line: AsyncLine, experiment_id: str, view: Table) -> None:
        self.line = line
        self.experiment_id = experiment_id
        self.view = view
        self.number: int = view["number"]

    @property
    def view(self) -> Table:
        """The object of REST that was seen last."""
        return self._view

    @view.setter
    def view(self, view: Table) -> None:
        self._view = reading.checked(view, reading.TRIAL)

    @property
    def id(self) -> str:
        return f"{self.experiment_id}/{self.number}"

    @property
    def status(self) -> str:
        return str(self.view["status"])

    @property
    def parameters(self) -> Table:
        return dict(self.view["parameters"] or {})

    @property
    def value(self) -> float | None:
        """Of the objective; None while there is none."""
        return reading.number(self.view["value"])

    @property
    def final(self) -> dict[str, float]:
        """Every metric it reported as final."""
        return {name: float(value) for name, value in self.view["final"].items()}

    async def show(self) -> Table:
        """All there is to see of it now, with its attempts."""
        self.view = await self.line.call(lambda client: client.trial(self.experiment_id, self.number))
        return self.view

    async def metrics(self) -> list[Table]:
        """Every report, in order."""
        return await self.line.call(lambda client: client.metrics(self.experiment_id, self.number))

    async def checkpoints(self) -> list[Table]:
        """Those kept, newest first."""
        return await self.line.call(lambda client: client.checkpoints(self.experiment_id, self.number))

    @typed
    async def logs(
        self, *, stderr: bool = False, attempt: int | None = None, node: int | None = None, rank: int | None = None
    ) -> str:
        """What it has printed, of its newest attempt or of the one named, on its first node or on the one named.

        ``rank``: what the process of that RANK alone has printed.
        """
        which = reading.LogQuery(stderr=stderr, attempt=attempt, node=node, rank=rank)
        return await self.line.call(lambda client: reading.log_text(client, self.experiment_id, self.number, which))

    @typed
    async def resources(self, *, attempt: int | None = None) -> list[Table]:
        """Its memory, cores and processes over time, of its newest attempt or of the one named."""
        query = reading.given(attempt=attempt)
        return await self.line.call(lambda client: client.resources(self.experiment_id, self.number, query))

    @typed
    async def follow_logs(
        self, *, stderr: bool = False, attempt: int | None = None, node: int | None = None, rank: int | None = None
    ) -> AsyncIterator[str]:
        """What it prints, piece by piece as it comes, until that attempt has ended; of whom, says ``logs``.

        A service that was killed meanwhile is started again, and nothing is left out or given twice.
        """
        which = reading.LogQuery(stderr=stderr, attempt=attempt, node=node, rank=rank)
        following = LogFollowing((self.experiment_id, self.number), which)
        while not following.has_ended:
            text = await self.line.run(following.look)
            if text:
                yield text
            elif not following.has_ended:
                await self.line.pause(LOOK_S)

    @typed
    async def download(
        self,
        folder: FilePath,
        *,
        checkpoint: int | Literal["best", "last"] | None = None,
        progress: bool | None = None,
    ) -> Path:
        """What it left, in a new folder, each file verified; with ``checkpoint`` one of those: best, last, or a step.

        With a bar in a terminal; ``progress=True``: always. The folder is there when it is whole. Where a call was
        broken off, the next one goes on with what came; a service that was killed meanwhile is started again.
        """
        return await self.line.apart(
            Download((self.experiment_id, self.number), folder, checkpoint=checkpoint, progress=progress)
        )

    async def stop(self) -> None:
        """Give it up."""
        self.view = await self.line.call(lambda client: client.stop_trial(self.experiment_id, self.number))

    async def retry(self) -> AsyncTrial:
        """The same parameters again, as a new trial."""
        view = await self.line.call(lambda client: client.retry_trial(self.experiment_id, self.number))
        return AsyncTrial(self.line, self.experiment_id, view)

    def __repr__(self) -> str:
        return f"<trial {self.id}: {reading.trial_line_of(self.view)}>"
