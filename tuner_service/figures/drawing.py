"""One picture of each kind, of the answers of the API. What is drawn was computed elsewhere."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner_service.domain.wording import counted
from tuner_service.figures.style import BLUE, ORANGE, RED, Bar, Line, draw_bars, draw_lines, role_of, styled
from tuner_service.service.questions import AXES_SHOWN

View = dict[str, Any]
Views = Mapping[str, View]  # answers by their names
COLUMNS = 3  # of pictures in a picture of slices
SLICES_SHOWN = 30
LINES_SHOWN = 2_000
LANES_NAMED = 40
DOTS = 150  # to the inch
NAME_LENGTH = 24
_MARKS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def draw(kind: str, views: Views, *, form: str) -> bytes:
    """``form``: png or svg."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(8, 5), layout="constrained")
        FigureCanvasAgg(figure)
        DRAWN[kind](figure, views)
        target = io.BytesIO()
        figure.savefig(target, dpi=DOTS, format=form)
        return target.getvalue()


# ── over trials and steps ───────────────────────────────────────────────────────────────────────
def draw_history(figure: Any, views: Views) -> None:
    table, best = views["table"], views["best"]
    axes = figure.subplots()
    values = cells(table["columns"]["value"])
    numbers = cells(table["columns"]["number"])
    seen = [(n, v) for n, v in zip(numbers, values, strict=True) if is_finite(v)]
    if not seen:
        axes.set_axis_off()
        _nothing(figure)
        return
    axes.scatter([n for n, _ in seen], [v for _, v in seen], s=10, color=BLUE, label="trial")
    ended = sorted(zip(best["history"]["numbers"], map(number, best["history"]["values"]), strict=True))
    # In the order of numbers, so that it falls or rises along the axis as it did over time.
    line = _running(ended, maximize=objectives_of(best)[0]["goal"] == "maximize")
    _whole_numbers(axes)
    axes.step([n for n, _ in line], [v for _, v in line], where="post", color=ORANGE, label="best so far")
    _titled(axes, f"History of {best['id']}", "trial", objectives_of(best)[0]["metric"])
    _legend(axes)


def _running(ended: Sequence[tuple[int, float]], *, maximize: bool) -> list[tuple[int, float]]:
    line: list[tuple[int, float]] = []
    for place, value in ended:
        if math.isfinite(value):
            before = line[-1][1] if line else value
            line.append((place, max(before, value) if maximize else min(before, value)))
    return line


def draw_curves(figure: Any, views: Views) -> None:
    view, best = views["curves"], views["best"]["best"]
    axes = figure.subplots()
    best_number = None if best is None else best["number"]
    lines = [
        Line(
            role=role_of(curve["status"], is_best=curve["number"] == best_number),
            xs=curve["steps"],
            ys=[value if math.isfinite(value) else math.nan for value in map(number, curve["values"])],
        )
        for curve in view["curves"]
        if curve["steps"]
    ]
    if not lines:
        axes.set_axis_off()
        _nothing(figure, "no trial has reported yet")
        return
    draw_lines(axes, lines, best=f"trial {best_number}, the best")
    _whole_numbers(axes)
    left_out = f", {view['left_out']:,} left out" if view["left_out"] else ""
    _titled(axes, f"Learning curves of {view['id']}: {counted(len(lines), 'trial')}{left_out}", "step", view["metric"])
    _legend(axes)


