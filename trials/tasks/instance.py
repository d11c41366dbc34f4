"""Inside a process of a task: which one it is, and how it gives outputs."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.files import write_atomically

ENV_TASK = "TASK_NAME"
ENV_NODE = "TASK_NODE"
ENV_WORKSPACE = "TASK_WORKSPACE"
ENV_OUTPUTS = "TASK_OUTPUTS"  # the folder of what the node's tasks give
ENV_GRACE = "TASK_GRACE_S"  # of its session, for groups that run inside
FOLDER_OUTPUTS = "outputs"  # in a workspace: NAME.json each, which holds a state where JSON cannot say it
STATE_BEGINS = b"trials-checkpoint "  # no JSON does
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
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"an output's name is of letters, digits, '.', '_' and '-', not {name!r}")
    return name


def set_output(name: str, value: Any) -> None:
    """Give an output of this node's tasks. Set again, the last one counts.

    A value is what JSON knows, or tensors and arrays, alone or in dicts, lists and tuples; tensors of a device come
    back on the CPU. TypeError for another. A command does the same by writing JSON to
    ``$TASK_OUTPUTS/NAME.json``.
    """
    folder = Path(os.environ.get(ENV_OUTPUTS) or current_instance().workspace / FOLDER_OUTPUTS)
    path = folder / output_file(output_name(name))
    try:
        data = json.dumps(value).encode()
    except TypeError:
        data = _state_of(name, value)
    except (ValueError, RecursionError) as error:
        raise TypeError(
            f"output {name!r} holds itself, or is nested too deeply ({error}); give a flatter one"
        ) from None
    if len(data) > OUTPUT_LIMIT_BYTES:
        raise ValueError(f"output {name!r} has {len(data)} bytes, and {OUTPUT_LIMIT_BYTES} at most can be given")
    folder.mkdir(exist_ok=True)
    write_atomically(str(path), data)


class OutputTooLargeError(ValueError):
    """A command wrote more than an output may have."""


def output_bytes(folder: Path, name: str) -> tuple[str, bytes]:
    """What was given last into a folder of outputs, and in which form. FileNotFoundError without any."""
    with (folder / output_file(name)).open("rb") as file:
        data = file.read(OUTPUT_LIMIT_BYTES + 1)
    if len(data) > OUTPUT_LIMIT_BYTES:
        raise OutputTooLargeError(f"it has more than {OUTPUT_LIMIT_BYTES} bytes; give a file of a workspace")
    return "state" if data.startswith(STATE_BEGINS) else "json", data


def output_file(name: str) -> str:
    """Of an output, in a folder of outputs."""
    return f"{name}.json"


def output_value(kind: str, data: bytes) -> Any:
    """Of the bytes that an output has in this form. ValueError for damaged ones."""
    if kind == "json":
        try:
            return json.loads(data)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
    if kind != "state":
        raise ValueError(data.decode(errors="replace"))
    from trials.checkpoints.file_format import read_state

    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return read_state(Path(file.name))[1]


def read_output(folder: Path, name: str) -> Any:
    """What ``set_output`` gave last into a workspace. FileNotFoundError without any; ValueError for a damaged one."""
    return output_value(*output_bytes(folder / FOLDER_OUTPUTS, name))


def _state_of(name: str, value: Any) -> bytes:
    from trials.checkpoints.file_format import Imaging

    try:
        image = Imaging().capture(value, step=0)
    except TypeError as error:
        raise TypeError(f"output {name!r}: {error}") from None
    image.wait()
    return b"".join(image.parts)
