"""Following an experiment to its end: one live line on a terminal, one line every few seconds elsewhere."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tuner_service.cli.lasting import LastingService, PatienceOverError
from tuner_service.cli.listening import QUIET_S, Heard
from tuner_service.cli.output.exit_codes import ExitCode, safe, say
from tuner_service.cli.output.tables import (
    clip,
    duration_text,
    first_objective,
    number_text,
    parameters_text,
    sparkline,
)
from tuner_service.cli.output.trouble import troubles_in
from tuner_service.client import Client, UnreachableError
from tuner_service.domain.wording import counted

TERMINAL_INTERVAL_S = 0.5
LINE_INTERVAL_S = 3.0
SPARKLINE_POINTS = 1_000  # of the best value so far that are kept
ENDED = frozenset({"completed", "stopped", "failed"})
LEAST_ENDED = 5  # trials, and two for each that runs at a time: before, nothing is said of the time that is left
ERROR_LINES = 8  # of the end of what the first failed trial said
USED_STATUSES = ("succeeded", "early_stopped")  # what a budget of trials counts, once they have ended
RESULT_CODES = {"completed": ExitCode.OK, "stopped": ExitCode.FAILURE, "failed": ExitCode.EXPERIMENT_FAILED}


def _is_on_terminal() -> bool:
    return sys.stderr.isatty()


@dataclass
class Progress:
    """Writes on standard error, so that standard output stays free for data."""

    is_terminal: bool = field(default_factory=_is_on_terminal)
    best_values: list[float] = field(default_factory=list)
    _shown: str = ""
    _shown_at: float = 0.0

    @property
    def interval_s(self) -> float:
        return TERMINAL_INTERVAL_S if self.is_terminal else LINE_INTERVAL_S

    def show(self, view: dict[str, Any]) -> None:
        best = (view.get("best") or {}).get("value")
        if isinstance(best, int | float) and best not in self.best_values[-1:]:
            self.best_values = [*self.best_values, float(best)][-SPARKLINE_POINTS:]
        line = progress_line(view, self.best_values)
        if self.is_terminal:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            sys.stderr.write("\r\x1b[K" + line[: width - 1])
            sys.stderr.flush()
        elif line != self._shown and time.monotonic() - self._shown_at >= self.interval_s:
            say(line)
            self._shown, self._shown_at = line, time.monotonic()

    def finish(self) -> None:
        """Leave the live line behind."""
        if self.is_terminal:
            sys.stderr.write("\n")


def progress_line(view: dict[str, Any], best_values: list[float]) -> str:
    counts: dict[str, int] = view["counts"]
    used = sum(counts.get(status, 0) for status in USED_STATUSES)
    total = view["budget"]["trials"]
    parts = [f"{view['name']} {view['status']}", f"{used}/{total} trials" if total else counted(used, "trial")]
    parts += [f"{counts[status]} {status}" for status in ("running", "failed") if counts.get(status)]
    best = view.get("best")
    if best is not None:
        curve = sparkline(best_values)
        found = f"best {first_objective(view)['metric']} {number_text(best['value'])} (trial {best['number']})"
        parts.append(f"{found} {curve}".rstrip())
    parts.append(duration_text(view["running_s"]))
    eta = _eta_s(view, used)
    if eta is not None:
        parts.append(f"about {duration_text(eta)} left")
    return safe(" · ".join(parts))


def _eta_s(view: dict[str, Any], used: int) -> float | None:
    """None before enough trials have ended to know how long they take.

    Those that run are taken to be half-way. Trials that failed took their time and none of the budget, so as many will.
    """
    estimates = []
    budget = view["budget"]
    if budget["trials"] and view["status"] == "running" and used >= max(LEAST_ENDED, 2 * budget["parallel"]):
        half_done = view["counts"].get("running", 0) / 2
        left = max(0.0, budget["trials"] - used - half_done)
        estimates.append(left * view["running_s"] / (used + half_done))
    if view["budget"]["duration"] and view["status"] == "running":
        estimates.append(max(0.0, view["budget"]["duration"] - view["running_s"]))
    return min(estimates) if estimates else None


def detached(experiment_id: str) -> ExitCode:
    say(f"detached; the experiment goes on: tuner watch {experiment_id}, tuner stop {experiment_id}")
    return ExitCode.INTERRUPTED


def follow(
    client: Client, experiment_id: str, *, find: Callable[[], Client] | None = None, timeout_s: float | None = None
) -> ExitCode:
    """Waits until the experiment has ended, or waits for a person: an algorithm that raised pauses it.

    Ctrl-C detaches: the experiment goes on. A service that goes away is waited for; ``find`` gives one of its clients.
    """
    progress = Progress()
    deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def say_beside(text: str) -> None:
        progress.finish()
        say(text)

    service = LastingService(client, find=find or client.another, say=say_beside, deadline=deadline)
    try:
        return _followed(service, experiment_id, progress, deadline)
    except KeyboardInterrupt:
        progress.finish()
        return detached(experiment_id)
    except PatienceOverError:
        say_beside(f"gave up waiting after {timeout_s:g} s; the experiment goes on: tuner watch {experiment_id}")
        return ExitCode.TIMEOUT
    except UnreachableError:
        progress.finish()
        say(f"no service answers any more; trials run on. `tuner resume {experiment_id} --wait` starts it and goes on")
        raise
    finally:
        service.close()


def _followed(service: LastingService, experiment_id: str, progress: Progress, deadline: float | None) -> ExitCode:
    first_failure, trouble = FirstFailure(experiment_id), Trouble(progress)
    view = service.call(_view_of(experiment_id))
    with Heard(service.another, experiment_id) as heard:
        while not has_come_to_rest(view):
            progress.show(view)
            first_failure.look(service, view)
            trouble.look(service, view)
            wait_s = QUIET_S if heard.hears else progress.interval_s
            if deadline is not None:
                wait_s = min(wait_s, deadline - time.monotonic())
            if wait_s <= 0:
                raise PatienceOverError
            hears = heard.hears
            heard.pause(wait_s if hears else 0.0)
            # Where nothing is heard the answer itself waits, for the end alone.
            view = service.call(_view_of(experiment_id, wait_s=None if hears else wait_s))
    progress.show(view)
    progress.finish()
    first_failure.look(service, view)
    say(result_text(view))
    return RESULT_CODES.get(view["status"], ExitCode.EXPERIMENT_FAILED)


def _view_of(experiment_id: str, *, wait_s: float | None = None) -> Callable[[Client], dict[str, Any]]:
    return lambda client: client.experiment(experiment_id, wait_s=wait_s)


@dataclass
class FirstFailure:
    """Says once what went wrong with a trial: whoever waits for an experiment sees its error without asking."""

    experiment_id: str
    _said: bool = False

    def look(self, service: LastingService, view: dict[str, Any]) -> None:
        if self._said or not view["counts"].get("failed"):
            return
        found = service.call(lambda client: client.first_trial(self.experiment_id, {"status": ["failed"]}))
        if found is not None:
            number = found["number"]
            text = failure_text(service.call(lambda client: client.trial(self.experiment_id, number)))
            self._said = True
            say(text)


@dataclass
class Trouble:
    """Says why nothing comes of a search any more, where that is because of the service: once for each reason."""

    progress: Progress
    _counts: dict[str, int] | None = None
    _since: float = 0.0
    _said: list[str] = field(default_factory=list)

    def look(self, service: LastingService, view: dict[str, Any]) -> None:
        now = time.monotonic()
        if view["counts"] != self._counts:
            self._counts, self._since = view["counts"], now
        if now - self._since < QUIET_S:
            return
        self._since = now
        found = troubles_in(service.call(lambda client: client.readiness()))
        if fresh := [text for text in found if text not in self._said]:
            self.progress.finish()
            say("\n".join(f"careful: {text}" for text in fresh))
        self._said = found


def failure_text(trial: dict[str, Any]) -> str:
    lines = [f"trial {trial['id']} failed ({trial['reason']}): {clip(trial['message'], 1_000)}"]
    attempts = trial["attempt_details"]
    ended = attempts[-1]["exit"] if attempts else None
    if ended is not None:
        lines += [f"  | {clip(line, 200)}" for line in ended["tail"].splitlines()[-ERROR_LINES:]]
        lines.append(f"all that it printed: tuner logs {trial['id']} --stderr, tuner logs {trial['id']}")
    return "\n".join(lines)


_LINE = re.compile(r"^(?:tuner|assessor), journal line (\d+):|answer journal line (\d+) |: line (\d+) of the journal")
_NOT_BUILT = ("tuner: ", "assessor: ")  # begins what was told before any line
AT_A_LINE = ("algorithm_failed", "algorithm_hangs", "worker_dies")  # why an experiment is paused at a journal line


def has_come_to_rest(view: dict[str, Any]) -> bool:
    """Ended, or paused by trouble that only a person can mend."""
    return view["status"] in ENDED or (view["status"] == "paused" and view["reason"] != "requested")


def _way_on(experiment_id: str, message: str) -> str:
    """Beside mending what is wrong: the service's own words say at which line, or that there was none yet."""
    lines = {line for groups in _LINE.findall(message) for line in groups if line}
    if not lines and message.startswith(_NOT_BUILT):
        return f"it could not be built; with a class that is mended: tuner resume {experiment_id} --code FOLDER"
    line = lines.pop() if len(lines) == 1 else "N"
    return f"if line {line} itself is the cause, leave it out: tuner resume {experiment_id} --skip-line {line}"


def result_text(view: dict[str, Any]) -> str:
    lines = [f"experiment {view['id']} is {view['status']} ({view['reason']})"]
    if view["message"]:
        lines.append(clip(view["message"], 1_000))
    if view.get("detail") and view["status"] in {"paused", "failed"}:
        lines.append(view["detail"].rstrip())
    best = view["best"]
    if best is not None:
        metric = first_objective(view)["metric"]
        found = f"best {metric} {number_text(best['value'])} by trial {best['number']}"
        lines.append(f"{found}: {parameters_text(best['parameters'])}")
    if view["status"] == "paused":
        lines.append(f"continue it with: tuner resume {view['id']}")
        if view["reason"] == "algorithm_hangs":
            lines.append(f"if it needs more time for an answer: tuner resume {view['id']} --algorithm-timeout 10m")
        if view["reason"] in AT_A_LINE:
            lines.append(_way_on(view["id"], view["message"]))
    return safe("\n".join(lines))
