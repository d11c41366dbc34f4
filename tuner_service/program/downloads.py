"""What a trial left, on its way into a folder: it goes on where an earlier call, or the service, was broken off."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tuner_service.cli.output.byte_bar import ByteBar
from tuner_service.program.display import display_for, in_notebook
from tuner_service.program.errors import TunerError, UnreachableError, as_tuner_errors, sensible
from tuner_service.program.lines import Line
from tuner_service.program.waiting import Absence

AGAIN = "what came already is kept, and the same call goes on with it"
STARTS = 5  # of a service that is killed under a download, without a further byte


class Download:
    """One file or many, each verified; the folder is there when all are."""

    def __init__(
        self, trial: tuple[str, int], folder: str | os.PathLike[str], *, checkpoint: int | str | None, progress: Any
    ) -> None:
        self._experiment_id, self._number = trial
        self._folder = Path(folder).expanduser()
        self._query = {} if checkpoint is None else {"checkpoint": str(checkpoint)}
        self._say = display_for(progress).say
        is_shown = in_notebook() if progress is None else bool(progress)
        self._bar = ByteBar(is_shown=None if progress is None and not is_shown else is_shown)
        self._is_given_up = False
        self._done = 0

    def run(self, line: Line) -> Path:
        absence, starts, done = Absence(self._say), 0, 0
        with self._bar:
            while True:
                try:
                    return self._fetched(line)
                except UnreachableError as exc:
                    starts, done = (0, self._done) if self._done > done else (starts + 1, done)
                    if starts > STARTS:
                        raise UnreachableError(f"{exc}; {AGAIN}", status=exc.status) from exc
                    absence.mind(line)

    def give_up(self) -> None:
        """At the next piece. Any thread."""
        self._is_given_up = True

    def _fetched(self, line: Line) -> Path:
        from tuner_service.assets.fetching import get_asset  # here: whoever fetches nothing need not import it

        client = line.another()
        try:
            with as_tuner_errors(), sensible(client.url):
                left = client.trial_files(self._experiment_id, self._number, self._query)
                output = left["output"]
                get_asset(client, left["asset"], self._folder, told=self._told)
        except OSError as exc:
            raise TunerError(f"{self._folder} cannot be written: {exc.strerror or exc}; {AGAIN}") from exc
        finally:
            client.close()
        if output is not None and not output["complete"]:
            self._say(f"trial {self._experiment_id}/{self._number} left more than this: {output['message']}")
        return self._folder

    def _told(self, what: str, done: int, total: int) -> None:
        if self._is_given_up:
            raise TunerError(f"the download into {self._folder} was given up; {AGAIN}")
        self._done = max(self._done, done)
        self._bar.told(what, done, total)
