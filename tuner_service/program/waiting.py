"""Waiting for an experiment: when to look next, what to do while no service answers, and what the end means.

No sleep and no connection of its own: whoever waits does both, blocking or not, and listens to the events meanwhile.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from tuner_service.cli.listening import QUIET_S
from tuner_service.cli.output.progress import ENDED, failure_text, has_come_to_rest, result_text
from tuner_service.program import reading
from tuner_service.program.display import Display, display_for
from tuner_service.program.errors import ConflictError, ExperimentFailedError, UnreachableError, WaitTimeoutError
from tuner_service.program.lines import Line

FIRST_LOOK_S, LOOK_S = 0.05, 0.5  # from one look to the next where nothing is heard: less often as time goes by
SLOWING = 1.4
ABSENCE_S = 60.0  # for which a service elsewhere may not answer; the one of a home is started where it was killed

NONE_NOW = 503  # there is no trial to give now

View = dict[str, Any]


class Absence:
    """What to do while no service answers: the one of a home that was killed is started, another is waited for."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._since: float | None = None

    def mind(self, line: Line) -> None:
        """In place of the UnreachableError that is being handled, which is raised again where nothing helps."""
        if line.was_killed():
            self._say(f"the service of {line.settings.home} was killed; it is started again")
            line.connect(start=True)
            self._say(f"it runs at {line.url}, and what was running goes on where it was")
        elif not line.settings.url or self._lasts(line.settings.url):
            raise  # noqa: PLE0704  # called where one is handled

    def is_over(self, line: Line) -> None:
        if self._since is not None:
            self._say(f"{line.url} answers again")
            self._since = None

    def _lasts(self, url: str) -> bool:
        """Whether for too long."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._say(f"no service answers at {url}; waiting for it, {ABSENCE_S:g} s at most")
        return now - self._since > ABSENCE_S


def seconds_of(timeout_s: float) -> float:
    """As a float. More than a float can hold is infinite, which is to wait without limit."""
    try:
        return float(timeout_s)
    except OverflowError:
        return math.copysign(math.inf, 1 if timeout_s > 0 else -1)


class _Looks:
    def __init__(self, view: View, *, timeout_s: float | None) -> None:
        self.view = view
        self._timeout_s = None if timeout_s is None else seconds_of(timeout_s)
        self._deadline = None if self._timeout_s is None else time.monotonic() + max(0.0, self._timeout_s)
        self._pause_s = FIRST_LOOK_S

    def _pause(self, *, hears: bool) -> float:
        """WaitTimeoutError where the time is over. Who ``hears`` is woken when something changes."""
        self._pause_s = min(LOOK_S, self._pause_s * SLOWING)
        pause_s = QUIET_S if hears else self._pause_s
        if self._deadline is None:
            return pause_s
        left = self._deadline - time.monotonic()
        if left <= 0:
            what = f"experiment {self.view['id']} is {self.view['status']} after {self._timeout_s:g} s, and goes on"
            raise WaitTimeoutError(what)
        return min(pause_s, left)


class Stopping(_Looks):
    """Until it has stopped."""

    def next_look_s(self, *, hears: bool = False) -> float | None:
        return None if self.view["status"] in ENDED else self._pause(hears=hears)


class Asking(_Looks):
    """Until there is a trial to evaluate; the same one for as long as this asks."""

    def __init__(self, view: View, *, timeout_s: float | None, key: str) -> None:
        super().__init__(view, timeout_s=timeout_s)
        self.asked: View | None = None
        self._has_ended = False
        self._key = key

    def next_look_s(self, *, hears: bool = False) -> float | None:
        """None where it has one, or the experiment has ended and there is none any more."""
        return None if self.asked is not None or self._has_ended else self._pause(hears=hears)

    def look(self, line: Line) -> None:
        experiment_id = self.view["id"]
        try:
            self.asked = line.call_lasting(lambda client: client.ask(experiment_id, key=self._key, wait_s=0.0))
        except UnreachableError as exc:
            if exc.status != NONE_NOW:
                raise
        except ConflictError:
            self.view = line.call(lambda client: reading.checked(client.experiment(experiment_id), reading.EXPERIMENT))
            if self.view["status"] not in ENDED:
                raise
            self._has_ended = True


class Following(_Looks):
    """Until it has come to rest: ended, or paused by what only a person can mend."""

    def __init__(self, view: View, *, timeout_s: float | None, progress: bool | None) -> None:
        super().__init__(view, timeout_s=timeout_s)
        self._display: Display = display_for(progress)
        self._has_looked = False
        self._absence = Absence(self._display.say)

    def next_look_s(self, *, hears: bool = False) -> float | None:
        if self._has_looked and has_come_to_rest(self.view):
            return None
        return self._pause(hears=hears)

    def look(self, line: Line) -> View:
        """Its view; the one before while no service answers. UnreachableError when none will."""
        try:
            experiment_id = self.view["id"]
            view = line.call(lambda client: reading.checked(client.experiment(experiment_id), reading.EXPERIMENT))
        except UnreachableError:
            self._absence.mind(line)
            return self.view
        self._absence.is_over(line)
        self._has_looked = True
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
