"""Analyses as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tuner_service.cli.output.tables import (
    Row,
    aligned,
    clip,
    levels_of,
    number_text,
    objectives_of,
    parameters_text,
)
from tuner_service.client import Client
from tuner_service.domain.wording import counted

BAR_WIDTH = 40
SHOWN_BINS = 12  # of one slice in the terminal
BLOCKS = "▁▂▃▄▅▆▇█"


def further_text(client: Client, experiment: Row, best: Row) -> str:
    """Whether going on is worth it, where that can be said; with several objectives the front."""
    outlook = best["outlook"]
    text = f"\n{outlook['message']}\n" if outlook else ""
    if len(objectives_of(experiment)) > 1:
        text += "\n" + pareto_text(client.analysis(experiment["id"], "pareto"))
    return text


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
    return f"{goals}: {counted(len(view['front']), 'trial')} that none other dominates; {volume}\n\n" + aligned(
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
    numbers = [(parameter, value) for parameter, value in pairs if is_number(parameter)]
    if len(numbers) < len(pairs) or not pairs:
        options: dict[str, list[float]] = {}
        for parameter, value in pairs:
            options.setdefault(str(parameter), []).append(value)
        best = sorted((better(values), option) for option, values in options.items())
        shown = [f"{clip(option, 20)} {number_text(value)}" for value, option in best[:SHOWN_BINS]]
        return " · ".join(shown) + (" …" if len(best) > SHOWN_BINS else "")
    low, high = min(n for n, _ in numbers), max(n for n, _ in numbers)
    bins: dict[int, list[float]] = {}
    places = levels_of([parameter for parameter, _ in numbers], SHOWN_BINS - 1)
    for place, (_, value) in zip(places, numbers, strict=True):
        bins.setdefault(place, []).append(value)
    found = {place: better(values) for place, values in bins.items()}
    least, most = min(found.values()), max(found.values())
    blocks = dict(zip(found, levels_of(list(found.values()), len(BLOCKS) - 1), strict=True))
    bars = "".join(BLOCKS[blocks[place]] if place in blocks else " " for place in range(SHOWN_BINS))
    return f"{number_text(low)} {bars} {number_text(high)}   {number_text(least)} to {number_text(most)}"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
