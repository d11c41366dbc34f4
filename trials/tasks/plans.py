"""Runs plans, in a process of their own.

``python -m trials.tasks.plans PLAN`` runs a plan once; with an interval in milliseconds and a descriptor it runs it
again and again, and once more when the descriptor's other end closes.
"""

from __future__ import annotations

import multiprocessing.spawn
import select
import sys
import time
from pathlib import Path
from typing import Any

from trials.tasks.session import run_nested
from trials.tasks.steps import CommandFailedError, read_plan, runner_of


def main(arguments: list[str]) -> int:
    """The exit code of a command that failed; 1 after an exception, whose traceback is on standard error."""
    plan = read_plan(Path(arguments[0]))
    multiprocessing.spawn.prepare(plan.prepare)
    steps = [runner_of(step, run_nested=run_nested) for step in plan.steps]
    try:
        if len(arguments) == 1:
            for step in steps:
                step()
        else:
            _repeat(steps, interval_s=int(arguments[1]) / 1000, until_closed=int(arguments[2]))
    except CommandFailedError as error:
        sys.stderr.write(f"{error}\n")
        return error.code if error.code > 0 else 1
    return 0


def _repeat(steps: list[Any], *, interval_s: float, until_closed: int) -> None:
    """A round that takes longer than the interval is followed by the next at once; rounds never overlap."""
    poller = select.poll()
    poller.register(until_closed, select.POLLIN)
    due = time.monotonic() + interval_s
    is_last = False
    while not is_last:
        is_last = bool(poller.poll(max(0.0, due - time.monotonic()) * 1000))
        due = max(due + interval_s, time.monotonic())
        for step in steps:
            step()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
