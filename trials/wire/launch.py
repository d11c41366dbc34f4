"""What a launch needs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from trials.wire.inputs import Input, InputItem
from trials.wire.records import Isolation


class Compat(StrEnum):
    """For whose library a script was written."""

    NNI = "nni"  # a module of that name is put on the path


class KeepOutputs(StrEnum):
    """When what stands in the output folder is kept."""

    END = "end"  # of a trial that ends well
    ALWAYS = "always"  # besides at each checkpoint, and however it ends


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
class World:
    """Of an attempt of several nodes: which of them this part is for, and where the first process listens.

    While the parts are prepared nobody knows where: then ``port`` is 0.
    """

    node: int  # from 0; the processes of node 0 have the lowest ranks, and rank 0 reports
    address: str = ""  # MASTER_ADDR
    port: int = 0  # MASTER_PORT
    key: str = ""  # by which its processes know one another


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """How an experiment wants its trials to run: the part of a launch that is the same for all of them.

    One value from the experiment file to the process: the template of an experiment has these fields, a launch has
    them, and views show them. They are inherited and not a part of their own, so that stored experiments and launches
    have one flat form.
    """

    command: tuple[str, ...]  # never through a shell; "python" means ``python`` below
    code_digest: str | None = None  # asset unpacked as the working directory
    code_asset: InputItem | None = None  # in its place, of any size: a copy of this tree is the working directory
    arguments_prefix: str | None = None  # None: parameters are not put on the command line
    arguments_delimiter: str = "="  # " " makes two arguments of each
    environment: dict[str, str] = field(default_factory=dict)
    pass_environment: tuple[str, ...] = ()  # further variables of the agent's own
    secrets: dict[str, str] = field(default_factory=dict)  # variable: name of a secret of the node's home
    python: str | None = None  # interpreter; None: the agent's own
    metrics_pattern: str | None = None
    max_duration_s: float | None = None  # of the attempt
    stop_grace_s: float = 30.0
    compat: Compat | None = None
    define_by_run: bool = False  # the script may ask for parameters that the search space lacks, which then grows
    preload: tuple[str, ...] = ()  # imported once for all trials; without any, what the first trial imported
    isolation: Isolation = Isolation.FORK
    memory_bytes: int | None = None  # of the whole tree: more ends the attempt
    nodes: int = 1  # more: the command runs on so many nodes at once, in one world
    processes_per_node: int = 1  # more: the command runs so often at once, each with its RANK
    data: dict[str, Any] | None = None  # what ``trials.data.shared`` is given where it asks
    inputs: dict[str, Input] = field(default_factory=dict)  # by parameter, what the trial is given the path of
    output: str | None = None  # folder of the working directory, whose files become an asset of the trial
    keep_outputs: KeepOutputs = KeepOutputs.END


def assets_of(settings: LaunchSettings) -> frozenset[str]:
    """The digests of the assets that its trials are given."""
    items = [item for given in settings.inputs.values() for item in given.items]
    return frozenset(item.asset for item in (*items, settings.code_asset) if item is not None and item.asset)


_SETTINGS = tuple(entry.name for entry in fields(LaunchSettings))


def settings_of(value: LaunchSettings) -> dict[str, Any]:
    """The launch settings alone of what has them, as the arguments of another value that has them."""
    return {name: getattr(value, name) for name in _SETTINGS}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec(LaunchSettings):
    """Everything that decides how the script of one attempt runs."""

    parameters: dict[str, Any]
    seed: int  # of the trial, the same for every attempt
    objective: str  # the metric NNI's calls report to
    checkpoints: tuple[CheckpointRef, ...] = ()  # newest first; restore() takes the first that verifies
    further_parameters: tuple[dict[str, Any], ...] = ()  # of index 1, 2, …: what earlier attempts were given
    until_step: int | None = None  # should_stop() says yes from the report of this step on
    devices: tuple[GivenDevice, ...] = ()  # those that the script sees, and no others
    world: World | None = None  # of an attempt of several nodes
