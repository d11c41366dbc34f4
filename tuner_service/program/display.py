"""Progress for those who wait: a bar in a terminal, a live table in a notebook, lines elsewhere."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from tuner_service.cli.output.exit_codes import say
from tuner_service.cli.output.progress import USED_STATUSES, Progress, progress_line
from tuner_service.cli.output.tables import (
    clip,
    duration_text,
    first_objective,
    number_text,
    parameters_begin,
)

BAR_CELLS = 24
EIGHTHS = " ▏▎▍▌▋▊▉█"
RUNNING_ROWS = 10  # trials that run, in a notebook's table
View = dict[str, Any]


class Display(Protocol):
    def show(self, view: View) -> None: ...

    def say(self, text: str) -> None:
        """What people should know now, beside how far it is."""
        ...

    def close(self) -> None:
        """Nothing is shown any more; what was shown last stays."""
        ...


class Silence:
    def show(self, view: View) -> None:
        """Nothing is shown."""

    def say(self, text: str) -> None:
        """Nothing is said."""

    def close(self) -> None:
        """Nothing was shown."""


class Nothing(Silence):
    """Of how far it is; what happens to the service is said."""

    def say(self, text: str) -> None:
        say(text)


def display_for(progress: bool | None) -> Display:  # noqa: FBT001  # the word that people give
    """None: where somebody looks, in a notebook or a terminal. True: elsewhere too, a line every few seconds."""
    if progress is False:
        return Silence()
    if in_notebook():
        return NotebookTable()
    if sys.stderr is not None and sys.stderr.isatty():
        return TerminalBar()
    return Lines() if progress else Nothing()


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, whose front end draws HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class Lines:
    """A line when something has changed, every few seconds at most; the last one in any case."""

    def __init__(self) -> None:
        self._progress = Progress(is_terminal=False)
        self._last: View | None = None

    def show(self, view: View) -> None:
        self._progress.show(view)
        self._last = view

    def say(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        if self._last is not None:
            say(progress_line(self._last, self._progress.best_values))


class TerminalBar:
    """One line that is drawn anew on standard error."""

    def __init__(self) -> None:
        self._best_values: list[float] = []
        self._is_begun = False

    def show(self, view: View) -> None:
        best = (view.get("best") or {}).get("value")
        if isinstance(best, int | float) and best not in self._best_values[-1:]:
            self._best_values = [*self._best_values, float(best)][-BAR_CELLS * 100 :]
        text = f"{bar(share_of(view))} {progress_line(view, self._best_values)}"
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        sys.stderr.write("\r\x1b[K" + clip(text, max(1, width - 1)))
        sys.stderr.flush()
        self._is_begun = True

    def say(self, text: str) -> None:
        """In place of the line, which is drawn again below it."""
        sys.stderr.write(f"\r\x1b[K{clip(text, 1_000)}\n")
        sys.stderr.flush()

    def close(self) -> None:
        if self._is_begun:
            sys.stderr.write("\n")
            sys.stderr.flush()


class NotebookTable:
    """One output of the cell, which is replaced."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def show(self, view: View) -> None:
        from IPython import display

        drawn = table_html(view)
        if drawn == self._shown:
            return
        self._shown = drawn
        if self._handle is None:
            self._handle = display.display(display.HTML(drawn), display_id=True)  # type: ignore[no-untyped-call]  # IPython says little of its types
        else:
            self._handle.update(display.HTML(drawn))  # type: ignore[no-untyped-call]  # likewise

    def say(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        """What was drawn last stays."""


# ── how far it is ───────────────────────────────────────────────────────────────────────────────
def share_of(view: View) -> float | None:
    """Of the budget that is used up; None where it has no end."""
    budget, counts = view["budget"], view["counts"]
    shares = []
    if budget["trials"]:
        shares.append(sum(counts.get(status, 0) for status in USED_STATUSES) / budget["trials"])
    if budget["duration"]:
        shares.append(view["running_s"] / budget["duration"])
    return min(1.0, max(shares)) if shares else None


def bar(share: float | None) -> str:
    if share is None:
        return ""
    eighths = int(share * BAR_CELLS * 8)
    full, rest = divmod(eighths, 8)
    drawn = EIGHTHS[-1] * full + (EIGHTHS[rest] if rest else "")
    return f"▕{drawn.ljust(BAR_CELLS)}▏{share:4.0%}"


# ── a notebook's table ──────────────────────────────────────────────────────────────────────────
def table_html(view: View) -> str:
    """What a trial says of itself stands in it as text, never as markup."""
    best, share = view.get("best"), share_of(view)
    metric = first_objective(view)["metric"]
    counts = " · ".join(f"{count} {status}" for status, count in view["counts"].items() if count)
    head = f"<b>{_text(view['name'])}</b> ({_text(view['id'])}) {_text(view['status'])}"
    head += f" · {_text(counts or 'no trials yet')} · {_text(duration_text(view['running_s']))}"
    if share is not None:
        head += f'<br><progress value="{share:.4f}" max="1" style="width:100%"></progress>'
    if view.get("message") and view["status"] in {"failed", "paused"}:
        head += f"<br>{_text(clip(view['message'], 1_000))}"
    rows = []
    if best is not None:
        rows.append(("best", best["number"], best["value"], None, parameters_begin(best["parameters"] or {}, 200)))
    running = (view.get("running") or [])[:RUNNING_ROWS]
    rows += [(attempt["status"], attempt["number"], attempt["value"], attempt["step"], "") for attempt in running]
    return f"<div>{head}{_rows_html(metric, rows)}</div>"


def _rows_html(metric: str, rows: Sequence[tuple[str, Any, Any, Any, str]]) -> str:
    if not rows:
        return ""
    titles = ("", "trial", metric, "step", "parameters")
    lines = ["".join(f"<th>{_text(title)}</th>" for title in titles)]
    for status, number, value, step, parameters in rows:
        cells = (status, str(number), number_text(value), "" if step is None else str(step), parameters)
        lines.append("".join(f"<td>{_text(cell)}</td>" for cell in cells))
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _text(text: Any) -> str:
    return html.escape(clip(str(text), 1_000))
