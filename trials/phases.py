"""Further parameters for a trial that runs, which NNI calls multi-phase."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from trials.reports.sinks import SpoolSink
from trials.wire.files import FILE_FURTHER_PARAMETERS

ANSWER_POLL_S = 0.05
ASK_AGAIN_S = 10.0  # where no answer has come, whatever became of it


class Phases(Protocol):
    """Where parameters beyond the first come from. Their index is counted from 1."""

    def known(self, index: int) -> dict[str, Any] | None:
        """Those of ``index``, where an earlier attempt or this one was given them."""
        ...

    def miss(self, parameters: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        """Have these be part of the search space, before further ones are waited for."""
        ...

    def wait_for(self, index: int, *, is_stopping: Callable[[], bool]) -> dict[str, Any] | None:
        """Those of ``index``, once they are chosen; None when there are none, or the trial is to stop."""
        ...


class AttemptPhases:
    """Of an attempt: asked for through its spool, answered by the agent with a file."""

    def __init__(self, folder: Path, sink: SpoolSink, *, ask_again_s: float = ASK_AGAIN_S) -> None:
        self._folder = folder
        self._sink = sink
        self._ask_again_s = ask_again_s

    def known(self, index: int) -> dict[str, Any] | None:
        answer = self._answer(index)
        return None if answer is None else answer["parameters"]

    def miss(self, parameters: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        self._sink.misses_parameters(parameters, beside)

    def wait_for(self, index: int, *, is_stopping: Callable[[], bool]) -> dict[str, Any] | None:
        # Said also where the answer is known: what is reported from here on belongs to it.
        self._sink.wants_parameters(index)
        ask_again_at = time.monotonic() + self._ask_again_s
        while (answer := self._answer(index)) is None:
            if is_stopping():
                return None
            time.sleep(ANSWER_POLL_S)
            if time.monotonic() >= ask_again_at:
                self._sink.wants_parameters(index)
                ask_again_at = time.monotonic() + self._ask_again_s
        return answer["parameters"]

    def _answer(self, index: int) -> dict[str, dict[str, Any] | None] | None:
        try:
            data = (self._folder / FILE_FURTHER_PARAMETERS.format(index=index)).read_bytes()
        except FileNotFoundError:
            return None
        answer: dict[str, dict[str, Any] | None] = json.loads(data)
        return answer


class AlonePhases:
    """Of a script that runs alone: nobody chooses."""

    def known(self, index: int) -> dict[str, Any] | None:  # noqa: ARG002  # the protocol's signature
        return None

    def miss(self, parameters: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        """There is no search space."""

    def wait_for(self, index: int, *, is_stopping: Callable[[], bool]) -> dict[str, Any] | None:  # noqa: ARG002  # likewise
        return None
