"""The dashboard in a browser: until it paints, until its plots are usable, what is sent, what the service computes."""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from benchmarks.dashboard.visits import Site, a_browser, a_page, visited
from benchmarks.machine import describe
from benchmarks.scale.build import EXPERIMENT_ID, Size, build
from benchmarks.service import Service, service, wait_for
from benchmarks.writing import Row, save, spread

OURS, PEER = "ours", "optuna-dashboard"
FIRST_PLOTS = ("loss of every trial", "What matters for loss")
CURVES, PARAMETERS = "Learning curves of loss", "Parameters of every trial"
PEER_FIRST_PLOTS, PEER_CURVES = ("plot-history", "graph-hyperparameter-importances"), "graph-intermediate-values"
FRAMES = """window.frames_ = []; let last = performance.now();
const tick = () => {
  const now = performance.now(); window.frames_.push(now - last); last = now; requestAnimationFrame(tick);
};
requestAnimationFrame(tick);"""
NOTES = (
    (
        "Seconds from the request of the address. `plots`: the history and what matters are drawn; `curves`: these and "
        "the learning curves are (`–`: not within a minute; then nothing else of the page is known, and `processor` "
        "is of what it had asked for). Of both the same plots are waited for, on the page with which both begin. They "
        "do not draw as much: ours has the curves "
        "of 100 trials there and, beside these plots, the parallel coordinates; optuna-dashboard has the curves of all "
        "trials, and a timeline. First: the server has just started and has read nothing; next: a new browser's "
        "context on the same server."
    ),
    (
        "`processor`: of the server and all processes below it, from the request until they are at rest again (less "
        "than 5 % of a core for two seconds), so that what a visit leaves to be computed is in it; nobody is visited "
        "before the server is at rest. A change: from the end of the command that renames the experiment until the "
        "page shows it. A frame: the longest one while an axis is brushed over all lines. Both are measured on a page "
        "of their own, after the visits. Chromium without a GPU, on the same cores as the server. Medians, with the "
        "least and the most of the rounds in brackets; in each round both are visited, taking turns at being first."
    ),
)
Opened = Callable[[], AbstractContextManager[Site]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__, allow_abbrev=False)
    parser.add_argument("--sizes", default="1000x100,10000x100", help="TRIALSxREPORTS, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", type=Path, help="an interpreter with optuna-dashboard")
    parser.add_argument("--peer-sizes", default="1000x100", help="those of --sizes at which it is measured, too")
    options = parser.parse_args()
    machine, rows, rounds = describe(), list[Row](), list[Row]()
    beside = list(sizes_of(options.peer_sizes)) if options.peer else []
    with a_browser() as browser:
        for size in sizes_of(options.sizes):
            found = measured(browser, size, options.rounds, options.peer if size in beside else None)
            for page in dict.fromkeys(one["page"] for one in found):
                rows.append({"page": page, "trials × reports": f"{size[0]:,} × {size[1]}", **row_of(found, page)})
            rounds += [{"trials": size[0], "reports": size[1], **one} for one in found]
    for row in rows:
        row["version"] = version_of(options.peer) if row["page"] == PEER else None
    command = f"python -m benchmarks.dashboard --sizes {options.sizes} --rounds {options.rounds}"
    command += f" --peer PYTHON --peer-sizes {options.peer_sizes}" if options.peer else ""
    save(
        "dashboard",
        command=command,
        machine=machine,
        rows=rows,
        notes=NOTES,
        rounds=rounds,
        of_rounds=options.rounds,
    )
    return 0


def sizes_of(text: str) -> Iterator[tuple[int, int]]:
    for size in text.split(","):
        trials, _, reports = size.partition("x")
        yield int(trials), int(reports)


def measured(browser: Browser, size: tuple[int, int], rounds: int, peer: Path | None) -> list[Row]:
    """Of each round and page the two visits; of ours a change and a frame, too."""
    found: list[Row] = []
    with ExitStack() as stack:
        made = stack.enter_context(service())
        made.home.mkdir(parents=True)
        build(made.database, Size(trials=size[0], reports=size[1]))
        sides: dict[str, Opened] = {OURS: partial(our_site, made)}
        if peer is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tuner-bench-"))
            sides[PEER] = partial(peer_site, peer, a_study(peer, folder, *size))
        for round_ in range(rounds):
            for page in sides if round_ % 2 == 0 else reversed(sides):
                with sides[page]() as site:
                    row: Row = {"page": page, "round": round_}
                    row |= {"first": asdict(visited(browser, site)), "next": asdict(visited(browser, site))}
                    if page == OURS:
                        row |= used(browser, site, made)
                print(row, flush=True)
                found.append(row)
    return found


