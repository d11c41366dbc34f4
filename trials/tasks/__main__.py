"""Runs a command in several processes of one world: ``python -m trials.tasks --instances 4 -- python train.py``.

This is what an agent runs for a trial with ``processes_per_node``.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
from pathlib import Path

from trials.arguments import seconds
from trials.files import read_json
from trials.tasks.progress import OuterWorld
from trials.tasks.running import NodeStartError, TaskFailedError
from trials.tasks.session import LocalSession
from trials.tasks.task_group import INSTANCES_LIMIT, Task, TaskGroup
from trials.wire.files import ENV_ATTEMPT_DIR, FILE_STOP

NODE = "node0"


def main(arguments: list[str]) -> int:
    """The exit code of the first instance that failed. Where a signal ended it, this process ends by the same one, so
    that whoever looks sees what it was: a trial of which the system killed one process is no failure of its own."""
    parser = argparse.ArgumentParser(
        prog="python -m trials.tasks", description="Runs a command in several processes.", allow_abbrev=False
    )
    parser.add_argument("--instances", type=int, required=True, help="how many; each has its RANK")
    parser.add_argument("--node", type=int, default=0, help="of several, which this is; MASTER_ADDR says where 0 is")
    parser.add_argument("--nodes", type=int, default=1, help="how many run this, with as many instances each")
    parser.add_argument(
        "--keep-output", action="store_true", help="of each rank besides, in the folder of the trial's attempt"
    )
    parser.add_argument("command", nargs="+", help="after --, and never through a shell")
    options = _checked(parser, arguments)
    # Whoever ends a trial tells all its processes; this one waits for those that save before they leave.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with TaskGroup() as group:
            Task(options.command, num_instances=options.instances, node=NODE)
        outer = OuterWorld(node=options.node, nodes=options.nodes) if options.nodes > 1 else None
        logs = Path(os.environ[ENV_ATTEMPT_DIR]) if options.keep_output else None
        AttemptSession(os.environ.get(ENV_ATTEMPT_DIR), outer=outer, logs=logs).run(group)
    except TaskFailedError as error:
        sys.stderr.write(f"{error}\n")
        if error.code is not None and error.code < 0:
            end_by_signal(-error.code)
        return error.code or 1
    except (NodeStartError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


class AttemptSession(LocalSession):
    """All processes of a trial that is stopped are told, and have the grace of that stop: one that leaves at once does
    not shorten it for those that save."""

    def __init__(self, attempt: str | None, *, outer: OuterWorld | None = None, logs: Path | None = None) -> None:
        super().__init__(outer=outer, logs=logs)
        self._attempt = attempt

    def grace(self) -> float:
        found = None if self._attempt is None else read_json(f"{self._attempt}/{FILE_STOP}")
        try:
            return super().grace() if found is None else seconds(found.get("grace_s"), what="the grace")
        except (TypeError, ValueError):  # a script may have put anything there
            return super().grace()


def _checked(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    options = parser.parse_args(arguments)
    if not 1 <= options.instances <= INSTANCES_LIMIT:
        parser.error(f"argument --instances: from 1 to {INSTANCES_LIMIT}, not {options.instances}")
    if not 0 <= options.node < options.nodes:
        parser.error(f"argument --node: from 0 to one less than --nodes ({options.nodes}), not {options.node}")
    if options.keep_output and not os.environ.get(ENV_ATTEMPT_DIR):
        parser.error(f"argument --keep-output: {ENV_ATTEMPT_DIR} says where to keep it, and is not set")
    return options


def end_by_signal(number: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the instance that crashed has left its core
    if number not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    sys.stderr.flush()
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
