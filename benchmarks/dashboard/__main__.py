"""The dashboard in a browser: until it paints, until its plots are usable, what is sent, what the service computes."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.machine import describe
from benchmarks.scale.build import EXPERIMENT_ID, Size, build
from benchmarks.service import Service, cpu_s, service, wait_for
from benchmarks.writing import Row, save

PROGRAMS = ("chromium-headless-shell", "chromium")
PATIENCE_MS = 120_000
OUR_PLOTS = "document.querySelectorAll('figure canvas[role=img]').length >= {count} && window.drawnPlots() >= {count}"
# A canvas that has been drawn on has lines across its height.
DRAWN = """window.drawnPlots = () => [...document.querySelectorAll('figure canvas[role=img]')].filter((canvas) => {
  if (!canvas.width || canvas.dataset.drawing) return false;
  const data = canvas.getContext('2d').getImageData(Math.floor(canvas.width * 0.6), 0, 2, canvas.height).data;
  for (let at = 3; at < data.length; at += 4) if (data[at]) return true;
  return false;
}).length;"""
PEER_PLOTS = "document.querySelectorAll('.js-plotly-plot .main-svg').length >= 2"
FRAMES = """window.frames_ = []; let last = performance.now();
const tick = () => {
  const now = performance.now(); window.frames_.push(now - last); last = now; requestAnimationFrame(tick);
};
requestAnimationFrame(tick);"""
NOTES = (
    (
        "Seconds from the request of the address. Usable: the history, the learning curves, the parallel "
        "coordinates and what matters are drawn (ours); the first plots are drawn (optuna-dashboard). First: the "
        "service has just started and has read nothing; then: a new browser on the same service. Processor time "
        "is that of the service and the process beside it, of one visit. A change: from the end of the command "
        "that renames the experiment until the page shows it. A frame: the longest one while an axis is brushed "
        "over all lines. Chromium without a GPU, on the same cores as the service; medians of the rounds."
    ),
)


@dataclass(frozen=True, kw_only=True)
class Visit:
    paint_s: float
    usable_s: float
    sent_mb: float
    heap_mb: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__, allow_abbrev=False)
    parser.add_argument("--sizes", default="1000x100,10000x100", help="TRIALSxREPORTS, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", type=Path, help="an interpreter with optuna-dashboard")
    parser.add_argument("--peer-sizes", default="1000x100")
    options = parser.parse_args()
    machine, rows = describe(), []
    with a_browser() as browser:
        for trials, reports in sizes_of(options.sizes):
            rows += ours(browser, trials, reports, options.rounds)
        if options.peer:
            for trials, reports in sizes_of(options.peer_sizes):
                rows += peers(browser, options.peer, trials, reports, options.rounds)
    command = f"python -m benchmarks.dashboard --sizes {options.sizes} --rounds {options.rounds}"
    command += f" --peer PYTHON --peer-sizes {options.peer_sizes}" if options.peer else ""
    save("dashboard", command=command, machine=machine, rows=rows, notes=NOTES)
    return 0


def sizes_of(text: str) -> Iterator[tuple[int, int]]:
    for size in text.split(","):
        trials, _, reports = size.partition("x")
        yield int(trials), int(reports)


@contextlib.contextmanager
def a_browser() -> Iterator[Browser]:
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise SystemExit("no browser: apt-get install chromium-headless-shell")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*sandbox, "--enable-precise-memory-info"])
        yield browser
        browser.close()


@contextlib.contextmanager
def a_page(browser: Browser, headers: dict[str, str]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, extra_http_headers=headers, bypass_csp=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.add_init_script(DRAWN)
    yield page
    context.close()


def visit(page: Page, address: str, usable: str) -> Visit:
    sent = [0.0]
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sent.__setitem__(0, sent[0] + event["encodedDataLength"]))
    begun = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(usable, polling=20)
    usable_s = time.perf_counter() - begun
    page.wait_for_timeout(500)
    paint = page.evaluate("(performance.getEntriesByName('first-contentful-paint')[0] || {startTime: 0}).startTime")
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    return Visit(paint_s=paint / 1000, usable_s=usable_s, sent_mb=sent[0] / 1e6, heap_mb=heap / 1e6)


# ── ours ────────────────────────────────────────────────────────────────────────────────────────
def ours(browser: Browser, trials: int, reports: int, rounds: int) -> list[Row]:
    with service() as made:
        made.home.mkdir(parents=True)
        build(made.database, Size(trials=trials, reports=reports))
        firsts, others, processor, changes, frames = [], [], [], [], []
        for _ in range(rounds):
            begin(made)
            headers = {"Authorization": f"Bearer {(made.home / 'token').read_text().strip()}"}
            address = f"{made.address()['url']}/experiments/{EXPERIMENT_ID}"
            usable = OUR_PLOTS.format(count=4)
            with a_page(browser, headers) as page:
                firsts.append(visit(page, address, usable))
            before = cpu_s(family(made))
            with a_page(browser, headers) as page:
                others.append(visit(page, address, usable))
                processor.append(cpu_s(family(made)) - before)
                frames.append(brushed(page))
                changes.append(changed(page, made))
            made.tuner("serve", "--stop")
    size = f"{trials:,} × {reports}"
    row = {"page": "ours", "trials × reports": size, **medians(firsts, others, processor)}
    return [row | {"change_s": round(median(changes), 3), "frame_ms": round(median(frames))}]


def begin(made: Service) -> None:
    program = str(Path(sys.executable).with_name("tuner"))
    subprocess.Popen([program, "serve"], env=made.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for((made.home / "service.json").is_file, "the service to listen")


def family(made: Service) -> list[int]:
    """The service and what it has started."""
    root = int(made.address()["pid"])
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def brushed(page: Page) -> float:
    """The longest frame, in ms, while an axis of the parallel coordinates is brushed."""
    box = page.locator("figure", has_text="Parameters of every trial").locator(".figure-box").bounding_box()
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


def medians(firsts: list[Visit], others: list[Visit], processor: list[float]) -> Row:
    return {
        "paint_s": round(median(one.paint_s for one in others), 2),
        "usable_first_s": round(median(one.usable_s for one in firsts), 2),
        "usable_then_s": round(median(one.usable_s for one in others), 2),
        "sent_mb": round(median(one.sent_mb for one in others), 2),
        "heap_mb": round(median(one.heap_mb for one in others), 1),
        "service_cpu_s": round(median(processor), 2),
    }


# ── optuna-dashboard ────────────────────────────────────────────────────────────────────────────
def peers(browser: Browser, python: Path, trials: int, reports: int, rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="tuner-bench-") as folder:
        storage = f"sqlite:///{folder}/optuna.db"
        script = Path(__file__).with_name("peers") / "optuna_study.py"
        subprocess.run([str(python), str(script), storage, str(trials), str(reports)], check=True)
        firsts, others, processor = [], [], []
        for _ in range(rounds):
            port = free_port()
            program = str(python.with_name("optuna-dashboard"))
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            server = subprocess.Popen([program, storage, "--port", str(port)], **quiet)
            address = f"http://127.0.0.1:{port}/dashboard/studies/1"
            wait_for(partial(answers, port), "optuna-dashboard to listen")
            with a_page(browser, {}) as page:
                firsts.append(visit(page, address, PEER_PLOTS))
            before = cpu_s([server.pid])
            with a_page(browser, {}) as page:
                others.append(visit(page, address, PEER_PLOTS))
            processor.append(cpu_s([server.pid]) - before)
            server.terminate()
            server.wait()
    return [
        {
            "page": "optuna-dashboard",
            "trials × reports": f"{trials:,} × {reports}",
            **medians(firsts, others, processor),
        }
    ]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/api/studies", timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
