"""pareto, importance, slices: what was found, in the terminal, as data, and as a picture."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tuner_service.cli.context import connected, resolve_experiment, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import (
    Row,
    aligned,
    clip,
    number_text,
    objectives_of,
    parameters_text,
    print_object,
)
from tuner_service.client import Client

BAR_WIDTH = 40
SHOWN_BINS = 12  # of one slice in the terminal
BLOCKS = "▁▂▃▄▅▆▇█"
COLUMNS = 3  # of pictures in a picture of slices
DOTS = 150  # to the inch

Draw = Callable[[Any, Row], None]


def pareto(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        view = client.analysis(resolve_experiment(client, arguments.reference), "pareto")
    return _shown(arguments, view, pareto_text, draw_pareto)


def importance(arguments: argparse.Namespace) -> int:
    query = {"metric": arguments.metric} if arguments.metric else {}
    with connected(settings_of(arguments)) as client:
        view = client.analysis(resolve_experiment(client, arguments.reference), "importance", query)
    return _shown(arguments, view, importance_text, draw_importance)


def slices(arguments: argparse.Namespace) -> int:
    with connected(settings_of(arguments)) as client:
        view = client.analysis(resolve_experiment(client, arguments.reference), "slices")
    return _shown(arguments, view, slices_text, draw_slices)


def further_text(client: Client, experiment: Row) -> str:
    """Whether going on is worth it, where that can be said; with several objectives the front."""
    outlook = client.analysis(experiment["id"], "best")["outlook"]
    text = f"\n{outlook['message']}\n" if outlook else ""
    if len(objectives_of(experiment)) > 1:
        text += "\n" + pareto_text(client.analysis(experiment["id"], "pareto"))
    return text


def _shown(arguments: argparse.Namespace, view: Row, text: Callable[[Row], str], draw: Draw) -> int:
    if arguments.png:
        write_png(Path(arguments.png), view, draw)
        say(f"written to {arguments.png}")
    else:
        print_object(view, output=arguments.output, text=text)
    return ExitCode.OK


# ── in the terminal ─────────────────────────────────────────────────────────────────────────────
def pareto_text(view: Row) -> str:
    if not view["front"]:
        return f"no trial of {view['id']} has a value yet\n"
    metrics = [one["metric"] for one in view["objectives"]]
    cells = [
        [str(one["number"]), *map(number_text, one["values"]), clip(parameters_text(one["parameters"]))]
        for one in view["front"]
    ]
    titles = ["NUMBER", *(metric.upper() for metric in metrics), "PARAMETERS"]
    right = [True] * (1 + len(metrics)) + [False]
    goals = ", ".join(f"{one['goal']} {one['metric']}" for one in view["objectives"])
    volume = f"hypervolume {number_text(view['hypervolume'])} up to {', '.join(map(number_text, view['reference']))}"
    return f"{goals}: {len(view['front'])} trials that none other dominates; {volume}\n\n" + aligned(
        titles, cells, right=right
    )


def importance_text(view: Row) -> str:
    if not view["importance"]:
        return f"{view['message'] or 'no parameter has two values'}\n"
    width = max(map(len, view["importance"]))
    lines = [f"{view['metric']}, over {view['trials']} trials (PED-ANOVA)\n\n"]
    for name, share in view["importance"].items():
        lines.append(f"{name.ljust(width)}  {'█' * round(share * BAR_WIDTH):<{BAR_WIDTH}} {share:6.1%}\n")
    return "".join(lines)


def slices_text(view: Row) -> str:
    """For each parameter the best value of the first objective along its range, or of each option."""
    if not view["slices"]:
        return f"no trial of {view['id']} has a value yet\n"
    objective = objectives_of(view)[0]
    better = max if objective["goal"] == "maximize" else min
    width = max(map(len, view["slices"]))
    lines = [f"best {objective['metric']} along each parameter\n\n"]
    for name, column in view["slices"].items():
        pairs = [
            (parameter, values[0])
            for parameter, values in zip(column["parameter"], column["values"], strict=True)
            if isinstance(values[0], int | float)
        ]
        lines.append(f"{name.ljust(width)}  {_slice_line(pairs, better)}\n")
    return "".join(lines)


def _slice_line(pairs: Sequence[tuple[Any, float]], better: Callable[[list[float]], float]) -> str:
    numbers = [(parameter, value) for parameter, value in pairs if _is_number(parameter)]
    if len(numbers) < len(pairs) or not pairs:
        options: dict[str, list[float]] = {}
        for parameter, value in pairs:
            options.setdefault(str(parameter), []).append(value)
        best = sorted((better(values), option) for option, values in options.items())
        shown = [f"{clip(option, 20)} {number_text(value)}" for value, option in best[:SHOWN_BINS]]
        return " · ".join(shown) + (" …" if len(best) > SHOWN_BINS else "")
    low, high = min(n for n, _ in numbers), max(n for n, _ in numbers)
    bins: dict[int, list[float]] = {}
    for parameter, value in numbers:
        place = round((parameter - low) / (high - low) * (SHOWN_BINS - 1)) if high > low else 0
        bins.setdefault(place, []).append(value)
    found = {place: better(values) for place, values in bins.items()}
    least, most = min(found.values()), max(found.values())
    bars = "".join(_bar(found.get(place), least, most) for place in range(SHOWN_BINS))
    return f"{number_text(low)} {bars} {number_text(high)}   {number_text(least)} to {number_text(most)}"


def _bar(value: float | None, least: float, most: float) -> str:
    if value is None:
        return " "
    return BLOCKS[round((value - least) / (most - least) * (len(BLOCKS) - 1))] if most > least else BLOCKS[0]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ── as a picture ────────────────────────────────────────────────────────────────────────────────
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
        numeric = all(map(_is_number, parameters))
        shown = parameters if numeric else [clip(str(parameter), 20) for parameter in parameters]
        axes.scatter(shown, [values[0] for values in column["values"]], s=10, c=column["numbers"])
        if numeric and min(parameters) > 0 and max(parameters) > 100 * min(parameters):
            axes.set_xscale("log")
        axes.set_xlabel(name)
        axes.set_ylabel(metric)
