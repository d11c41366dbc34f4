"""`tuner rm` asks a person, and no script."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tuner_service.cli.verbs import rm


class Client:
    def __init__(self) -> None:
        self.deleted: list[str] = []

    def experiment(self, experiment_id: str) -> dict[str, Any]:
        return {"id": experiment_id, "name": "digits", "status": "completed", "counts": {"succeeded": 19, "failed": 1}}

    def delete(self, experiment_id: str) -> None:
        self.deleted.append(experiment_id)


class Input(io.StringIO):
    def __init__(self, text: str, *, is_terminal: bool) -> None:
        super().__init__(text)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    found = Client()

    @contextmanager
    def connected(_: object) -> Iterator[Client]:
        yield found

    monkeypatch.setattr(rm, "connected", connected)
    monkeypatch.setattr(rm, "settings_of", lambda _: None)
    monkeypatch.setattr(rm, "resolve_experiment", lambda _, reference: reference)
    return found


def remove(monkeypatch: pytest.MonkeyPatch, typed: str, *, is_terminal: bool = True, yes: bool = False) -> int:
    monkeypatch.setattr(sys, "stdin", Input(typed, is_terminal=is_terminal))
    return rm.run(argparse.Namespace(reference="8f3k2", yes=yes))


def test_on_a_terminal_it_says_what_is_lost_and_asks(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert remove(monkeypatch, "y\n") == 0
    assert client.deleted == ["8f3k2"]
    assert "has 20 trials" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["", "\n", "n\n", "what\n"])
def test_without_a_yes_nothing_is_deleted(client: Client, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    assert remove(monkeypatch, typed) == 1
    assert client.deleted == []


def test_a_script_and_who_says_yes_are_not_asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(monkeypatch, "", is_terminal=False)
    remove(monkeypatch, "", yes=True)

    assert client.deleted == ["8f3k2", "8f3k2"]
