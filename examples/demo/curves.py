"""What the demo draws: accuracy curves and a timeline, in the terminal and as a PNG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner_service.figures.style import BAND, RED, Bar, Line, draw_bars, draw_lines, styled

TICKS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 1.0)
NEAREST = 0.01  # how close to 100 % the scale still resolves
WIDTH, HEIGHT = 64, 16


@dataclass(frozen=True, kw_only=True)
class Point:
    epoch: int
    accuracy: float
    at: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    number: int
    status: str
    points: Sequence[Point]
    started_at: float
    ended_at: float

    @property
    def is_stopped(self) -> bool:
        return self.status == "early_stopped"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """``dead`` is from when to when no service was there (seconds since the epoch)."""

    curves: Sequence[Curve]
    best: int
    dead: tuple[float, float]
    began_at: float

    def drawn(self) -> Iterator[tuple[Curve, str]]:
        """Every curve with its role, those to be seen best last."""
        yield from ((c, "stopped") for c in self.curves if c.is_stopped)
        yield from ((c, "other") for c in self.curves if not c.is_stopped and c.number != self.best)
        yield from ((c, "best") for c in self.curves if c.number == self.best)

    def is_unheard(self, point: Point) -> bool:
        return self.dead[0] <= point.at <= self.dead[1]


def stretched(accuracy: float) -> float:
    """From 0 to 1, with more room towards 100 %, where good trials differ."""
    return math.log((1 + NEAREST) / (1 - accuracy + NEAREST)) / math.log((1 + NEAREST) / NEAREST)


def unstretched(height: float) -> float:
    return 1 + NEAREST - (1 + NEAREST) * math.exp(-height * math.log((1 + NEAREST) / NEAREST))


# ── the terminal ────────────────────────────────────────────────────────────────────────────────
COLOURS = {"stopped": "90", "other": "34", "best": "1;33"}
UNHEARD_COLOUR = "31"


def terminal_plot(picture: Picture, *, coloured: bool) -> str:
    """The curves in characters; what was reported while the service was dead is red where there is colour."""
    last = max(point.epoch for curve in picture.curves for point in curve.points)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for curve, role in picture.drawn():
        for column, point in _columns(curve, last):
            is_end = curve.is_stopped and point is curve.points[-1]
            mark = "●" if role == "best" else "×" if is_end else "·"
            colour = UNHEARD_COLOUR if picture.is_unheard(point) else COLOURS[role]
            row = HEIGHT - 1 - round(stretched(point.accuracy) * (HEIGHT - 1))
            grid[row][column] = f"\x1b[{colour}m{mark}\x1b[0m" if coloured else mark
    labels = {HEIGHT - 1 - round(stretched(tick) * (HEIGHT - 1)): f"{tick:.0%}" for tick in TICKS}
    lines = [f"{labels.get(row, ''):>5} ┤{''.join(cells).rstrip()}" for row, cells in enumerate(grid)]
    lines.append(" " * 6 + "└" + "─" * WIDTH)
    lines.append(" " * 7 + "epoch 1" + f"epoch {last}".rjust(WIDTH - 7))
    red = "   red: the service was dead" if coloured else ""
    lines.append(f"       ● trial {picture.best}, the best   · other trials   × stopped early{red}")
    return "\n".join(lines)


def _columns(curve: Curve, last: int) -> Iterator[tuple[int, Point]]:
    """The columns that the curve crosses, in order, each with its point or one between two of them."""
    scale = (WIDTH - 1) / max(1, last - 1)
    for here, following in zip(curve.points, [*curve.points[1:], None], strict=True):
        first = round((here.epoch - 1) * scale)
        yield first, here
        if following is not None:
            after = round((following.epoch - 1) * scale)
            for column in range(first + 1, after):
                share = (column - first) / (after - first)
                yield column, replace(here, accuracy=here.accuracy + share * (following.accuracy - here.accuracy))


# ── the PNG ─────────────────────────────────────────────────────────────────────────────────────
def save_png(picture: Picture, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    with styled():
        figure, (left, right) = pyplot.subplots(
            1, 2, figsize=(13, 6), width_ratios=(3, 2), layout="constrained", dpi=130
        )
        _draw_curves(left, picture)
        _draw_timeline(right, picture)
        figure.suptitle(
            f"{len(picture.curves)} trials on handwritten digits, four at a time; the service was killed and resumed",
            fontsize=13,
        )
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(file)
        pyplot.close(figure)


def _draw_curves(axes: Any, picture: Picture) -> None:
    lines = [
        Line(role=role, xs=[p.epoch for p in curve.points], ys=[p.accuracy for p in curve.points])
        for curve, role in picture.drawn()
    ]
    draw_lines(axes, lines, best=f"trial {picture.best}, the best")
    unheard = [(p.epoch, p.accuracy) for c in picture.curves for p in c.points if picture.is_unheard(p)]
    if unheard:
        label = "reported while the service was dead"
        axes.plot(*zip(*unheard, strict=True), ".", color=RED, markersize=5, label=label, zorder=100)
    axes.set_yscale("function", functions=(_vector(stretched), _vector(unstretched)))
    axes.set_ylim(0, 1)
    axes.set_yticks(TICKS, [f"{tick:.0%}" for tick in TICKS])
    axes.set_xlim(0.5, None)
    axes.set_xlabel("epoch")
    axes.set_ylabel("accuracy on 450 test images (finer towards 100 %)")
    axes.set_title("Accuracy of every trial", loc="left", pad=12)


def _vector(function: Any) -> Any:
    import numpy as np

    return np.vectorize(function, otypes=[float])


def _draw_timeline(axes: Any, picture: Picture) -> None:
    numbers = [curve.number for curve in picture.curves]
    bars = [
        Bar(
            role=role,
            row=curve.number,
            begin=curve.started_at - picture.began_at,
            length=curve.ended_at - curve.started_at,
        )
        for curve, role in picture.drawn()
    ]
    draw_bars(axes, bars)
    killed, resumed = (moment - picture.began_at for moment in picture.dead)
    axes.axvspan(killed, resumed, color=BAND, zorder=1)
    axes.axvline(killed, color=RED, linewidth=1.2, zorder=3)
    axes.text(killed, max(numbers), "kill -9 ", color=RED, ha="right", va="center")
    axes.text(resumed, 1, " tuner resume", color=RED, ha="left", va="center")
    axes.set_ylim(max(numbers) + 0.8, 0)
    axes.set_yticks([1, *range(5, max(numbers) + 1, 5)])
    axes.set_xlim(0, None)
    axes.set_xlabel("seconds since the start")
    axes.set_ylabel("trial")
    axes.set_title("When each trial ran", loc="left", pad=12)
