"""Inside a process of a task: which one it is, and how it gives outputs."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.files import write_atomically

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
