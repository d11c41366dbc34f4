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
    "experiment": {"name"},
    "asked": {"id"},
    "trial": {"id", "status", "parameters", "value", "final"},
}
# The words that the two sides have for one thing; everything else has the very same one.
WORDS = {
    "agents": "doctor",
    "connect": "serve",
    "quick_start": "start",
    "to_pandas": "export",
    "curves": "best",
    "checkpoints": "show",
    "status": "show",
    "wait": "watch",
}


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


def test_every_command_of_the_table_is_there_under_the_calls_own_word() -> None:
    (subparsers,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for names, route, command in rows():
        words = command.split("`")[1].split()
        parser = subparsers.choices[words[0]]
        for option in (word for word in words if word.startswith("--")):
            assert option in parser._option_string_actions, command
        for _, call in calls(names):
            said = {*words, *re.findall(r"[a-z]+", route.replace("trials", "trials trial"))}
            assert {call, WORDS.get(call, call), *call.split("_")} & said, (call, route, command)


def test_the_table_of_errors_is_that_of_the_code() -> None:
    documented = {row[0]: int(row[1]) for row in re.findall(r"^\| `(\w+Error)` \| (\d+) \|", TEXT, re.MULTILINE)}

    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.TunerError)]
    assert documented == {kind.__name__: int(kind.exit_code) for kind in kinds if kind is not errors.TunerError}


def test_the_package_gives_every_name_it_promises() -> None:
    for name in tuner_service.__all__:
        assert getattr(tuner_service, name) is not None
    assert dir(tuner_service) == sorted(tuner_service.__all__)
