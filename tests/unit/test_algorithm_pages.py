"""Every assessor and advisor with a name has a section of its page, with every option and its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner_service.advisors.registry import ADVISORS
from tuner_service.assessors.registry import ASSESSORS
from tuner_service.domain.algorithm_options import AlgorithmOption, RegisteredAlgorithm
from tuner_service.domain.ranges import FLOAT_LIMIT

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"assessors.md": ASSESSORS, "advisors.md": ADVISORS}
NAMED = {-FLOAT_LIMIT: "the lowest number", FLOAT_LIMIT: "the highest number", "": "all numbers"}


def section(page: str, name: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {name}"
    return found[1]


def shown(option: AlgorithmOption) -> str:
    default = option.default
    if isinstance(default, bool):
        return "true" if default else "false"
    if default in NAMED:
        return NAMED[default]  # type: ignore[index]  # no tuple is among them
    return f"{default:g}" if isinstance(default, float) else str(default)


@pytest.mark.parametrize(
    ("page", "algorithm"),
    [(page, algorithm) for page, registered in PAGES.items() for algorithm in registered.values()],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_algorithm_has_its_section_with_every_option(page: str, algorithm: RegisteredAlgorithm) -> None:
    told = section(page, algorithm.name)
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", told, flags=re.MULTILINE))
    assert rows == {option.name: shown(option) for option in algorithm.options}
    assert "Source: " in told
    assert "When to use it: " in told


@pytest.mark.parametrize("page", PAGES)
def test_no_section_is_about_what_is_not_there(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    names = set(re.findall(r"^## (\w+)$", text, flags=re.MULTILINE))
    assert names == set(PAGES[page])
