"""Figures of pages, and where in the kept results each of them stands.

A paragraph or a table that tells measured figures is followed by a comment which names for each where it stands:

    <!-- measured
    0.126 = search | Multi-fidelity & auto | free tasks
    106 = speed | freeze | without, µs | / 1000
    -->

That is: the figure as the page has it; the result (a page of benchmarks/results, without .md); words that are the
section's heading or its beginning, or cells of the row, with & between them; the column; and, where units differ, what
its value is divided or multiplied by. The page's figure is the rounded value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MEASURED = re.compile(r"<!-- measured\n(.*?)-->", re.DOTALL)
# What looks like a measurement: a number with a unit of time below a second, of a rate or a ratio; and outside of
# tables, where options have such defaults, a number with two decimals.
UNITS = r"%|µs|ms\b|× |× the|times the|times as|trials/s|samples/s|reports/s|trials a second"
WITH_UNIT = re.compile(rf"(?<![\w.,`/])(\d[\d.,]*)(?= ?(?:{UNITS}))|(?<=×)( ?\d[\d.]*)")
DECIMALS = re.compile(r"(?<![\w.,`/])(\d+\.\d{2,})(?!\w|\.\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a figure stands."""

    figure: str
    result: str
    words: tuple[str, ...]
    column: str
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    heading: str
    cells: dict[str, str]


def blocks(page: str) -> Iterator[tuple[str, list[Source]]]:
    """Each paragraph, list or table of a page outside code, with the sources that follow it."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", text):
        found = MEASURED.search(block)
        sources = [_source(line) for line in found[1].strip().splitlines()] if found else []
        yield MEASURED.sub("", block), sources


def _source(line: str) -> Source:
    figure, _, rest = line.partition(" = ")
    parts = [part.strip() for part in rest.split(" | ")]
    if not figure or len(parts) not in (3, 4):
        raise ValueError(f"no source: {line!r}")
    factor = 1.0
    if len(parts) == 4:
        sign, number = parts[3].split()
        factor = 1 / float(number) if sign == "/" else float(number)
    words = tuple(word.strip() for word in parts[1].split(" & "))
    return Source(figure=figure, result=parts[0], words=words, column=parts[2], factor=factor)


def figures(block: str) -> list[str]:
    """What in a block looks like a measurement."""
    prose = "\n".join(line for line in block.splitlines() if not line.lstrip().startswith("|"))
    found = [next(filter(None, match.groups())).strip(" .,") for match in WITH_UNIT.finditer(block)]
    return found + [match[1] for match in DECIMALS.finditer(prose) if match[1] not in found]


def rows(markdown: str) -> Iterator[Row]:
    """Of every table; where two columns have one name, the first of them."""
    heading, names = "", list[str]()
    for line in markdown.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
        if not line.startswith("|"):
            names = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not names:
            names = cells
        elif set(line) - set("|-: "):
            yield Row(heading=heading, cells=dict(reversed(list(zip(names, cells, strict=False)))))


def value(source: Source, results: Path) -> float:
    """ValueError where not exactly one row has the words, or its cell is no number."""
    found = [row for row in rows((results / f"{source.result}.md").read_text(encoding="utf-8")) if _has(row, source)]
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows of {source.result}.md have {source.words} and {source.column!r}")
    number = re.match(r"-?[\d.,]*\d", found[0].cells[source.column])
    if number is None:
        raise ValueError(f"{found[0].cells[source.column]!r} is no number")
    return float(number[0].replace(",", "")) * source.factor


def _has(row: Row, source: Source) -> bool:
    cells = list(row.cells.values())
    return source.column in row.cells and all(word in cells or row.heading.startswith(word) for word in source.words)


def is_rounded(figure: str, exact: float) -> bool:
    """Whether the page's figure is the value, rounded to as many decimals as it shows; results are rounded, too."""
    decimals = len(figure.partition(".")[2])
    return abs(float(figure.replace(",", "")) - exact) <= 0.5 * 10**-decimals * 1.02 + 1e-9
