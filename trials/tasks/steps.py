"""What a task does: a command, or a function of the caller's program, run in a process of its own."""

from __future__ import annotations

import inspect
import multiprocessing.spawn
import os
import pickle
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trials.arguments import plain_text

_PROGRAM = {"init_main_from_path", "init_main_from_name"}  # how another process imports the program, where it can


class NestedSteps:
    """A step that is itself a group of steps, and is run by a session of its own."""


Step = str | Sequence[str] | Callable[[], object] | NestedSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in order, as they travel to another process. ``prepare`` makes the caller's program importable there."""

    steps: tuple[tuple[str, ...] | bytes, ...]  # a command line, or a pickled function
    prepare: dict[str, Any]


def checked(step: Step, *, what: str) -> Step:
    """``step`` if it can run in another process; TypeError or ValueError that names ``what``."""
    _travelling(step, what)
    return step


def name_of(step: Step) -> str:
    """A name where nobody gave one: the function's, or the program's."""
    if isinstance(step, str | Sequence):
        return Path((shlex.split(step) if isinstance(step, str) else list(step))[0]).name
    function = step.func if isinstance(step, partial) else step
    return getattr(function, "__name__", "task")


def plan_of(steps: Sequence[Step], *, what: str) -> Plan:
    """Of steps that are run one after the other in one process."""
    travelling = tuple(_travelling(step, what) for step in steps)
    prepare = multiprocessing.spawn.get_preparation_data(what)
    prepare.pop("authkey", None)  # a secret of multiprocessing, for connections that are not made here
    if not any(isinstance(step, bytes) and _is_of_program(step) for step in travelling):
        prepare.pop("init_main_from_path", None)  # nothing of the caller's program is needed
        prepare.pop("init_main_from_name", None)
    return Plan(steps=travelling, prepare=prepare)


def only_command(plan: Plan) -> tuple[str, ...] | None:
    """The command where the plan is nothing else, so that it needs no interpreter around it."""
    return plan.steps[0] if len(plan.steps) == 1 and isinstance(plan.steps[0], tuple) else None


def _travelling(step: Step, what: str) -> tuple[str, ...] | bytes:
    if isinstance(step, str | Sequence):
        words = _words(step, what)
        if not words or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{what}: a command is text or a list of texts, and not empty; it is {step!r}")
        for word in words:
            plain_text(word, what=f"{what}: a word of the command")
        return words
    if not callable(step) and not isinstance(step, NestedSteps):
        raise TypeError(f"{what}: a step is a command, a function or a group, not {type(step).__name__}")
    _require_called(step, what)
    try:
        pickled = pickle.dumps(step)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"{what}: {step!r} cannot be sent to another process ({error}); define it at the top level of a module, "
            "or give a command"
        ) from error
    if _is_of_program(pickled) and not _PROGRAM & multiprocessing.spawn.get_preparation_data(what).keys():
        raise TypeError(
            f"{what}: {step!r} is defined in a program that has no file (a prompt, a notebook, python -c), so no other "
            "process can import it; define it in a module, or give a command"
        )
    return pickled


def _words(step: str | Sequence[str], what: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(step)) if isinstance(step, str) else tuple(step)
    except ValueError as error:
        raise ValueError(f"{what}: the command {step!r:.200} cannot be split into words: {error}") from None


def _require_called(step: Any, what: str) -> None:
    """TypeError for a function that does nothing when it is called, so that its task would end well at once."""
    function = step.func if isinstance(step, partial) else step
    for called in (function, type(function).__call__):  # the second of an object with that method
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError(f"{what}: {step!r} is async, and nobody awaits it; give a function that calls asyncio.run")
        if inspect.isgeneratorfunction(called):
            raise TypeError(f"{what}: {step!r} is a generator, of which a call runs nothing; give a plain function")


def _is_of_program(pickled: bytes) -> bool:
    """Whether it may need the caller's program, which in the process of a task has the second name."""
    return b"__main__" in pickled or b"__mp_main__" in pickled


def with_interpreter(words: tuple[str, ...]) -> tuple[str, ...]:
    """``python`` is the interpreter that runs the node."""
    return (sys.executable, *words[1:]) if words[0] == "python" else words


def read_plan(descriptor: int) -> Plan:
    """From a file that a runner wrote for its session, of which other instances read the same; it is closed."""
    data = Path(f"/proc/self/fd/{descriptor}").read_bytes()  # opened anew: each reads from its beginning
    os.close(descriptor)
    plan = pickle.loads(data)  # noqa: S301  sent by the session of the same user, nobody else
    assert isinstance(plan, Plan)
    return plan


class CommandFailedError(RuntimeError):
    """A command of a plan ended otherwise than with code 0."""

    def __init__(self, words: tuple[str, ...], code: int) -> None:
        super().__init__(f"{shlex.join(words)} ended with {code if code >= 0 else f'signal {-code}'}")
        self.code = code


def runner_of(step: tuple[str, ...] | bytes, *, run_nested: Callable[[NestedSteps], object]) -> Callable[[], object]:
    """The step as a function; what it was sent with must have been prepared."""
    if isinstance(step, bytes):
        found: Callable[[], object] | NestedSteps = pickle.loads(step)  # noqa: S301  this package has written it
        return partial(run_nested, found) if isinstance(found, NestedSteps) else found
    words = with_interpreter(step)

    def run() -> None:
        code = subprocess.run(words, check=False, env=os.environ).returncode
        if code != 0:
            raise CommandFailedError(words, code)

    return run
