"""Results as files: JSON for programs, a table for people. Neither names the machine or its folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import at_end

RESULTS = Path(__file__).resolve().parent / "results"
Row = dict[str, Any]


def save(  # noqa: PLR0913  # what a result says, one by one
    group: str,
    *,
    command: str,
    machine: Row,
    rows: Sequence[Row],
    notes: Sequence[str] = (),
    rounds: Sequence[Row] = (),
    of_rounds: int = 0,
) -> None:
    """``results/GROUP.json`` and ``results/GROUP.md``; ``rounds``, what the rows were made of, in the former only.

    ``of_rounds``: how often each row was measured, which both say; 0 says nothing.
    """
    RESULTS.mkdir(exist_ok=True)
    machine = {**machine, **at_end()}
    result: Row = {"machine": machine, "command": command, "rows": list(rows), "notes": list(notes)}
    if of_rounds:
        result["of_rounds"] = of_rounds
    if rounds:
        result["rounds"] = list(rounds)
    (RESULTS / f"{group}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    text = f"# {group.capitalize()}\n\n`{command}`\n\n" + (f"rounds of each row: {of_rounds}\n\n" if of_rounds else "")
    text += ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in machine.items()) + "\n\n"
    text += table(rows) + "".join(f"\n{note}\n" for note in notes)
    (RESULTS / f"{group}.md").write_text(text, encoding="utf-8")
    print(f"rounds of each row: {of_rounds}\n" * bool(of_rounds) + table(rows))


def rounds_of(found: Mapping[str, Sequence[Row]]) -> list[Row]:
    """What was measured of each, round by round, as ``save`` keeps it."""
    return [{"what": name, **row} for name, rounds in found.items() for row in rounds]


def median_of(rounds: Sequence[Mapping[str, Any]], key: str) -> float:
    """Of the rounds that have it; 0 where none has."""
    return float(median([one[key] for one in rounds if key in one] or [0.0]))


def spread(values: Sequence[float], digits: int = 1) -> str:
    """The median, then the least and the most in brackets, where there are several. Empty where there are none."""
    if not values:
        return ""
    least, middle, most = (f"{value:,.{digits}f}" for value in (min(values), median(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least}–{most})"


def verdict(measured: float, target: str) -> str:
    """Whether the target is reached: "≤ 5", or 5, is at most so much, "≥ 5" at least. Empty where there is none."""
    if not target:
        return ""
    limit = float(target.lstrip("≤≥ ").replace(",", ""))
    return "reached" if (measured >= limit if target.startswith("≥") else measured <= limit) else "NOT reached"


def table(rows: Sequence[Row]) -> str:
    """In Markdown, a column for each name; a further table where rows with other names begin."""
    parts: list[tuple[dict[str, None], list[Row]]] = []
    for row in rows:
        if not parts or not (row.keys() <= parts[-1][0].keys() or row.keys() >= parts[-1][0].keys()):
            parts.append(({}, []))
        parts[-1][0].update(dict.fromkeys(row))
        parts[-1][1].append(row)
    return "\n".join(_one_table(list(names), some) for names, some in parts)


def _one_table(names: Sequence[str], rows: Sequence[Row]) -> str:
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_shown(row.get(name)) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else str(value)
