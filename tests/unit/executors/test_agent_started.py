"""How the agent of the service's own machine is started."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tuner_service.executors.local import LocalExecutor


def test_an_agent_that_follows_one_whose_folder_was_removed_has_the_token_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it none could connect until the service is started anew."""
    started = list[Any]()
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **_: started.append(arguments))
    executor = LocalExecutor(home=tmp_path, service_file=tmp_path / "service.json", token="the agent's token")
    file = tmp_path / "agent" / "token"

    executor._spawn()
    assert (file.read_text(), file.stat().st_mode & 0o777, len(started)) == ("the agent's token\n", 0o600, 1)

    file.write_text("another's\n")
    executor._spawn()
    assert (file.read_text(), len(started)) == ("another's\n", 2), "of who shares the home"
    executor.close()
