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


def test_a_service_that_a_command_starts_has_the_settings_of_the_profile_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    user_file = tmp_path / "config.toml"
    user_file.write_text('[profiles.big]\ncheckpoint_store = "/big"\nworker_memory = "1GiB"\nallowed_hosts = "lan"\n')
    flags = {"home": str(tmp_path / "home"), "profile": "big"}
    settings = resolve_settings(flags, environment={}, folder=tmp_path, user_file=user_file)

    start_service(settings)

    ((*_, flag, name),) = started
    assert (flag, name) == ("--profile", "big")
    again = resolve_settings({**flags, "profile": name}, environment={}, folder=tmp_path, user_file=user_file)
    assert (again.checkpoint_store, again.worker_memory, again.allowed_hosts) == ("/big", 1 << 30, ("lan",))
