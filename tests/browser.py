"""The dashboard in a real browser: Debian's, driven by Playwright, against a real service."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.acceptance.harness import Home
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]
AXE = ROOT / "dashboard/node_modules/axe-core/axe.min.js"
WEB = ROOT / "tuner_service/web/index.html"
PROGRAMS = ("chromium-headless-shell", "chromium")
SEEN_MS = 15_000  # within which the page shows what was waited for, on a busy machine


def browser_program() -> str:
    """Skips the test, with the command that helps, where there is no browser or no built page."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no browser: apt-get install chromium-headless-shell")
    if not WEB.is_file():
        pytest.skip("the page is not built: make setup")
    return program


@contextmanager
def a_browser() -> Iterator[Browser]:
    program = browser_program()
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=sandbox)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(kw_only=True)
class Window:
    """A signed-in browser window on the service of ``home``; what the page complains of is kept in ``faults``."""

    home: Home
    context: BrowserContext
    faults: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return str(json.loads((self.home.home / "service.json").read_text())["url"])

    def tab(self, path: str = "/") -> Page:
        page = self.context.new_page()
        page.set_default_timeout(SEEN_MS)
        page.on("pageerror", lambda error: self.faults.append(f"{path}: {error}"))
        page.on("dialog", lambda dialog: self.faults.append(f"{path} opened a dialog: {dialog.message}"))
        page.on("console", lambda said: self._hear(path, said.type, said.text))
        page.goto(self.url + path)
        return page

    def _hear(self, path: str, kind: str, text: str) -> None:
        # That a request was refused or not answered is told so by the browser; tests provoke it.
        if kind == "error" and "Failed to load resource" not in text:
            self.faults.append(f"{path}: {text}")

    def sign_in(self) -> None:
        """By the code that `tuner open` makes."""
        with self.home.service() as service:
            path = service.call("POST", "/api/v1/session-codes").json()["path"]
        page = self.tab(path)
        page.get_by_role("heading", name="Experiments").wait_for()
        page.close()

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Of the database, as it is now."""
        with closing(sqlite3.connect(f"file:{self.home.home / 'tuner.db'}?mode=ro", uri=True)) as database:
            return database.execute(statement, values).fetchall()

    def until(self, statement: str, *values: Any, gives: list[tuple[Any, ...]]) -> None:
        """Waits until the database answers so."""
        wait_until(lambda: self.rows(statement, *values) == gives)


@contextmanager
def a_window(browser: Browser, home: Home, **options: Any) -> Iterator[Window]:
    # What turns and pulses would be drawn sixty times a second, by a processor that the tests need.
    options = {"reduced_motion": "reduce"} | options
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    window = Window(home=home, context=context)
    try:
        window.sign_in()
        yield window
    finally:
        context.close()
    assert window.faults == []


def violations(page: Page) -> list[str]:
    """What axe finds that is serious or worse."""
    page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {node['html'][:160]}"
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"][:3]
    ]
