"""Printing data: the same rows as a table for people, or in a format for programs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tuner_service.cli.output.exit_codes import safe
from tuner_service.cli.output.streams import print_for_programs

Row = dict[str, Any]
BARS = "▁▂▃▄▅▆▇█"
MAX_CELL = 60
AGO_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, kw_only=True)
class Column:
    title: str
    text: Callable[[Row], str]
    right: bool = False
    width: int = MAX_CELL  # a longer text is cut


def print_rows(rows: Sequence[Row], *, output: str, columns: Sequence[Column]) -> None:
    _print(format_rows(rows, output=output, columns=columns), output)


def print_object(row: Row, *, output: str, text: Callable[[Row], str]) -> None:
    """One object; ``text`` draws it for people."""
    if output == "table":
        _print(safe(text(row)), output)
    elif output == "json":
        _print(json.dumps(row, indent=2, ensure_ascii=False) + "\n", output)
    else:
        _print(format_rows([row], output=output, columns=()), output)


def _print(text: str, output: str) -> None:
    if output == "table":
        sys.stdout.write(text)
    else:
        print_for_programs(text)


def format_rows(rows: Sequence[Row], *, output: str, columns: Sequence[Column]) -> str:
    match output:
        case "json":
            return json.dumps(list(rows), indent=2, ensure_ascii=False) + "\n"
        case "jsonl":
            return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        case "csv":
            return _csv(rows)
        case "yaml":
            import yaml

            return yaml.safe_dump([dict(row) for row in rows], sort_keys=False, allow_unicode=True)
        case "id":
            return "".join(f"{row['id']}\n" for row in rows)
        case _:
            return _table(rows, columns)


def _csv(rows: Sequence[Row]) -> str:
    """Objects spread over columns (``best.value``); lists stand as JSON."""
    import csv

    from tuner_service.csv_rows import CsvText

    flat = [_flatten(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    stream = CsvText()
    writer = csv.DictWriter(stream, fieldnames=names)
    writer.writeheader()
    writer.writerows(flat)
    return stream.getvalue()


def _flatten(row: Row, prefix: str = "") -> Row:
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, dict) and value:
            flat |= _flatten(value, f"{prefix}{name}.")
        elif isinstance(value, dict | list):
            flat[prefix + name] = json.dumps(value, ensure_ascii=False) if value else ""
        else:
            flat[prefix + name] = value
    return flat


def _table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    cells = [[clip(column.text(row), column.width) for column in columns] for row in rows]
    return aligned([column.title for column in columns], cells, right=[column.right for column in columns])


def aligned(titles: Sequence[str], cells: Sequence[Sequence[str]], *, right: Sequence[bool]) -> str:
    """Rows of ``cells`` below their ``titles``, every column as wide as its widest cell."""
    return aligned_columns([list(column) for column in zip(titles, *cells, strict=True)], right=right)


def aligned_columns(columns: Sequence[Sequence[str]], *, right: Sequence[bool]) -> str:
    """As ``aligned``, each of ``columns`` from its title down: thousands of rows cost half as much."""
    padded = []
    for column, to_right in zip(columns, right, strict=True):
        width = max(map(len, column))
        padded.append([text.rjust(width) if to_right else text.ljust(width) for text in column])
    return "".join([line.rstrip() + "\n" for line in map("  ".join, zip(*padded, strict=True))])


# ── pieces of text ──────────────────────────────────────────────────────────────────────────────
def clip(text: str, width: int = MAX_CELL) -> str:
    """On one line, and safe for a terminal: a trial's message may hold anything."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def number_text(value: Any) -> str:
    """A metric as people read it: six significant digits, and "-" for none."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def parameters_text(parameters: dict[str, Any] | None) -> str:
    return " ".join(f"{name}={_value_text(value)}" for name, value in (parameters or {}).items())


def parameters_begin(parameters: dict[str, Any], width: int = MAX_CELL) -> str:
    """``clip(parameters_text(parameters), width)``, without a look at what is cut."""
    text = ""
    for name, value in parameters.items():
        shown = f"{value:.6g}" if type(value) is float else _value_text(value)
        text = f"{text} {name}={shown}" if text else f"{name}={shown}"
        if len(text) > width:
            break
    return clip(text, width)


def _value_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else number_text(value)


def duration_text(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def ago_text(seconds: float | None) -> str:
    """How long ago something was: in the largest unit alone, as the page says it."""
    if seconds is None:
        return "-"
    size, unit = next((one for one in AGO_UNITS if seconds >= one[0]), AGO_UNITS[-1])
    return f"{seconds // size:.0f}{unit} ago"


def moment_text(moment: str | None) -> str:
    """In the time of this machine, as the page shows it, with how far that is from UTC."""
    if moment is None:
        return "-"
    return datetime.fromisoformat(moment).astimezone().isoformat(sep=" ", timespec="seconds")


def sparkline(values: Sequence[float], width: int = 20) -> str:
    """The course of ``values`` in at most ``width`` characters."""
    if not values:
        return ""
    if len(values) > width:
        values = [values[round(place * (len(values) - 1) / (width - 1))] for place in range(width)]
    return "".join(BARS[level] for level in levels_of(values, len(BARS) - 1))


def curve(values: Sequence[float], *, width: int = 60, height: int = 8) -> str:
    """``values`` from left to right as a small chart with its highest and lowest value at the side."""
    if len(values) > width:
        values = [values[round(place * (len(values) - 1) / (width - 1))] for place in range(width)]
    levels = levels_of(values, height - 1)
    labels = {height - 1: number_text(max(values)), 0: number_text(min(values))}
    side = max(len(label) for label in labels.values())
    lines = []
    for level in range(height - 1, -1, -1):
        line = "".join("•" if reached == level else " " for reached in levels)
        lines.append(f"{labels.get(level, '').rjust(side)} ┤{line.rstrip()}\n")
    return "".join(lines)


def levels_of(values: Sequence[float], top: int) -> list[int]:
    """How high each is, from 0 for the lowest to ``top``."""
    if not math.isfinite(max(values) - min(values)):  # which is more than a float holds
        values = [max(-sys.float_info.max, min(value, sys.float_info.max)) / 2 for value in values]
    low = min(values)
    span = max(values) - low
    return [round((value - low) / span * top) if span else 0 for value in values]


def objectives_of(view: Row) -> list[Row]:
    """Of an experiment's view, which has a list only where there are several."""
    objective = view["objective"]
    return objective if isinstance(objective, list) else [objective]


def first_objective(view: Row) -> Row:
    return objectives_of(view)[0]
