"""A service in trouble is told of where somebody looks at what it does, without being asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.cli.test_watching_over_a_restart import Service, a_view, followed
from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.cli.verbs import ps

LOOKED_AT_S = 100.0
FULL = "the database cannot be used now: the disk is full"


class InTrouble(Service):
    """``parts``: what is said of them, one answer after the other; the search stands still meanwhile, as time goes."""

    def __init__(self, *parts: dict[str, str]) -> None:
        super().__init__("running")
        self.parts = list(parts)

    def experiment(self, _: str, *, wait_s: float | None = None) -> dict[str, Any]:
        self.now += wait_s or 0.0
        return a_view("running" if self.parts and self.now < LOOKED_AT_S else "completed")

    def experiments(self, _: object) -> list[Any]:
        return []

    def readiness(self) -> dict[str, Any]:
        return {"parts": self.parts.pop(0), "warnings": {}}


def test_ps_says_which_part_is_in_trouble(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def connected(_: object) -> Iterator[InTrouble]:
        yield InTrouble({"dispatcher": "ok", "database": FULL})

    monkeypatch.setattr(ps, "connected", connected)
    monkeypatch.setattr(ps, "settings_of", lambda _: None)
    nothing = dict.fromkeys(("local", "services", "devices", "nodes", "watch", "project", "tag", "status", "name"))

    ps.run(argparse.Namespace(output="json", **nothing))

    assert capsys.readouterr().err == f"careful: service database: {FULL}\n"


def test_who_watches_a_search_that_stands_still_is_told_why_once_each_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full, well = {"dispatcher": "ok", "database": FULL}, {"dispatcher": "ok", "database": "ok"}

    assert followed(InTrouble(full, full, well, full), monkeypatch) == ExitCode.OK

    assert capsys.readouterr().err.count(f"careful: service database: {FULL}\n") == 2
