"""Analyses as pictures."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuner_service.cli.output.analyses import is_number
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import (
    Row,
    clip,
    objectives_of,
    print_object,
)

COLUMNS = 3  # of pictures in a picture of slices
DOTS = 150  # to the inch
Draw = Callable[[Any, Row], None]


def print_or_draw(arguments: argparse.Namespace, view: Row, text: Callable[[Row], str], draw: Draw) -> int:
    if arguments.png:
        write_png(Path(arguments.png), view, draw)
        say(f"written to {arguments.png}")
    else:
        print_object(view, output=arguments.output, text=text)
    return ExitCode.OK


def write_png(path: Path, view: Row, draw: Draw) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        message = "a picture needs matplotlib: pip install 'tuner-service[demo]'; or print data with -o json"
        raise CommandError(message, ExitCode.FAILURE)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure, view)
    figure.savefig(path, dpi=DOTS, format="png")


def draw_pareto(figure: Any, view: Row) -> None:
    axes = figure.subplots()
    names = [f"{one['metric']} ({one['goal']})" for one in view["objectives"]]
    for points, style in ((view["others"], {"color": "0.7", "s": 12}), (view["front"], {"color": "C0"})):
        values = [one["values"] for one in points]
        first = [value[0] for value in values]
        axes.scatter(first, [value[1] if len(value) > 1 else 0 for value in values], **style)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1] if len(names) > 1 else "")
    axes.set_title(f"{len(view['front'])} undominated trials of {view['id']}")


def draw_importance(figure: Any, view: Row) -> None:
    axes = figure.subplots()
    names = list(view["importance"])[::-1]
    axes.barh(names, [view["importance"][name] for name in names])
    axes.set_xlabel(f"importance for {view['metric']} (PED-ANOVA)")


def draw_slices(figure: Any, view: Row) -> None:
    count = max(len(view["slices"]), 1)
    rows = -(-count // COLUMNS)
    figure.set_size_inches(4 * min(COLUMNS, count), 3 * rows)
    metric = objectives_of(view)[0]["metric"]
    for place, (name, column) in enumerate(view["slices"].items(), start=1):
        axes = figure.add_subplot(rows, min(COLUMNS, count), place)
        parameters = column["parameter"]
        numeric = all(map(is_number, parameters))
        shown = parameters if numeric else [clip(str(parameter), 20) for parameter in parameters]
        axes.scatter(shown, [values[0] for values in column["values"]], s=10, c=column["numbers"])
        if numeric and min(parameters) > 0 and max(parameters) > 100 * min(parameters):
            axes.set_xscale("log")
        axes.set_xlabel(name)
        axes.set_ylabel(metric)
