"""The table of calls, routes and commands: every call is in it, and every route and command of it is there."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tuner_service
from tuner_service.cli.main import build_parser
from tuner_service.program import errors
from tuner_service.program.handles import (
    AskedTrial,
    Experiment,
    Service,
    Trial,
    connect,
    quick_start,
    resume_unfinished,
)

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "from-a-program.md").read_text(encoding="utf-8")
OBJECTS = {"service": Service, "experiment": Experiment, "trial": Trial, "asked": AskedTrial}
OF_NO_SERVICE = {
    "service": {"url", "home", "close"},
    "experiment": {"name", "view"},
    "asked": {"id", "view"},
    "trial": {"id", "view", "status", "parameters", "value", "final"},
}
# Where the command line or REST has another word for a call; everything else is there under the very same one.
OTHER_COMMANDS = {
    "connect": "serve", "quick_start": "start", "experiments": "ps", "experiment": "show", "trial": "show",
    "status": "show", "checkpoints": "show", "agents": "agent", "to_pandas": "export",
}  # fmt: skip
OTHER_ROUTES = {"connect": "healthz", "quick_start": "experiments", "to_pandas": "export", "wait": "events"}
VERBS = {
    "GET": {"show", "status", "experiment", "trial", "download"}, "PATCH": {"set"}, "PUT": {"set"}, "DELETE": {"rm"},
    "POST": {"add", "start"},
}  # fmt: skip


def rows() -> Iterator[tuple[list[str], str, str]]:
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(cells) == 3 and re.match(r"`(GET|POST|PUT|PATCH|DELETE) ", cells[1]):
            yield re.findall(r"`([^`]*)`", cells[0]), cells[1].strip("`"), cells[2]


def calls(names: list[str]) -> Iterator[tuple[str, str]]:
    """(object, call); the object is that of the first where it is left out."""
    owner = ""
    for name in names:
        before, dot, word = name.partition("(")[0].rpartition(".")
        owner = before if dot else owner
        yield owner, word


def test_every_call_of_every_object_has_its_row_and_there_is_no_other() -> None:
    documented = {call for names, _, _ in rows() for call in calls(names)}

    there: set[tuple[str, str]] = {("", f.__name__) for f in (connect, quick_start, resume_unfinished)}
    for name, kind in OBJECTS.items():
        public = {member for member in vars(kind) if not member.startswith("_")}
        there |= {(name, member) for member in public - OF_NO_SERVICE[name]}
    assert documented == there


def test_every_route_of_the_table_is_one_of_the_api() -> None:
    schema: dict[str, Any] = json.loads((ROOT / "tests" / "approved" / "openapi.json").read_text())

    for _, route, _ in rows():
        method, path = route.split()
        assert method.lower() in schema["paths"].get(path, {}) or path == "/healthz", route


def words_of(call: str) -> set[str]:
    """``retry_failed`` is `retry --failed`, ``import_results`` is `import`."""
    return {call, *call.split("_")}


def test_every_command_of_the_table_is_there_under_the_calls_own_word() -> None:
    (subparsers,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for names, _, command in rows():
        words = command.split("`")[1].split()
        parser = subparsers.choices[words[0]]
        for option in (word for word in words if word.startswith("--")):
            assert option in parser._option_string_actions, command
        actions = {choice for action in parser._actions for choice in action.choices or ()}
        assert {word for word in words[1:] if not word.startswith("--")} <= actions, command
        for _, call in calls(names):
            said = {word.lstrip("-") for word in words}
            assert {OTHER_COMMANDS[call]} & said if call in OTHER_COMMANDS else words_of(call) & said, (call, command)


def test_every_route_of_the_table_has_the_calls_own_word() -> None:
    """As a part of its path, or as what its method means."""
    for names, route, _ in rows():
        method, path = route.split()
        said = {word for part in re.findall(r"[a-z-]+", path) for word in part.split("-")} | VERBS[method]
        for _, call in calls(names):
            assert {OTHER_ROUTES[call]} & said if call in OTHER_ROUTES else words_of(call) & said, (call, route)


def test_the_table_of_errors_is_that_of_the_code() -> None:
    documented = {row[0]: int(row[1]) for row in re.findall(r"^\| `(\w+Error)` \| (\d+) \|", TEXT, re.MULTILINE)}

    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.TunerError)]
    assert documented == {kind.__name__: int(kind.exit_code) for kind in kinds if kind is not errors.TunerError}


def test_the_package_gives_every_name_it_promises() -> None:
    for name in tuner_service.__all__:
        assert getattr(tuner_service, name) is not None
    assert dir(tuner_service) == sorted(tuner_service.__all__)