def draw_timeline(figure: Any, views: Views) -> None:
    view, columns = views["timeline"], views["timeline"]["columns"]
    axes = figure.subplots()
    if not columns["lane"]:
        axes.set_axis_off()
        _nothing(figure, "nothing was held yet")
        return
    bars = [
        Bar(
            role="best" if end is None else "other",
            row=lane,
            begin=begin,
            length=(view["now_s"] if end is None else end) - begin,
        )
        for lane, begin, end in zip(columns["lane"], columns["start_s"], columns["end_s"], strict=True)
    ]
    draw_bars(axes, bars)
    names = [f"{lane['kind']} {clip(lane['name'])}" for lane in view["lanes"]]
    figure.set_size_inches(10, min(20, 2 + 0.3 * len(names)))
    axes.set_ylim(len(names) - 0.4, -0.6)
    shown = range(0, len(names), max(1, -(-len(names) // LANES_NAMED)))
    axes.set_yticks(list(shown), [names[place] for place in shown])
    _titled(axes, "What was held, and when (orange: runs now)", "seconds since the start", "")


# ── over parameters ─────────────────────────────────────────────────────────────────────────────
def draw_parallel(figure: Any, views: Views) -> None:
    from matplotlib.collections import LineCollection

    columns = dict(views["table"]["columns"])
    values = [number(value) for value in cells(columns.pop("value"))]
    shown = [place for place, value in enumerate(values) if math.isfinite(value)][:LINES_SHOWN]
    names = [name for name in columns if name.startswith("parameters.")][:AXES_SHOWN]
    axes = figure.subplots()
    if not shown:
        axes.set_axis_off()
        _nothing(figure)
        return
    scales = [_scale(cells(columns[name]), shown) for name in names]
    scales.append(_scale(values, shown))
    lines = [[(place, scale[0][row]) for place, scale in enumerate(scales)] for row in range(len(shown))]
    drawn = LineCollection(lines, cmap="viridis", linewidths=0.8, alpha=0.6)
    coloured = sorted(values[place] for place in shown)
    drawn.set_array([values[place] for place in shown])
    # A few far away would leave one colour for all others.
    drawn.set_clim(coloured[len(coloured) // 20], coloured[-1 - len(coloured) // 20])
    axes.add_collection(drawn)
    figure.set_size_inches(max(8, 1.2 * len(scales)), 5)
    axes.set_xlim(-0.2, len(scales) - 0.8)
    axes.set_ylim(-0.08, 1.08)
    metric = objectives_of(views["best"])[0]["metric"]
    titles = [clip(name.removeprefix("parameters.")) for name in names] + [metric]
    axes.set_xticks(range(len(scales)), titles, rotation=30, ha="right")
    axes.set_yticks([])
    for place, (_, low, high) in enumerate(scales):
        axes.axvline(place, color="#888888", linewidth=0.8)
        axes.text(place, -0.03, low, ha="center", va="top", fontsize=7)
        axes.text(place, 1.03, high, ha="center", va="bottom", fontsize=7)
    figure.colorbar(drawn, ax=axes, label=metric, extend="both")
    _titled(axes, f"{counted(len(shown), 'trial')} of {views['best']['id']}", "", "")


def _scale(column: Sequence[Any], shown: Sequence[int]) -> tuple[list[float], str, str]:
    """Of those trials each one's height from 0 to 1, and what stands at the ends. NaN where it has no value."""
    found = [column[place] for place in shown]
    there = [value for value in found if value is not None]
    if not all(map(is_finite, there)):
        words = sorted({str(value) for value in there})
        most = max(1, len(words) - 1)
        heights = [math.nan if value is None else words.index(str(value)) / most for value in found]
        return heights, clip(words[0]), clip(words[-1]) if len(words) > 1 else ""
    low, high = min(there, default=0.0), max(there, default=1.0)
    is_log = low > 0 and high > 100 * low
    low_at, high_at = (math.log(low), math.log(high)) if is_log else (low, high)
    width = (high_at - low_at) or 1.0
    heights = [
        math.nan if value is None else ((math.log(value) if is_log else value) - low_at) / width for value in found
    ]
    return heights, f"{low:.3g}", f"{high:.3g}"


def draw_importance(figure: Any, views: Views) -> None:
    view = views["importance"]
    if not view["importance"]:
        _nothing(figure, view["message"])
        return
    axes = figure.subplots()
    names = list(view["importance"])[::-1][-SLICES_SHOWN:]
    axes.barh([clip(name) for name in names], [view["importance"][name] for name in names], color=BLUE)
    _titled(axes, f"What matters in {view['id']}", f"importance for {view['metric']} (PED-ANOVA)", "")


def draw_slices(figure: Any, views: Views) -> None:
    view = views["slices"]
    slices = list(view["slices"].items())[:SLICES_SHOWN]
    if not slices:
        _nothing(figure)
        return
    count = len(slices)
    rows, across = -(-count // COLUMNS), min(COLUMNS, count)
    figure.set_size_inches(4 * across, 3 * rows)
    metric = objectives_of(view)[0]["metric"]
    for place, (name, column) in enumerate(slices, start=1):
        axes = figure.add_subplot(rows, across, place)
        rows_shown = [
            row
            for row in zip(column["parameter"], column["values"], column["numbers"], strict=True)
            if is_finite(row[1][0])
        ]
        if not rows_shown:
            _titled(axes, "", clip(name), metric)
            continue
        parameters = [parameter for parameter, _, _ in rows_shown]
        numeric = all(map(is_finite, parameters))
        shown = parameters if numeric else [clip(str(parameter)) for parameter in parameters]
        axes.scatter(shown, [values[0] for _, values, _ in rows_shown], s=10, c=[number for _, _, number in rows_shown])
        if numeric and min(parameters) > 0 and max(parameters) > 100 * min(parameters):
            _log(axes)
        _titled(axes, "", clip(name), metric)


def draw_pareto(figure: Any, views: Views) -> None:
    view = views["pareto"]
    if not view["front"]:
        _nothing(figure)
        return
    axes = figure.subplots()
    names = [f"{one['metric']} ({one['goal']})" for one in view["objectives"]]
    for points, colour, label in ((view["others"], "0.7", "trial"), (view["front"], RED, "undominated")):
        values = [[number(value) for value in one["values"]] for one in points]
        kept = [value for value in values if all(map(math.isfinite, value))]
        seconds = [value[1] if len(value) > 1 else 0 for value in kept]
        axes.scatter([value[0] for value in kept], seconds, s=14, color=colour, label=label)
    title = f"{len(view['front'])} undominated trials of {view['id']}"
    _titled(axes, title, names[0], names[1] if len(names) > 1 else "")
    _legend(axes)


DRAWN: Mapping[str, Callable[[Any, Views], None]] = {
    "history": draw_history,
    "curves": draw_curves,
    "parallel": draw_parallel,
    "importance": draw_importance,
    "slices": draw_slices,
    "pareto": draw_pareto,
    "timeline": draw_timeline,
}


# ── parts ───────────────────────────────────────────────────────────────────────────────────────
def _titled(axes: Any, title: str, below: str, beside: str) -> None:
    axes.set_title(title, loc="left", pad=10)
    axes.set_xlabel(below)
    axes.set_ylabel(beside)


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)


def _whole_numbers(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _log(axes: Any) -> None:
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # its own labels are formulas
    axes.xaxis.set_minor_formatter(NullFormatter())


def _nothing(figure: Any, why: str = "no trial has a value yet") -> None:
    """In place of empty axes, whose ticks would mean nothing."""
    figure.text(0.5, 0.5, why, ha="center", va="center", color="#666666")


def cells(column: Any) -> list[Any]:
    """Of a column of words each trial's own."""
    if isinstance(column, list):
        return column
    words = [*column["words"], None]  # -1 stands for none
    return [words[code] for code in column["codes"]]


def number(value: Any) -> float:
    """NaN for what is none."""
    if isinstance(value, str):
        return _MARKS.get(value, math.nan)
    return math.nan if value is None else float(value)


def is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def objectives_of(view: View) -> list[View]:
    objective = view["objective"]
    return objective if isinstance(objective, list) else [objective]


def clip(text: str) -> str:
    return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 1] + "…"