def row_of(found: list[Row], page: str) -> Row:
    """The rounds of one page."""
    rounds = [one for one in found if one["page"] == page]
    row: Row = {}
    for what in ("plots_s", "curves_s", "processor_s"):
        for visit in ("first", "next"):
            row[f"{what[:-2]}, {visit} s"] = _shown([one[visit][what] for one in rounds], 2)
    for title, name, digits in (("paint s", "paint_s", 2), ("sent MB", "sent_mb", 2), ("heap MB", "heap_mb", 1)):
        row[title] = _shown([one["next"][name] for one in rounds], digits)
    row["change s"] = spread([one["change_s"] for one in rounds if "change_s" in one], 3)
    row["frame ms"] = spread([one["frame_ms"] for one in rounds if "frame_ms" in one], 0)
    return row


def _shown(values: list[float | None], digits: int) -> str:
    there = [value for value in values if value is not None]
    return spread(there, digits) if len(there) == len(values) else "–"


# ── ours ────────────────────────────────────────────────────────────────────────────────────────
@contextmanager
def our_site(made: Service) -> Iterator[Site]:
    program = str(Path(sys.executable).with_name("tuner"))
    subprocess.Popen([program, "serve"], env=made.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for((made.home / "service.json").is_file, "the service to listen")
    try:
        yield Site(
            pid=int(made.address()["pid"]),
            address=f"{made.address()['url']}/experiments/{EXPERIMENT_ID}",
            headers={"Authorization": f"Bearer {(made.home / 'token').read_text().strip()}"},
            first_plots=f"window.drawnPlots({list(FIRST_PLOTS)})",
            curves=f"window.drawnPlots({[*FIRST_PLOTS, CURVES]})",
        )
    finally:
        made.end()


def used(browser: Browser, site: Site, made: Service) -> Row:
    """A person at an open page: an axis is brushed, and the experiment is renamed elsewhere."""
    with a_page(browser, site.headers) as page:
        page.goto(site.address, wait_until="commit")
        page.wait_for_function(f"window.drawnPlots({[*FIRST_PLOTS, CURVES, PARAMETERS]})", polling=20)
        return {"frame_ms": brushed(page), "change_s": changed(page, made)}


def brushed(page: Page) -> float:
    """The longest frame, in ms, while an axis of the parallel coordinates is brushed."""
    box = page.locator("figure", has_text=PARAMETERS).locator(".figure-box").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 42, box["y"] + 60)
    page.evaluate(FRAMES)
    page.mouse.down()
    for step in range(20):
        page.mouse.move(box["x"] + 42, box["y"] + 60 + step * 10)
    page.wait_for_timeout(300)
    longest = float(page.evaluate("Math.max(...window.frames_.slice(2))"))
    page.mouse.up()
    return longest


def changed(page: Page, made: Service) -> float:
    mark = f"changed {time.time_ns()}"
    page.evaluate(
        "(mark) => { window.seenAt = 0; const look = () => { if (document.body.innerText.includes(mark))"
        " window.seenAt = Date.now(); else requestAnimationFrame(look); }; look(); }",
        mark,
    )
    made.tuner("set", EXPERIMENT_ID, "--name", mark)
    at = time.time()
    page.wait_for_function("window.seenAt > 0")
    return max(0.0, float(page.evaluate("window.seenAt")) / 1000 - at)


# ── optuna-dashboard ────────────────────────────────────────────────────────────────────────────
def a_study(python: Path, folder: str, trials: int, reports: int) -> str:
    """The storage that has it."""
    storage = f"sqlite:///{folder}/optuna.db"
    script = Path(__file__).with_name("peers") / "optuna_study.py"
    subprocess.run([str(python), str(script), storage, str(trials), str(reports)], check=True)
    return storage


@contextmanager
def peer_site(python: Path, storage: str) -> Iterator[Site]:
    port = free_port()
    program = str(python.with_name("optuna-dashboard"))
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([program, storage, "--port", str(port)], **quiet)
    try:
        wait_for(partial(listens, port), "optuna-dashboard to listen")
        yield Site(
            pid=server.pid,
            address=f"http://127.0.0.1:{port}/dashboard/studies/1",
            headers={},
            first_plots=f"window.tracedPlots({list(PEER_FIRST_PLOTS)})",
            curves=f"window.tracedPlots({[*PEER_FIRST_PLOTS, PEER_CURVES]})",
        )
    finally:
        server.terminate()
        server.wait()


def version_of(python: Path) -> str:
    code = f"from importlib.metadata import version; print(version({PEER!r}))"
    return subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    """Without reading anything of the studies, which is for the first visit to do."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/dashboard/", timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
