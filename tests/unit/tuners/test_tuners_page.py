"""The page of the tuners has a section for each that is registered, with every option and its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner_service.domain.algorithm_options import AlgorithmOption
from tuner_service.tuners.registry import TUNERS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tuners.md"


def sections() -> dict[str, str]:
    parts = re.split(r"^## (\w+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def default_text(option: AlgorithmOption) -> str:
    if option.is_required:
        return "must be given"
    if isinstance(option.default, bool):
        return str(option.default).lower()
    return f"{option.default:.4g}" if isinstance(option.default, float) else str(option.default)


@pytest.mark.parametrize("name", list(TUNERS))
def test_every_tuner_has_its_section_with_every_option_and_default(name: str) -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", sections()[name], flags=re.MULTILINE))
    assert rows == {option.name: default_text(option) for option in TUNERS[name].options}


def test_no_section_is_about_a_tuner_that_is_not_there() -> None:
    assert set(sections()) == set(TUNERS)


@pytest.mark.parametrize("name", list(TUNERS))
def test_every_section_says_when_to_use_it(name: str) -> None:
    assert len(sections()[name].split()) > 15
