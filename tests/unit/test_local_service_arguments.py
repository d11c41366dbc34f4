"""What other users see of a service that a command starts: its command line."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tuner_service.config import resolve_settings
from tuner_service.local_service import start_service


def test_a_service_that_a_command_starts_has_no_address_of_a_database_among_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []

    def popen(command: list[str], **options: Any) -> None:
        started.append((command, options["env"]))

    monkeypatch.setattr(subprocess, "Popen", popen)
    url = "postgresql://me:hunter2@host/db"
    flags = {"db": url, "home": str(tmp_path / "home")}

    start_service(resolve_settings(flags, environment={}, folder=tmp_path, user_file=tmp_path / "none"))

    ((command, environment),) = started
    assert "hunter2" not in " ".join(command)
    assert environment["TUNER_DB"] == url
    again = resolve_settings({}, environment=environment, folder=tmp_path, user_file=tmp_path / "none")
    assert again.db == url
