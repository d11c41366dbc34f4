"""Waiting for an experiment: when to look next, what to do while no service answers, and what the end means.

No sleep and no connection of its own: whoever waits does both, blocking or not.
"""

from __future__ import annotations

import time
from typing import Any

from tuner_service.cli.output.progress import ENDED, failure_text, has_come_to_rest, result_text
from tuner_service.program.display import Display, display_for
from tuner_service.program.errors import ConflictError, ExperimentFailedError, UnreachableError, WaitTimeoutError
from tuner_service.program.lines import Line

FIRST_LOOK_S, LOOK_S = 0.05, 0.5  # from one look to the next: short searches end soon, long ones are asked less often
SLOWING = 1.4
ABSENCE_S = 60.0  # for which a service elsewhere may not answer; the one of a home is started where it was killed

NONE_NOW = 503  # there is no trial to give now

View = dict[str, Any]


class _Looks:
    def __init__(self, view: View, *, timeout_s: float | None) -> None:
        self.view = view
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + max(0.0, timeout_s)
        self._pause_s = FIRST_LOOK_S

    def _pause(self) -> float:
        """WaitTimeoutError where the time is over."""
        self._pause_s = min(LOOK_S, self._pause_s * SLOWING)
        if self._deadline is None:
            return self._pause_s
        left = self._deadline - time.monotonic()
        if left <= 0:
            what = f"experiment {self.view['id']} is {self.view['status']} after {self._timeout_s:g} s, and goes on"
            raise WaitTimeoutError(what)
        return min(self._pause_s, left)


class Stopping(_Looks):
    """Until it has stopped."""

    def next_look_s(self) -> float | None:
        return None if self.view["status"] in ENDED else self._pause()


class Asking(_Looks):
    """Until there is a trial to evaluate; the same one for as long as this asks."""

    def __init__(self, view: View, *, timeout_s: float | None, key: str) -> None:
        super().__init__(view, timeout_s=timeout_s)
        self.asked: View | None = None
        self._has_ended = False
        self._key = key

    def next_look_s(self) -> float | None:
        """None where it has one, or the experiment has ended and there is none any more."""
        return None if self.asked is not None or self._has_ended else self._pause()

    def look(self, line: Line) -> None:
        experiment_id = self.view["id"]
        try:
            self.asked = line.call_lasting(lambda client: client.ask(experiment_id, key=self._key, wait_s=0.0))
        except UnreachableError as exc:
            if exc.status != NONE_NOW:
                raise
        except ConflictError:
            self.view = line.call(lambda client: client.experiment(experiment_id))
            if self.view["status"] not in ENDED:
                raise
            self._has_ended = True


class Following(_Looks):
    """Until it has come to rest: ended, or paused by what only a person can mend."""

    def __init__(self, view: View, *, timeout_s: float | None, progress: bool | None) -> None:
        super().__init__(view, timeout_s=timeout_s)
        self._display: Display = display_for(progress)
        self._has_looked = False
        self._absent_since: float | None = None

    def next_look_s(self) -> float | None:
        if self._has_looked and has_come_to_rest(self.view):
            return None
        return self._pause()

    def look(self, line: Line) -> View:
        """Its view; the one before while no service answers. UnreachableError when none will."""
        try:
            view = line.call(lambda client: client.experiment(self.view["id"]))
        except UnreachableError:
            if line.was_killed():
                line.connect(start=True)
            elif not line.settings.url or self._is_absent_for_long():
                raise
            return self.view
        self._has_looked, self._absent_since = True, None
        return view

    def show(self, view: View) -> None:
        self.view = view
        self._display.show(view)

    def close(self) -> None:
        self._display.close()

    def failure(self, line: Line) -> str:
        """What people should know of an end that is none to be glad of; empty where all is well."""
        if self.view["status"] in {"completed", "stopped"}:
            return ""
        text = result_text(self.view)
        if self.view["counts"].get("failed"):
            experiment_id = self.view["id"]
            found = line.call(lambda client: client.first_trial(experiment_id, {"status": ["failed"]}))
            if found is not None:
                trial = line.call(lambda client: client.trial(experiment_id, found["number"]))
                text += f"\n{failure_text(trial)}"
        return text

    def raise_failure(self, failure: str) -> None:
        if failure:
            raise ExperimentFailedError(failure)

    def _is_absent_for_long(self) -> bool:
        now = time.monotonic()
        if self._absent_since is None:
            self._absent_since = now
        return now - self._absent_since > ABSENCE_S
