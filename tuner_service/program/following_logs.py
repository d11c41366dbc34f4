"""The output of an attempt, piece by piece, as it comes, also over the end of the service."""

from __future__ import annotations

from typing import Any

from tuner_service.client import Answer
from tuner_service.program.display import Nothing
from tuner_service.program.errors import UnreachableError
from tuner_service.program.lines import Line
from tuner_service.program.reading import LOG_RANGE, LogQuery
from tuner_service.program.waiting import NONE_NOW, Absence

LOOK_S = 0.3
AGENT_LOOKS = 200  # in a row at which the agent, which has the log, may be away: a minute


class LogFollowing:
    """Of the newest attempt when it begins, or of the one that is named: never of another in the middle."""

    def __init__(self, trial: tuple[str, int], which: LogQuery) -> None:
        self._experiment_id, self._number = trial
        self._query: dict[str, Any] = which.query() | {"offset": 0, "limit": LOG_RANGE}
        self._absence = Absence(Nothing().say)
        self._agent_is_away = 0
        self.has_ended = False

    def look(self, line: Line) -> str:
        """What is new; empty where there is nothing now."""
        try:
            text = line.call(lambda client: self._taken(client.log(self._experiment_id, self._number, self._query)))
        except UnreachableError as exc:
            self._mind(exc, line)
            return ""
        self._absence.is_over(line)
        self._agent_is_away = 0
        return text

    def _taken(self, answer: Answer) -> str:
        end, size = int(answer.headers["log-end"]), int(answer.headers["log-size"])
        gone = int(answer.headers["log-offset"]) - self._query["offset"]
        self._query |= {"offset": end, "attempt": int(answer.headers["log-attempt"])}
        self.has_ended = end >= size and answer.headers["log-ended"] == "true"
        missing = f"\n[{gone} bytes of the log before this are not kept any more]\n" if gone > 0 else ""
        return missing + answer.data.decode("utf-8", "replace")

    def _mind(self, exc: UnreachableError, line: Line) -> None:
        """The service is gone, or it is there and the agent has not come back to it yet."""
        if exc.status != NONE_NOW:
            self._absence.mind(line)
            return
        self._agent_is_away += 1
        if self._agent_is_away > AGENT_LOOKS:
            raise exc
