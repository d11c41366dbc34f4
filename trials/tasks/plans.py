"""Runs plans, in a process of their own.

``python -m trials.tasks.plans PLAN END`` runs the plan that can be read from the descriptor PLAN once, and writes into
END when all of it has ended: a process may be made to leave with code 0 before. With an interval in milliseconds and a
third descriptor it runs it again and again, and once more when the other end of that closes.
"""

from __future__ import annotations

import multiprocessing.spawn
import os
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trials.tasks.session import NotGuardedError, importing_the_program, run_nested
from trials.tasks.steps import CommandFailedError, read_plan, runner_of


def main(arguments: list[str]) -> int:
    """The exit code of a command that failed; 1 after an exception, whose traceback is on standard error."""
    plan = read_plan(int(arguments[0]))
    end = _End(int(arguments[1]))
    try:
        with importing_the_program():
            multiprocessing.spawn.prepare(placed(plan.prepare, here=str(Path.cwd()), path=sys.path))
    except NotGuardedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    steps = [runner_of(step, run_nested=run_nested) for step in plan.steps]
    try:
        if len(arguments) == 2:
            for step in steps:
                _run(step)
        else:
            _repeat(steps, interval_s=int(arguments[2]) / 1000, until_closed=int(arguments[3]))
    except CommandFailedError as error:
        sys.stderr.write(f"{error}\n")
        return error.code if error.code > 0 else 1
    end.say()
    return 0


class _End:
    """The file of the runner that is told that all steps have ended."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # noqa: FBT003  the standard library takes it by position only
        self._descriptor, self._status = descriptor, os.fstat(descriptor)
        self._of_runner = f"/proc/{os.getppid()}/fd/{descriptor}"

    def say(self) -> None:
        """A step may have closed the descriptor, and opened another file under its number."""
        try:
            is_there = os.path.samestat(os.fstat(self._descriptor), self._status)
        except OSError:
            is_there = False
        os.write(self._descriptor if is_there else os.open(self._of_runner, os.O_WRONLY | os.O_CLOEXEC), b".")


def placed(prepare: Mapping[str, Any], *, here: str, path: Sequence[str]) -> dict[str, Any]:
    """What was said of the session's process, for one that works in the folder ``here``: the program lies there as it
    does in the session's folder, and what is installed is found on this process's own ``path``."""
    there = prepare["dir"]
    if there == here:
        return dict(prepare)

    def moved(text: str) -> str:
        inside = text == there or text.startswith(f"{there}/")
        return here + text.removeprefix(there) if inside else text

    names = [name for name in ("dir", "orig_dir", "init_main_from_path") if prepare.get(name)]
    program = [moved(entry) for entry in prepare["sys_path"] if moved(entry) != entry]
    return {**prepare, **{name: moved(prepare[name]) for name in names}, "sys_path": [*program, *path]}


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
            _run(step)


def _run(step: Callable[[], object]) -> None:
    """One that says sys.exit(0), as the main function of a command line does, has ended well, and others follow it."""
    try:
        step()
    except SystemExit as ended:
        if ended.code is not None and ended.code != 0:
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
