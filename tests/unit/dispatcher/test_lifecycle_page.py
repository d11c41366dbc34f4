"""docs/trial-lifecycle.md shows the tables that the dispatcher moves by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from tuner_service.dispatcher.transitions import (
    ATTEMPT_TRANSITIONS,
    EXPERIMENT_TRANSITIONS,
    RUNG_TRANSITIONS,
    TRIAL_TRANSITIONS,
)

PAGE = (Path(__file__).parents[3] / "docs" / "trial-lifecycle.md").read_text(encoding="utf-8")


def table_of(what: str) -> dict[str, set[str]]:
    """The table headed ``| what is | …``."""
    rows = PAGE.split(f"| {what} is | and may become |\n|---|---|\n")[1].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {status: {name.strip() for name in after.split(",") if name.strip()} for status, after in cells}


@pytest.mark.parametrize(
    ("what", "table"),
    [
        ("trial", TRIAL_TRANSITIONS),
        ("rung", RUNG_TRANSITIONS),
        ("attempt", ATTEMPT_TRANSITIONS),
        ("experiment", EXPERIMENT_TRANSITIONS),
    ],
)
def test_the_page_shows_the_table(what: str, table: Mapping[StrEnum, frozenset[StrEnum]]) -> None:
    assert table_of(what) == {before.value: {s.value for s in after} for before, after in table.items()}


@pytest.mark.parametrize(
    ("place", "table"), [(0, TRIAL_TRANSITIONS), (1, ATTEMPT_TRANSITIONS), (2, EXPERIMENT_TRANSITIONS)]
)
def test_the_drawing_has_the_arrows_of_the_table(place: int, table: Mapping[StrEnum, frozenset[StrEnum]]) -> None:
    drawing = re.findall(r"```mermaid\n(.*?)```", PAGE, flags=re.DOTALL)[place]
    arrows = re.findall(r"^ +([a-z_]+) --> ([a-z_]+): [a-z]$", drawing, flags=re.MULTILINE)

    assert sorted(arrows) == sorted((before.value, after.value) for before in table for after in table[before])


def test_every_arrow_has_a_letter_and_every_letter_its_sentence() -> None:
    explained = re.findall(r"^- \*\*([a-z])\*\* — ", PAGE, flags=re.MULTILINE)
    drawn = re.findall(r"^ +\S+ --> \S+: ([a-z])$", PAGE, flags=re.MULTILINE)

    assert explained == sorted(set(drawn))
