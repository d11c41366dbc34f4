"""What is executed: the command line and the environment of a trial.

Pure. A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trials.wire.variables import ADDED_PATH, is_inherited

PARAMETER_VARIABLE_BYTES = 32 << 10  # a longer value has no TRIAL_PARAM_ variable; parameters.json has it
_PYTHON_WORDS = ("python", "python3")
_PRIVATE_PREFIXES = ("TUNER_", "TRIAL_PARAM_")  # of the service, or of a trial that the agent itself runs in


def command_line(spec: Mapping[str, Any], *, python: str) -> list[str]:
    """The arguments to execute. ``python`` replaces the words python and python3 in front."""
    command = list(spec["command"])
    if command and command[0] in _PYTHON_WORDS:
        command[0] = spec.get("python") or python
    prefix = spec.get("arguments_prefix")
    if prefix is not None:
        delimiter = spec.get("arguments_delimiter", "=")
        for name, value in spec["parameters"].items():
            command += _argument(f"{prefix}{name}", delimiter, as_text(value))
    processes = spec.get("processes_per_node", 1)
    if processes > 1:
        world = spec.get("world")
        where = [] if world is None else ["--node", str(world["node"]), "--nodes", str(spec["nodes"])]
        runner = [spec.get("python") or python, "-m", "trials.tasks", "--instances", str(processes), "--keep-output"]
        command = [*runner, *where, "--", *command]
    return command


def _argument(name: str, delimiter: str, text: str) -> list[str]:
    if not text:
        return [name]  # a flag
    return [name, text] if delimiter == " " else [f"{name}{delimiter}{text}"]


def as_text(value: Any) -> str:
    """A parameter as one argument: text as it is, None as nothing, everything else as JSON (``true``, ``0.1``)."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def environment(
    base: Mapping[str, str], attempt: Mapping[str, Any], *, attempt_dir: str, paths: list[str]
) -> dict[str, str]:
    """Variables of the trial: of ``base`` what every trial gets and what the experiment names, the experiment's own,

    then the attempt's. Secrets are no part of them: they are added where the trial starts.
    """
    key, spec = attempt["key"], attempt["spec"]
    passed = frozenset(spec.get("pass_environment", ()))
    variables = {
        name: text
        for name, text in base.items()
        if (name in passed or is_inherited(name)) and not name.startswith(_PRIVATE_PREFIXES)
    }
    variables["PYTHONPATH"] = ":".join(
        p for p in variables.get("PYTHONPATH", "").split(":") if p != base.get(ADDED_PATH)
    )
    variables["PYTHONUNBUFFERED"] = "1"
    variables |= {name: text for name, text in spec.get("environment", {}).items() if not name.startswith("TUNER_")}
    # Each folder once: ``base`` may be the outcome of this very function.
    variables["PYTHONPATH"] = ":".join(dict.fromkeys([*paths, *filter(None, variables["PYTHONPATH"].split(":"))]))
    for name, value in spec["parameters"].items():
        text = as_text(value)
        if len(text.encode(errors="surrogatepass")) <= PARAMETER_VARIABLE_BYTES:
            variables["TRIAL_PARAM_" + re.sub(r"[^A-Za-z0-9_]", "_", name).upper()] = text
    variables |= _device_variables(spec, attempt["local"])
    variables |= _world_variables(spec)
    return variables | {
        "TUNER_ATTEMPT_DIR": attempt_dir,
        "TUNER_NONCE": attempt["nonce"],
        "TUNER_EXPERIMENT_ID": key["experiment_id"],
        "TUNER_TRIAL_NUMBER": str(key["number"]),
        "TUNER_ATTEMPT": str(key["attempt"]),
        "TUNER_OBJECTIVE": spec["objective"],
        "TUNER_SEED": str(spec["seed"]),
        "TUNER_WAKE_SOCKET": attempt["local"]["wake"],
    }


def why_not(command: Sequence[str], variables: Mapping[str, str]) -> str:
    """What no process can be given of these, or ""."""
    for position, word in enumerate(command):
        if fault := _fault(word):
            return f"argument {position} {fault}"
    for name, text in variables.items():
        fault = _fault(text) or _fault(name) or ("has no valid name" if not name or "=" in name else "")
        if fault:
            return f"variable {name!a} {fault}"
    return ""


def _fault(text: str) -> str:
    if "\0" in text:
        return "has a NUL character"
    try:
        os.fsencode(text)  # bytes that are no text come out of ``base`` as they came in
    except UnicodeEncodeError:
        return "has half a surrogate pair, which is no text"
    return ""


def _world_variables(spec: Mapping[str, Any]) -> dict[str, str]:
    """Of an attempt of several nodes, as torchrun gives them; of several processes each has its own ranks besides."""
    world, processes = spec.get("world"), spec.get("processes_per_node", 1)
    if world is None:
        return {}
    return {
        "MASTER_ADDR": world["address"],
        "MASTER_PORT": str(world["port"]),
        "TUNER_WORLD_KEY": world.get("key", ""),
        "GROUP_RANK": str(world["node"]),
        "GROUP_WORLD_SIZE": str(spec["nodes"]),
        "NODE_RANK": str(world["node"]),
        "RANK": str(world["node"] * processes),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(spec["nodes"] * processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }


def _device_variables(spec: Mapping[str, Any], local: Mapping[str, Any]) -> dict[str, str]:
    """CUDA sees the devices that the attempt was given, and no others where the node has some.

    A trial that was given none may be shown some by its experiment's own variable.
    """
    given = spec.get("devices", ())
    hidden = local.get("has_devices") and "CUDA_VISIBLE_DEVICES" not in spec.get("environment", {})
    if not given:
        return {"CUDA_VISIBLE_DEVICES": ""} if hidden else {}
    uuids = ",".join(device["uuid"] for device in given)
    variables = {"CUDA_VISIBLE_DEVICES": uuids, "TUNER_DEVICES": uuids}
    share = min(device.get("share", 1.0) for device in given)
    return variables if share >= 1 else variables | {"TUNER_GPU_MEMORY_FRACTION": f"{share:.6g}"}
