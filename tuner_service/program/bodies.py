"""From the arguments of a call to the body of a request: the fields of an experiment file, under the same names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tuner_service.cli.argument_types import NO_BOUND
from tuner_service.cli.files.experiment_file import check_readable, code_of, names_asset, parse_file, with_code
from tuner_service.cli.files.nni_file import is_nni
from tuner_service.cli.files.places import KINDS, is_path, local_path
from tuner_service.client import Client
from tuner_service.program.errors import UsageError, as_tuner_errors, usage_error
from tuner_service.program.functions import packed_function
from tuner_service.program.typed import plain

Body = dict[str, Any]
BUDGET = ("trials", "parallel", "duration", "failures")
RESOURCES = ("gpus", "gpu_memory", "cpus", "memory")
OF_TRIAL = (
    "code", "code_changes", "command", "entry_point", "arguments", "environment", "python", "preload", "max_attempts",
    "max_duration", "lease", "datasets", "models", "pretrained_from", "output",
)  # fmt: skip
WAYS_TO_RUN = ("command", "entry_point", "function", "lease")


def experiment_body(given: Mapping[str, Any]) -> Body:
    """Of what ``quick_start`` was given; None is what was left out. UsageError names every mistake found here."""
    fields = {name: value for name, value in given.items() if value is not None}
    file, function = fields.pop("file", None), fields.pop("function", None)
    further, further_trial = fields.pop("experiment", {}), fields.pop("trial", {})
    with as_tuner_errors():
        body, folder = _from_file(file) if file is not None else ({}, Path.cwd())
        _require_one_way(body, fields, function)
        _mind_objective(body, fields)
        fields = {name: _placed(name, value) for name, value in fields.items()}
        trial = {**_mapping(body, "trial"), **_trial_in(further), **further_trial, **_taken(fields, OF_TRIAL)}
        budget, resources = _taken(fields, BUDGET), _taken(fields, RESOURCES)
        if resources:
            trial["resources"] = {**_mapping(trial, "resources"), **resources}
        body = dict(plain({**body, **further, **fields, "trial": trial}))
        if budget:
            body["budget"] = {**_mapping(body, "budget"), **plain(budget, "/budget")}
        if function is not None:
            return _with_function(body, function, folder)
        return with_code(body, folder)


def with_inputs(client: Client, body: Body) -> Body:
    """``body`` as the service takes it: what it names by a path is added."""
    from tuner_service.cli.files.inputs import filled_in  # here: whoever only looks need not import how that is done

    return filled_in(client, body)


def resume_body(
    budget: Mapping[str, Any],
    *,
    code: str | os.PathLike[str] | None,
    skip_line: int | None,
    algorithm_timeout: float | str | None = None,
) -> Body:
    body: Body = budget_body(budget)
    if skip_line is not None:
        body["skip_line"] = int(skip_line)
    if algorithm_timeout is not None:
        body["algorithm_timeout"] = plain(algorithm_timeout, "/algorithm_timeout")
    if code is not None:
        with as_tuner_errors():
            body |= code_of(Path(_here(code, "code")))
    return body


def budget_body(budget: Mapping[str, Any]) -> Body:
    given = {name: value for name, value in budget.items() if value is not None}
    bounds = {name: None if value == NO_BOUND else value for name, value in given.items()}
    return {"budget": plain(bounds, "/budget")} if given else {}


def change_body(budget: Mapping[str, Any], labels: Mapping[str, Any]) -> Body:
    body: Body = plain({name: value for name, value in labels.items() if value is not None})
    body |= budget_body(budget)
    if not body:
        raise UsageError("name something to change: trials=, parallel=, note=, …")
    return body


def _trial_in(further: Mapping[str, Any]) -> Mapping[str, Any]:
    """What `experiment=` says of its trials; arguments, and `trial=`, say more."""
    trial = further.get("trial", {})
    if not isinstance(trial, Mapping):
        raise usage_error([("/experiment/trial", "should be a mapping of a trial's fields, as trial= takes them")])
    return trial


def _from_file(file: str | os.PathLike[str]) -> tuple[Body, Path]:
    path = Path(file)
    check_readable(str(path))
    body = parse_file(str(path))
    if is_nni(body):
        raise UsageError(f"{path} is an experiment file of NNI's; start it with `tuner start {path}`")
    return {"name": path.stem, **body}, path.resolve().parent


def _require_one_way(body: Body, fields: Mapping[str, Any], function: Callable[..., Any] | None) -> None:
    """Exactly one of command, entry point and function; an argument takes the place of what the file says."""
    named = [name for name in WAYS_TO_RUN if name in fields or (name == "function" and function is not None)]
    if len(named) > 1:
        raise usage_error([(f"/{name}", f"give one of {', '.join(WAYS_TO_RUN)}") for name in named])
    trial = _mapping(body, "trial")
    if named:
        for name in WAYS_TO_RUN:
            trial.pop(name, None)
        body["trial"] = trial
    elif not any(name in trial for name in WAYS_TO_RUN):
        raise usage_error([("/command", f"nothing says what a trial runs: give one of {', '.join(WAYS_TO_RUN)}")])


def _mind_objective(body: Body, fields: dict[str, Any]) -> None:
    """``objective="accuracy", goal="maximize"`` as the file has it."""
    objective, goal = fields.get("objective"), fields.pop("goal", None)
    if isinstance(objective, str):
        fields["objective"] = {"metric": objective, **({} if goal is None else {"goal": goal})}
    elif goal is not None:
        known = body.get("objective") if objective is None else objective
        if not isinstance(known, Mapping):
            raise usage_error([("/goal", "is of one objective; name that as objective=")])
        fields["objective"] = {**known, "goal": goal}


def _placed(name: str, value: Any) -> Any:
    """Paths of arguments are relative to the working folder, those of a file to the file."""
    if name == "code":
        return _code_placed(value)
    if name in KINDS and isinstance(value, Mapping):
        return {parameter: _input_placed(item, f"{name}.{parameter}") for parameter, item in value.items()}
    return value


def _code_placed(value: Any) -> Any:
    """A text is a folder, as in a file, unless it names an asset."""
    match value:
        case os.PathLike():
            return _here(value, "code")
        case str() if value and not names_asset(value, Path.cwd()):
            return _here(value, "code")
        case {"git": _, "folder": str() | os.PathLike() as folder}:
            return {**value, "folder": _here(folder, "code.folder")}
        case {"path": str() | os.PathLike() as path}:
            return {**value, "path": _here(path, "code.path")}
        case _:
            return value


def _input_placed(value: Any, what: str) -> Any:
    """A text names an asset, whatever lies here, unless it is written as a path: ./digits."""
    match value:
        case os.PathLike():
            return _here(value, what)
        case str() if is_path(value):
            return _here(value, what)
        case {"path": str() | os.PathLike() as path}:
            return {**value, "path": _here(path, what)}
        case list() | tuple():
            return [_input_placed(item, what) for item in value]
        case _:
            return value


def _here(path: str | os.PathLike[str], what: str) -> str:
    return os.path.realpath(local_path(os.fspath(path), what))


def _with_function(body: Body, function: Callable[..., Any], folder: Path) -> Body:
    """A trial that calls ``function``; beside its own source there is the code folder, if one is named."""
    code = body["trial"].get("code")
    trial = with_code(body, folder)["trial"]
    packed = trial.get("code")
    if packed is not None and not (isinstance(packed, dict) and "files" in packed):
        raise usage_error([("/code", "beside a function the code is a folder of this machine")])
    made = packed_function(function, beside=folder / code if isinstance(code, str) else None)
    files = {file["path"]: file for file in ([] if packed is None else packed["files"])}
    files |= {path: {"path": path, "content": text} for path, text in made.files.items()}
    trial = {**trial, "code": {"files": [files[path] for path in sorted(files)]}, "command": made.command}
    name = body.get("name", made.name)
    return body | {"name": name, "trial": trial}


def _taken(fields: dict[str, Any], names: tuple[str, ...]) -> Body:
    return {name: fields.pop(name) for name in names if name in fields}


def _mapping(of: Mapping[str, Any], name: str) -> Body:
    """What is none is left to the service, which says what it should be."""
    found = of.get(name)
    return dict(found) if isinstance(found, Mapping) else {}
