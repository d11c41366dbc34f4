"""docs/agent-protocol.md says everything that trials/wire says, and nothing else."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

import pytest

from trials.wire import (
    attempt,
    checkpoints,
    devices,
    files,
    handshake,
    inputs,
    launch,
    limits,
    messages,
    nodes,
    outputs,
    records,
    sockets,
)

WIRE: dict[str, Any] = {
    name: value
    for module in (
        attempt,
        checkpoints,
        devices,
        files,
        handshake,
        inputs,
        launch,
        limits,
        messages,
        nodes,
        outputs,
        records,
        sockets,
    )
    for name, value in vars(module).items()
}
PAGE = (Path(__file__).parents[3] / "docs" / "agent-protocol.md").read_text(encoding="utf-8")
MESSAGES = {cls.kind: cls for cls in (*get_args(messages.FromAgent), *get_args(messages.ToAgent))}
RECORDS = {cls.kind: cls for cls in get_args(records.SpoolRecord)}
PARTS = (
    "AttemptKey", "ProcessRecord", "NodeResources", "NodeFacts", "NodeDevice", "ObservedAttempt", "ExitRecord",
    "CheckpointRef", "GivenDevice", "World", "LaunchSpec", "Input", "InputItem",
)  # fmt: skip
DESCRIBED: dict[str, Any] = MESSAGES | RECORDS | {name: WIRE[name] for name in PARTS}
LIMITS = {name: value for name, value in WIRE.items() if re.search(r"_(LINES|BYTES|LIMIT)$", name)}
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def section(title: str) -> str:
    """Below the heading, up to the next one."""
    found = re.search(rf"^### `?{re.escape(title)}`?\n(.*?)(?=^##)", PAGE + "\n## ", re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no heading {title}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in lines]


def rows_of_fields(title: str) -> list[list[str]]:
    table = section(title).split("\n\n| `cause`")[0]
    return [cells for cells in rows(table) if cells[0].startswith("`")]


@pytest.mark.parametrize("title", sorted(DESCRIBED))
def test_every_field_stands_on_the_page_in_order(title: str) -> None:
    assert [cells[0].strip("`") for cells in rows_of_fields(title)] == [f.name for f in fields(DESCRIBED[title])]


@pytest.mark.parametrize("title", sorted(DESCRIBED))
def test_what_may_be_left_out_is_said(title: str) -> None:
    said = {cells[0].strip("`"): " ".join(cells[2:]) for cells in rows_of_fields(title)}
    for entry in fields(DESCRIBED[title]):
        has_default = entry.default is not MISSING or entry.default_factory is not MISSING
        assert said[entry.name].startswith("default") == has_default, entry.name


def test_every_heading_is_something_of_the_protocol() -> None:
    headings = re.findall(r"^### `?(\w+)`?$", PAGE, re.MULTILINE)

    assert sorted(headings) == sorted([*DESCRIBED, "Versions"])


def test_every_limit_stands_on_the_page_with_its_value() -> None:
    table = PAGE.partition("## Limits")[2]
    said = {}
    for name, value, _ in (cells for cells in rows(table) if cells[0].startswith("`")):
        number, _, unit = value.partition(" ")
        said[name.strip("`")] = int(number.replace(",", "")) * UNITS.get(unit, 1)

    assert said == LIMITS


def test_every_cause_of_an_exit_stands_on_the_page() -> None:
    table = section("ExitRecord").split("\n\n| `cause`")[1]
    assert [cells[0].strip("`") for cells in rows(table) if cells[0].startswith("`")] == list(records.ExitCause)


def test_every_file_and_variable_stands_on_the_page() -> None:
    for name, value in vars(files).items():
        if name.startswith(("FILE_", "FOLDER_", "ENV_")):
            assert f"`{name}`" in PAGE, name
            assert value in PAGE, value


def test_the_version_of_the_page_is_the_one_of_the_code() -> None:
    assert f"This page describes version {messages.PROTOCOL_VERSION}." in PAGE
    assert f'"kind":"hello","version":{messages.PROTOCOL_VERSION},' in PAGE
    assert f"`format` {files.FILES_FORMAT}" in PAGE


def test_the_messages_of_each_side_stand_in_its_part() -> None:
    parts = dict(re.findall(r"^## (From the agent|Both ways|From the service)\n(.*?)(?=^## )", PAGE, re.M | re.S))
    said = {part: set(re.findall(r"^### `(\w+)`$", text, re.MULTILINE)) for part, text in parts.items()}
    agent = {cls.kind for cls in get_args(messages.FromAgent)}
    service = {cls.kind for cls in get_args(messages.ToAgent)}

    assert said == {
        "From the agent": agent - service, "Both ways": agent & service, "From the service": service - agent,
    }  # fmt: skip
