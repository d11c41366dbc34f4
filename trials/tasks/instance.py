"""Inside a process of a task: which one it is, and how it gives outputs. Also what runs plans and report steps.

``python -m trials.tasks.instance PLAN`` runs a plan once; with an interval in milliseconds and a descriptor it runs it
again and again, and once more when the descriptor's other end closes.
"""

from __future__ import annotations

import json
import multiprocessing.spawn
import os
import re
import select
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.agent.files import write_atomically
from trials.tasks.steps import CommandFailedError, read_plan, runner_of

ENV_TASK = "TASK_NAME"
ENV_NODE = "TASK_NODE"
ENV_WORKSPACE = "TASK_WORKSPACE"
FOLDER_OUTPUTS = "outputs"  # in a workspace: NAME.json each
OUTPUT_LIMIT_BYTES = 16 << 20  # of one output; larger results are files in a GLOBAL workspace
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One process of a task. Tasks of one node share ``workspace``, a folder."""

    task: str
    node: str
    workspace: Path
    rank: int
    local_rank: int
    world_size: int


def current_instance() -> Instance:
    """Of this process; RuntimeError outside a task."""
    try:
        return Instance(
            task=os.environ[ENV_TASK],
            node=os.environ[ENV_NODE],
            workspace=Path(os.environ[ENV_WORKSPACE]),
            rank=int(os.environ.get("RANK", "0")),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
        )
    except KeyError as error:
        raise RuntimeError(f"this process is no instance of a task: {error.args[0]} is not set") from error


def output_name(name: str) -> str:
    """``name`` if an output may have it; ValueError otherwise."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"an output's name is of letters, digits, '.', '_' and '-', not {name!r}")
    return name


def set_output(name: str, value: Any) -> None:
    """Give an output of this node's tasks: a JSON value. Set again, the last one counts.

    A command does the same by writing JSON to ``$TASK_WORKSPACE/outputs/NAME.json``.
    """
    data = json.dumps(value).encode()
    if len(data) > OUTPUT_LIMIT_BYTES:
        raise ValueError(f"output {name!r} has {len(data)} bytes, and {OUTPUT_LIMIT_BYTES} at most can be given")
    folder = current_instance().workspace / FOLDER_OUTPUTS
    folder.mkdir(exist_ok=True)
    write_atomically(str(folder / f"{output_name(name)}.json"), data)


def main(arguments: list[str]) -> int:
    """The exit code of a command that failed; 1 after an exception, whose traceback is on standard error."""
    plan = read_plan(Path(arguments[0]))
    multiprocessing.spawn.prepare(plan.prepare)
    steps = [runner_of(step) for step in plan.steps]
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
