"""Every figure of the README and of docs/ that claims a measurement stands in a kept result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.benchmarks.figures import blocks, figures, is_rounded, rows, value

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Limits, settings and counts, which look like measurements and are none.
SETTINGS = {
    "README.md": {"3.11"},
    "data-loading.md": {"10", "30", "80"},
    "operations.md": {"8", "3.11"},
    "search-quality.md": {"95", "100", "10"},
    "testing.md": {"100"},
    "trial-runtime.md": {"80", "2"},
}
CHECKED_AS_TABLES = {"speed.md"}  # every row by the test below


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_figure_of_a_page_stands_in_a_result(page: Path) -> None:
    wrong = []
    for _, sources in blocks(page.read_text(encoding="utf-8")):
        for source in sources:
            exact = value(source, RESULTS)
            if not is_rounded(source.figure, exact):
                wrong.append(f"{source.figure} is {exact:g} in {source.result}: {source.words} | {source.column}")

    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in CHECKED_AS_TABLES], ids=lambda p: p.name)
def test_what_looks_like_a_measurement_says_where_it_stands(page: Path) -> None:
    settings, missing = SETTINGS.get(page.name, set()), []
    for block, sources in blocks(page.read_text(encoding="utf-8")):
        named = {source.figure for source in sources}
        missing += [f"{figure} in: {block.strip()[:90]}" for figure in figures(block) if figure not in named | settings]
        missing += [
            f"{figure} is named, and is not in: {block.strip()[:90]}" for figure in named if figure not in block
        ]

    assert not missing, "\n".join(missing)


def test_the_table_of_what_is_paid_for_speed_has_the_figures_of_its_result() -> None:
    units = {"µs": 1.0, "ms": 1000.0}
    measured = {row.cells["trick"]: row.cells for row in rows((RESULTS / "speed.md").read_text(encoding="utf-8"))}
    shown = [row.cells for row in rows((ROOT / "docs" / "speed.md").read_text(encoding="utf-8")) if "with" in row.cells]

    assert len(shown) == len(measured)
    for cells in shown:
        of = measured[cells["name"].strip("`")]
        for name, column in (("without", "without, µs"), ("with", "with, µs")):
            figure, unit = re.fullmatch(r"([\d.,]+) (\S+)", cells[name]).groups()  # type: ignore[union-attr]  # it matches
            exact = float(of[column].replace(",", "")) / units[unit]
            assert is_rounded(figure, exact), f"{cells['name']}: {cells[name]}, and {exact:g} {unit} in the result"


# ── the reading of pages ────────────────────────────────────────────────────────────────────────
RESULT = """# Speed
| name | rate | share |
|---|---|---|
| a | 1,234 | 7.9% (!) |
| b | 0.126 | 5 |
## Other
| name | rate |
|---|---|
| a | 5 |
"""


def a_page(comment: str) -> str:
    return f"Ours does 1,234 trials/s, 8 % of them with 0.13.\n<!-- measured\n{comment}\n-->\n\n```\n99 %\n```\n"


def test_a_page_names_the_row_and_the_column_of_its_figures(tmp_path: Path) -> None:
    (tmp_path / "r.md").write_text(RESULT)
    lines = [
        "1,234 = r | Speed & a | rate",
        "8 = r | a | share",
        "0.13 = r | b | rate",
        "1.2 = r | Speed & a | rate | / 1000",
    ]
    ((block, sources), *_) = blocks(a_page("\n".join(lines)))

    assert figures(block) == ["1,234", "8", "0.13"]
    assert all(is_rounded(source.figure, value(source, tmp_path)) for source in sources)


@pytest.mark.parametrize(
    "line", ["8 = r | a | rate", "8 = r | c | rate", "8 = r | a | other", "8 = r | Other & b | rate"]
)
def test_a_source_that_is_not_exactly_one_row_is_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "r.md").write_text(RESULT)
    ((_, (source,)), *_) = blocks(a_page(line))

    with pytest.raises(ValueError, match=r"rows of r\.md"):
        value(source, tmp_path)


@pytest.mark.parametrize(("figure", "exact", "ok"), [("8", 7.9, True), ("8", 8.6, False), ("0.13", 0.126, True)])
def test_a_figure_may_be_rounded_and_nothing_else(figure: str, exact: float, *, ok: bool) -> None:
    assert is_rounded(figure, exact) is ok


@pytest.mark.parametrize("text", ["takes 7.3 ms here", "1.25 × the bare loop", "a regret of 0.083", "of × 3"])
def test_a_new_claim_is_noticed(text: str) -> None:
    assert figures(text)
