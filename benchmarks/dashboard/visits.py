"""A browser that visits a page: until it paints, until plots are drawn, what is sent, what its server computes."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass

from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import TimeoutError as NotInTime

from benchmarks.loading.costs import costs_of, tree

PROGRAMS = ("chromium-headless-shell", "chromium")
PATIENCE_MS = 60_000
IDLE_S, IDLE_SHARE = 2.0, 0.05  # at rest: so long less than so much of a core
LOOKS = 10  # in that time
PATIENCE_S = 120.0
# A canvas that has been drawn on has lines across its height.
DRAWN = """const canvases = () => [...document.querySelectorAll('figure canvas[role=img]')];
window.drawnPlots = (names) => names.every((name) => canvases().some((canvas) => {
  if (!canvas.ariaLabel.startsWith(name) || !canvas.width || canvas.dataset.drawing) return false;
  const data = canvas.getContext('2d').getImageData(Math.floor(canvas.width * 0.6), 0, 2, canvas.height).data;
  for (let at = 3; at < data.length; at += 4) if (data[at]) return true;
  return false;
}));
window.tracedPlots = (names) => names.every((name) => document.querySelector(`[id="${name}"] .trace`));"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A page of a server. Each of the plots is a condition of the browser's."""

    pid: int
    address: str
    headers: dict[str, str]
    first_plots: str  # the history, and what matters
    curves: str  # likewise with the learning curves


@dataclass(frozen=True, kw_only=True)
class Visit:
    """None is what was not there in time. ``processor_s``: of the server and all below it, until it is at rest."""

    paint_s: float | None
    plots_s: float | None
    curves_s: float | None
    sent_mb: float | None
    heap_mb: float | None
    processor_s: float


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


def visited(browser: Browser, site: Site) -> Visit:
    """In a new browser's context. Begins and returns when the server is at rest."""
    wait_for_rest(site.pid)
    before = processor_s(site.pid)
    with a_page(browser, site.headers) as page:
        found = _looked_at(page, site)
    wait_for_rest(site.pid)
    return Visit(**found, processor_s=processor_s(site.pid) - before)


def _looked_at(page: Page, site: Site) -> dict[str, float | None]:
    sent = [0.0]
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sent.__setitem__(0, sent[0] + event["encodedDataLength"]))
    found: dict[str, float | None] = dict.fromkeys(("paint_s", "plots_s", "curves_s", "heap_mb"))
    begun = time.perf_counter()
    page.goto(site.address, wait_until="commit")
    try:
        for name, condition in (("plots_s", site.first_plots), ("curves_s", site.curves)):
            page.wait_for_function(condition, polling=20)
            found[name] = time.perf_counter() - begun
    except NotInTime:  # a page that still draws answers nothing else either
        return {**found, "sent_mb": sent[0] / 1e6}
    page.wait_for_timeout(500)
    paint = page.evaluate("(performance.getEntriesByName('first-contentful-paint')[0] || {startTime: 0}).startTime")
    found["paint_s"] = paint / 1000
    found["heap_mb"] = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
    return {**found, "sent_mb": sent[0] / 1e6}


# ── the server ──────────────────────────────────────────────────────────────────────────────────
def processor_s(pid: int) -> float:
    """Of the process, all below it, and those of them that have ended."""
    return costs_of(tree(pid)).cpu_s


def wait_for_rest(pid: int) -> None:
    """Until the process and all below it have computed next to nothing for ``IDLE_S``. TimeoutError if they go on."""
    deadline = time.monotonic() + PATIENCE_S
    looks = [processor_s(pid)]
    while not is_at_rest(looks):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server is not at rest after {PATIENCE_S:g} s")
        time.sleep(IDLE_S / LOOKS)
        looks.append(processor_s(pid))


def is_at_rest(looks: list[float]) -> bool:
    """Processor seconds at each look so far, the looks of ``IDLE_S`` being the last of them."""
    return len(looks) > LOOKS and looks[-1] - looks[-1 - LOOKS] < IDLE_SHARE * IDLE_S
