"""A study that was exported, in Optuna's own dashboard: its process serves it, and its API answers the trials."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine, command_line
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
OPENED_S = 60.0


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        line.begin_service()
        yield line


def answer(address: str, path: str) -> Any:
    with urllib.request.urlopen(address + path, timeout=180) as response:
        return json.loads(response.read())


@contextmanager
def opened(file: Path) -> Iterator[str]:
    """The address of Optuna's dashboard over ``file``."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    main = "from optuna_dashboard._cli import main; main()"  # the command is this; its script may not be on the path
    process = subprocess.Popen(
        [sys.executable, "-c", main, file.name, "--port", str(port), "--host", "127.0.0.1", "--server", "wsgiref"],
        cwd=file.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, process.communicate()[0].decode()
        try:
            answer(address, "/api/meta")
        except OSError:
            return False
        return True

    try:
        wait_until(answers, timeout_s=OPENED_S)
        yield address
    finally:
        process.kill()
        process.communicate()


def test_the_dashboard_of_optuna_shows_the_study(tuner: CommandLine) -> None:
    if find_spec("optuna_dashboard") is None:
        pytest.skip("optuna-dashboard is not installed: pip install optuna-dashboard")
    tuner.run("run", tuner.experiment_file())
    tuner.run("export", "digits", "study.log")
    trials = tuner.read("trials", "digits")

    with opened(tuner.folder / "study.log") as address:
        (study,) = answer(address, "/api/studies")["study_summaries"]
        assert (study["study_name"], study["directions"]) == ("digits", ["maximize"])
        shown = answer(address, f"/api/studies/{study['study_id']}?after=0")
        importance = answer(address, f"/api/studies/{study['study_id']}/param_importances")

    found = [(t["state"], t["values"], t["params"][0]["param_external_value"]) for t in shown["trials"]]
    assert found == [("Complete", [t["value"]], str(t["parameters"]["lr"])) for t in trials]
    assert [len(t["intermediate_values"]) for t in shown["trials"]] == [2, 2, 2]
    assert shown["best_trials"][0]["values"] == [tuner.read("show", "digits")["best"]["value"]]
    assert [one["name"] for one in importance["param_importances"][0]] == ["lr"]
