"""What a launch needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """A checkpoint to continue from. Bytes: asked of the service by digest when ``path`` is None."""

    digest: str
    step: int
    size: int
    path: str | None = None  # absolute path or URL in the checkpoint store, for those over the inline limit


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenDevice:
    """A device that an attempt may use."""

    uuid: str
    share: float = 1.0  # of it and of its memory; 1.0: it has all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """Everything that decides how the script runs."""

    command: tuple[str, ...]  # never through a shell; "python" means ``python`` below
    parameters: dict[str, Any]
    seed: int  # of the trial, the same for every attempt
    objective: str  # the metric NNI's calls report to
    code_digest: str | None = None  # asset unpacked as the working directory
    arguments_prefix: str | None = None  # None: parameters are not put on the command line
    arguments_delimiter: str = "="  # " " makes two arguments of each
    environment: dict[str, str] = field(default_factory=dict)
    python: str | None = None  # interpreter; None: the agent's own
    metrics_pattern: str | None = None
    stop_grace_s: float = 30.0
    compat: str | None = None  # "nni" puts a module of that name on the path
    checkpoints: tuple[CheckpointRef, ...] = ()  # newest first; restore() takes the first that verifies
    further_parameters: tuple[dict[str, Any], ...] = ()  # of index 1, 2, …: what earlier attempts were given
    preload: tuple[str, ...] = ()  # modules that are imported once for all trials
    isolation: str = "fork"  # "spawn": a process of its own from the start
    memory_bytes: int | None = None  # of the whole tree: more ends the attempt
    max_duration_s: float | None = None  # of the attempt
    processes_per_node: int = 1  # more: the command runs so often at once, each with its RANK
    until_step: int | None = None  # should_stop() says yes from the report of this step on
    devices: tuple[GivenDevice, ...] = ()  # those that the script sees, and no others
    pass_environment: tuple[str, ...] = ()  # further variables of the agent's own
    secrets: dict[str, str] = field(default_factory=dict)  # variable: name of a secret of the node's home
    data: dict[str, Any] | None = None  # what ``trials.data.shared`` is given where it asks
