"""What a service that collects has kept is named."""

from __future__ import annotations

import argparse
from typing import Any

import httpx
import pytest

from tuner_service.cli.verbs import gc


class Service:
    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    def call(self, *_: Any, **__: Any) -> httpx.Response:
        return httpx.Response(200, json=self._answer)


def said(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    service: Any = Service(answer)
    assert gc._by_service(service, argparse.Namespace(dry_run=False, output="table"), 1.0) == 0
    return capsys.readouterr().err


def test_it_names_what_somebody_else_was_first_with(capsys: pytest.CaptureFixture[str]) -> None:
    kept = [{"id": "8f3k2", "why": "experiment 8f3k2 is running"}]

    assert "careful: 8f3k2 is not removed: experiment 8f3k2 is running" in said({"items": [], "kept": kept}, capsys)


def test_an_earlier_service_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert "careful" not in said({"items": []}, capsys)
