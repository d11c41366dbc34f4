"""The pages name every command, option, setting, route and field; the help texts change only on purpose."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_service import an_api_service
from tests.approved.approve import help_of
from tuner_service.api.bodies.schemas import ExperimentBody, TrialBody
from tuner_service.cli.main import build_parser
from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.config import SETTINGS

ROOT = Path(__file__).resolve().parents[3]
APPROVED = ROOT / "tests" / "approved"
COMMON = {"--help", "--home", "--url", "--ca", "--profile"}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def commands() -> dict[str, argparse.ArgumentParser]:
    (subparsers,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(subparsers.choices)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings if option.startswith("--")}


def test_the_page_of_the_command_line_names_every_command_with_exactly_its_options() -> None:
    documented = {
        row[0].split("`")[1].split()[0]: set(re.findall(r"`(--[a-z-]+)`", row[-1])) - COMMON
        for row in rows(page("cli.md"))
        if row[0].startswith("`")
    }

    assert documented == {name: options_of(parser) - COMMON for name, parser in commands().items()}


def test_the_page_of_the_command_line_names_every_exit_code() -> None:
    documented = {int(row[0]) for row in rows(page("cli.md")) if row[0].isdigit()}

    assert documented == {int(code) for code in ExitCode}


def test_the_page_of_settings_is_the_table_of_settings() -> None:
    documented = {row[0].strip("`"): row for row in rows(page("configuration.md")) if len(row) == 5}

    for setting in SETTINGS:
        cells = [cell.strip("`") if place < 3 else cell for place, cell in enumerate(documented[setting.name])]
        assert cells == [setting.name, setting.flag, setting.environment, setting.default, setting.meaning]
    assert len(documented) == len(SETTINGS) + 2  # the heading and its rule


def test_the_page_of_the_api_names_every_route_and_no_other() -> None:
    documented = {(row[0], row[1].strip("`")) for row in rows(page("rest-api.md")) if row[1].startswith("`/")}

    paths = an_api_service().client.app.openapi()["paths"]

    assert documented == {(method.upper(), path) for path, operations in paths.items() for method in operations}


def test_the_page_of_the_api_names_every_field_of_the_experiment_file() -> None:
    documented = {row[0].strip("`") for row in rows(page("rest-api.md"))}

    assert set(ExperimentBody.model_fields) | set(TrialBody.model_fields) <= documented


@pytest.mark.parametrize("name", ["tuner", *sorted(commands())])
def test_the_help_text_is_the_approved_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    parser = build_parser() if name == "tuner" else commands()[name]

    # Word for word: versions of Python lay the columns out differently.
    assert help_of(parser).split() == (APPROVED / "help" / f"{name}.txt").read_text(encoding="utf-8").split()


def test_the_schema_of_the_api_is_the_approved_one() -> None:
    schema = an_api_service().client.app.openapi()

    approved = json.loads((APPROVED / "openapi.json").read_text(encoding="utf-8"))
    assert schema == approved, "the schema has changed: `make openapi` writes tests/approved/openapi.json anew"
