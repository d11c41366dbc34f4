"""Tables for people and a picture."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.search.roles import FREE, free_loss, role_of

TITLES = {
    "black_box": "Black-box: regret by number of trials, one at a time",
    "multi_fidelity": "Multi-fidelity: regret by share of the simulated time",
    "multi_objective": "Two objectives: 1 - hypervolume / best by number of trials",
}
LOCAL = frozenset({"--cache", "--syne-python", "--processes"})
DRAWN_FROM = 1e-4  # smaller losses are drawn there


def provenance(arguments: list[str], *, program: str = "benchmarks.search") -> dict[str, Any]:
    versions = {}
    for name in ("optuna", "numpy", "scipy", "scikit-learn"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    shown: list[str] = []
    for place, argument in enumerate(arguments):
        if argument in LOCAL or (place and arguments[place - 1] in LOCAL):
            continue  # of this machine, and without a meaning for the figures
        shown.append(Path(argument).name if argument.startswith("/") else argument)
    return {
        "machine": machine.describe(),
        "command": " ".join([f"python -m {program}", *shown]),
        "versions": versions,
    }


def tables(result: dict[str, Any]) -> str:
    """Markdown: one table a kind, best mean rank first; then the losses of every task."""
    parts = [_head(result)]
    for kind, found in result["kinds"].items():
        parts.append(f"## {TITLES[kind]}\n")
        parts.append(_said_of(found))
        parts.append(_methods(found))
        parts.append(_tasks(found))
    return "\n".join(parts)


def _head(result: dict[str, Any]) -> str:
    where = result["machine"]
    machine_text = f"{where['processor']}, {where['cores']} cores, {where['date']}"
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    what = "What the figures mean: [search-quality.md](../../docs/search-quality.md)."
    return f"# Search quality\n\n`{result['command']}`\n\n{machine_text}; {versions}. {what}\n"


def _said_of(found: dict[str, Any]) -> str:
    """What a reader must know before comparing."""
    free = [task for task in found["tasks"] if role_of(task) == FREE]
    said = (
        f"Of {len(found['tasks'])} tasks, {len(free)} had no part in choosing any rule of ours: {', '.join(free)}; "
        "the column `free tasks` is their mean alone, at 100 %."
        if free
        else "Rules of ours were chosen on every task of this kind: none is free of them."
    )
    for method, others in found.get("same", {}).items():
        said += f" {', '.join(others)} went as {method} in every run: one row shows both."
    return f"{said}{found.get('note', '')}\n"


def _label(found: dict[str, Any], method: str) -> str:
    return " = ".join([method, *found.get("same", {}).get(method, [])])


def _methods(found: dict[str, Any]) -> str:
    names = ["method", "25 %", "50 %", "100 %", "95 % ±", "free tasks", "rank 25 %", "50 %", "100 %"]
    names += ["time to target", "trials", "own s"]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    ordered = sorted(found["methods"].items(), key=lambda item: item[1]["rank"].get("100", 99.0))
    for name, figures in ordered:
        at, rank = figures["loss_at"], figures["rank"]
        free = free_loss(found["tasks"], name)
        cells = [_label(found, name), *(f"{at[s]:.4f}" for s in ("25", "50", "100"))]
        cells.append("" if figures["spread"] is None else f"{figures['spread']:.4f}")
        cells.append("" if free is None else f"{free:.4f}")
        cells += [f"{rank.get(s, float('nan')):.2f}" for s in ("25", "50", "100")]
        target = figures["time_to_target"]
        cells += ["" if target is None else f"{target:.3f}", f"{figures['trials']:.0f}", f"{figures['own_s']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _tasks(found: dict[str, Any]) -> str:
    methods = list(found["methods"])
    head = ["task, at 100 %", "its part", *(_label(found, method) for method in methods)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for task, by_method in found["tasks"].items():
        cells = []
        for method in methods:
            ends = by_method.get(method)
            cells.append("" if ends is None else f"{ends['loss_at']['100']:.4f} ± {ends['half_width']:.4f}")
        lines.append(f"| {task} | {role_of(task)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def plot(result: dict[str, Any], path: Path) -> None:
    """One panel a kind, the mean loss over the budget; nothing where matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(result["kinds"]), figsize=(6 * len(result["kinds"]), 5), squeeze=False)
    for panel, (kind, found) in zip(panels[0], result["kinds"].items(), strict=True):
        for method, curve in found["curves"].items():
            own = "_" not in method.partition("+")[0] or method.startswith("advisor")
            shown = [max(value, DRAWN_FROM) if value < 100 else float("nan") for value in curve]
            panel.plot(range(1, len(curve) + 1), shown, label=method, linewidth=2.5 if own else 1.0)
        panel.set(title=TITLES[kind].partition(":")[0], xlabel="% of the budget", ylabel="mean loss", yscale="log")
        panel.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
