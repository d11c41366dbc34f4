"""How trials look in every picture: which colours, what lies on top, what the legend says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

GREY, BLUE, ORANGE, RED, BAND = "#b8b8b8", "#7fa8d1", "#e8590c", "#c92a2a", "#ffe3e3"
STYLES: dict[str, dict[str, Any]] = {
    "stopped": {"color": GREY, "linewidth": 1.2},
    "failed": {"color": RED, "linewidth": 1.2, "linestyle": ":"},
    "other": {"color": BLUE, "linewidth": 1.2, "alpha": 0.9},
    "best": {"color": ORANGE, "linewidth": 2.6},
}
LABELS = {"stopped": "stopped early", "failed": "failed", "other": "ran to its end, or runs"}
ROLES = tuple(STYLES)  # those to be seen best last


@dataclass(frozen=True, kw_only=True)
class Line:
    """The curve of one trial."""

    role: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A stretch of time in a row."""

    role: str
    row: float
    begin: float
    length: float


def role_of(status: str, *, is_best: bool) -> str:
    if is_best:
        return "best"
    return {"early_stopped": "stopped", "failed": "failed"}.get(status, "other")


@contextmanager
def styled() -> Iterator[None]:
    """Pictures that are drawn in the block look like ours."""
    import matplotlib as mpl

    settings: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#888888"}
    settings["text.parse_math"] = False  # names of parameters are text, and no formulas
    with mpl.rc_context(settings):
        yield


def draw_lines(axes: Any, lines: Sequence[Line], *, best: str) -> None:
    """``best`` is what the legend says of the best. What was stopped ends in a cross."""
    labels = LABELS | {"best": best}
    shown: set[str] = set()
    for layer, line in enumerate(sorted(lines, key=lambda line: ROLES.index(line.role))):
        label = None if line.role in shown else labels[line.role]
        shown.add(line.role)
        axes.plot(line.xs, line.ys, **STYLES[line.role], label=label, zorder=2 + layer, solid_capstyle="round")
        if line.role == "stopped" and len(line.xs):
            axes.plot(line.xs[-1], line.ys[-1], "x", color=GREY, markersize=6, zorder=2 + layer)
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)


def draw_bars(axes: Any, bars: Sequence[Bar]) -> None:
    for role in ROLES:
        of_role = [bar for bar in bars if bar.role == role]
        if of_role:
            rows, lengths = [bar.row for bar in of_role], [bar.length for bar in of_role]
            begins, colour = [bar.begin for bar in of_role], STYLES[role]["color"]
            axes.barh(rows, lengths, left=begins, height=0.7, color=colour, zorder=2)
