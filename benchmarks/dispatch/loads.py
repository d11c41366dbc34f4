"""What the trials of this benchmark do, and what their own clocks say when they are over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

AT_ONCE = 4
STEPS = 10
# The first line of a trial's code takes the time, and so does the last one; both are added to one file as one line.
SCRIPT = """import time; began = time.time()
{imports}
for step in range(10):
    {pause}
    print(f"step={{step}} loss={{1 / (step + 1)}}", flush=True)
with open({times!r}, "a") as file:
    file.write(f"{{began!r}} {{time.time()!r}}\\n")
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """``trials`` are as many for everybody."""

    name: str
    trials: int
    imports: str = ""
    pause: str = "pass"
    preload: tuple[str, ...] = ()

    def script(self, times: Path) -> str:
        return SCRIPT.format(
            imports=f"import {self.imports}" if self.imports else "", pause=self.pause, times=str(times)
        )

    def of(self, trials: int) -> Load:
        return replace(self, trials=trials)


@contextmanager
def folder_of(load: Load) -> Iterator[tuple[Path, Path, Path]]:
    """An empty folder with the script of the trials; the folder, the script, and where trials write their times."""
    with TemporaryDirectory(prefix="tuner-dispatch-") as name:
        folder = Path(name)
        script, times = folder / "script.py", folder / "times"
        script.write_text(load.script(times), encoding="utf-8")
        yield folder, script, times


def figures(times: Path, load: Load, found: dict[str, Any]) -> dict[str, Any]:
    """Of a run that ``peers.timed`` watched: the first trial, the rate once it runs, and what lies between two trials.

    The steady rate leaves out the first quarter of the trials: whatever is started, imported or prepared once is over.
    """
    if "error" in found:
        return found
    lines = [tuple(map(float, line.split())) for line in times.read_text(encoding="utf-8").splitlines()]
    if (following := found.get("next")) is not None:
        lines = [line for line in lines if line[0] < following["began_at"]]
    return _figures(lines, load, found)


def next_figures(times: Path, load: Load, found: dict[str, Any]) -> dict[str, Any]:
    """Likewise of the next search of the same process, which said itself when it began and how long it took."""
    if "error" in found:
        return found
    if (following := found.get("next")) is None:
        return {"error": "it ended before its next search"}
    lines = [tuple(map(float, line.split())) for line in times.read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line[0] >= following["began_at"]]
    return _figures(lines, load, {**found, **following})


def _figures(lines: list[tuple[float, ...]], load: Load, found: dict[str, Any]) -> dict[str, Any]:
    begins, ends = sorted(begin for begin, _ in lines), sorted(end for _, end in lines)
    if len(ends) < max(load.trials, 2 * AT_ONCE):
        return {"error": f"{len(ends)} trials ran, not {load.trials}"}
    begins, ends = begins[: load.trials], ends[: load.trials]  # Syne Tune starts more, until enough have ended
    warm = len(ends) // 4 - 1
    gaps = sorted(1000 * (begin - end) for begin, end in zip(begins[AT_ONCE:], ends, strict=False))
    return {
        "trials": load.trials,
        "version": found.get("version", ""),
        "first_s": begins[0] - found["began_at"],
        "whole_s": found["whole_s"],
        "steady_a_second": (len(ends) - 1 - warm) / (ends[-1] - ends[warm]),
        "gap_ms": median(gaps),
        "gap_p90_ms": gaps[int(0.9 * len(gaps))],
    }
