"""Whether a trial is forked or started anew, and what its fork server must have in common with it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from trials.agent.forks.script import WORD_SHOWN, NotForkableError, Script, is_interpreter, script_of
from trials.agent.supervision.command import command_line, environment

SERVERS_REMEMBERED = 64
SUPERVISORS = "trials.agent.forks.supervising"
SDK = ("trials.session", "trials.nni.calls")  # what a training script imports that reports by itself
# Of one attempt or one place only, and read when they are used: they are set in the child.
_OF_ONE_TRIAL = frozenset(
    {
        *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT"),
    }
)
_OF_ONE_TRIAL_PREFIXES = ("TUNER_", "TRIAL_PARAM_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A process that forks, which ``key`` names: of this interpreter, these modules and these variables."""

    key: str
    preload: tuple[str, ...]
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork(Wanted):
    """From this fork server."""

    script: Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """As a process of its own from the start; ``why`` is for people."""

    why: str


def choose(attempt: Mapping[str, Any], *, base: Mapping[str, str], preload: Sequence[str]) -> Fork | Spawn:
    """How the attempt, as it stands in attempt.json, is started by an agent whose own variables are ``base``.

    ``preload``: what its script is known to import, beside the SDK, which it is taken to import unless its metrics are
    read from its output.
    """
    spec, local = attempt["spec"], attempt["local"]
    preload = tuple(preload) if spec.get("metrics_pattern") else (*SDK, *preload)
    if spec.get("isolation", "fork") == "spawn":
        return Spawn(why="the experiment asks for isolation: spawn")
    command = command_line(spec, python=local["python"])
    given = spec["command"]
    if not given or not is_interpreter(given[0], python=spec.get("python"), own=local["python"]):
        if given and PurePath(given[0]).name.startswith("python"):
            return Spawn(why=f"{command[0][:WORD_SHOWN]} is another interpreter than the agent's {local['python']}")
        return Spawn(why="the command does not run Python")
    try:
        script = script_of(command)
    except NotForkableError as error:
        return Spawn(why=str(error))
    own = tuple(sorted(spec.get("environment", {}).items()))
    passed = tuple(sorted(spec.get("pass_environment", ())))
    variables = _variables_of(own, passed, tuple(local["paths"]), frozenset(base.items()))
    key = _key(local["python"], preload, frozenset(variables.items()))
    return Fork(key=key, preload=preload, variables=variables, script=script)


def of_supervisors(base: Mapping[str, str], *, python: str) -> Wanted:
    """What forks supervisors for an agent whose own variables are ``base``: they have all, and give trials some."""
    return Wanted(key=_key(python, (SUPERVISORS,), frozenset(base.items())), preload=(), variables=dict(base))


# Nearly every trial of an experiment asks for the same.
@lru_cache(maxsize=SERVERS_REMEMBERED)
def _variables_of(
    own: tuple[tuple[str, str], ...],
    passed: tuple[str, ...],
    paths: tuple[str, ...],
    base: frozenset[tuple[str, str]],
) -> Mapping[str, str]:
    """The variables of a fork server for trials that set ``own`` and are given ``passed``.

    Nothing of one trial alone is among them, and no secret.
    """
    spec = {"environment": dict(own), "pass_environment": passed, "parameters": {}, "objective": "", "seed": 0}
    key = {"experiment_id": "", "number": 0, "attempt": 0}
    attempt = {"spec": spec, "key": key, "nonce": "", "local": {"wake": ""}}
    variables = environment(dict(base), attempt, attempt_dir="", paths=list(paths))
    return MappingProxyType(_common(variables, dict(base)))


def _common(variables: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Of the trial's variables those that every trial of the experiment has, and the agent's own in place of others."""
    common = {name: text for name, text in variables.items() if not name.startswith(_OF_ONE_TRIAL_PREFIXES)}
    for name in _OF_ONE_TRIAL & set(common):
        del common[name]
    return common | {name: base[name] for name in _OF_ONE_TRIAL & set(base)}


@lru_cache(maxsize=SERVERS_REMEMBERED)
def _key(python: str, preload: tuple[str, ...], variables: frozenset[tuple[str, str]]) -> str:
    text = json.dumps([python, list(preload), sorted(variables)])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def shadowed(names: Collection[str], loaded: Collection[str]) -> str | None:
    """A name of ``names``, the files in the script's folder, under which the fork server has ``loaded`` another module.

    The script would import its own, so it cannot be forked.
    """
    for name in sorted(names):
        stem, _, ending = name.partition(".")
        if stem in loaded and (not ending or ending == "py" or ending.endswith("so")):
            return name
    return None
