"""The tables of limits tell what the code has: each names its constant, whose value stands beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| [^|]*\((`[A-Z_]+`(?:, `[A-Z_]+`)*)\)[^|]*\| ([^|]+) \|", re.MULTILINE)
CONSTANT = re.compile(r"^([A-Z_]+) = ([0-9][0-9_.]*)(?: (<<|\*) ([0-9][0-9_.]*))?", re.MULTILINE)
UNITS = {"": 1, "s": 1, "min": 60, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
VALUE = re.compile(r"(2\^)?([0-9][0-9,]*)(?: (s|min|KiB|MiB|GiB|TiB)\b)?")


def constants() -> dict[str, set[float]]:
    found: dict[str, set[float]] = {}
    for package in ("tuner_service", "trials"):
        for file in (ROOT / package).rglob("*.py"):
            for name, first, sign, second in CONSTANT.findall(file.read_text(encoding="utf-8")):
                value = float(first.replace("_", ""))
                if sign:
                    other = float(second.replace("_", ""))
                    value = value * 2**other if sign == "<<" else value * other
                found.setdefault(name, set()).add(value)
    return found


def told(text: str) -> list[float]:
    values = []
    for power, number, unit in VALUE.findall(text):
        value = float(number.replace(",", ""))
        values.append(2**value if power else value * UNITS[unit])
    return values


@pytest.mark.parametrize(("page", "least"), [("operations", 25), ("rest-api", 45), ("assets", 11)])
def test_each_limit_has_the_value_of_its_constant(page: str, least: int) -> None:
    known, rows = constants(), ROW.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))

    wrong = [
        (name, value, sorted(known.get(name, ())))
        for names, values in rows
        for name, value in zip(re.findall(r"[A-Z_]+", names), told(values), strict=False)
        if value not in known.get(name, ())
    ]

    assert wrong == []
    assert len(rows) >= least
