"""`serve --stop` ends the service that wrote service.json, and no other process that may have its number by now."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.client import UnreachableError
from tuner_service.config import Settings
from tuner_service.local_service import process_mark, stop_service

# Is told to end while an object is tidied away, where Python drops what is raised.
UNHEARD = """
import os, signal, sys
from pathlib import Path
from tuner_service import wiring
from tuner_service.config import Settings
from tuner_service.executor_options import ExecutorOptions
from tuner_service.service import ending

ending.LIMIT_S = 600.0

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

def make_tokens(*given, make=wiring.make_tokens):
    Last()
    return make(*given)

wiring.make_tokens = make_tokens
home = Path(sys.argv[1])
sys.exit(wiring.serve(Settings(home=home, db=f"sqlite:///{home}/tuner.db", executor=ExecutorOptions(has_local=False))))
"""
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); signal.pause()"


def settings_of(home: Path, **described: Any) -> Settings:
    (home / "token").write_text("t")
    (home / "service.json").write_text(json.dumps({"url": "http://127.0.0.1:9", **described}))
    return Settings(home=home, db=f"sqlite:///{home}/tuner.db")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Does not hear SIGTERM once it has started."""
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


@pytest.mark.parametrize("mark", [None, "", "of another boot", "PID"])
def test_a_process_that_has_the_number_of_a_service_that_died_is_not_signalled(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, mark: str | None
) -> None:
    signalled: list[object] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *arguments: signalled.append(arguments))
    text = process_mark(process.pid).rpartition(" ")[0] + " 1" if mark == "PID" else mark
    settings = settings_of(tmp_path, pid=process.pid, **({} if mark is None else {"process": text}))

    assert stop_service(settings, timeout_s=0.0) is False

    assert signalled == []


@pytest.mark.parametrize("pid", [0, -1, True, "1", 1.0])
def test_a_number_that_is_no_process_is_never_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: object
) -> None:
    monkeypatch.setattr(signal, "pidfd_send_signal", None)

    assert stop_service(settings_of(tmp_path, pid=pid)) is False


def test_a_service_that_does_not_end_is_not_said_to_have_ended(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    settings = settings_of(tmp_path, pid=process.pid, process=process_mark(process.pid))

    with pytest.raises(UnreachableError, match=f"process {process.pid}.* has not within 0 s"):
        stop_service(settings, timeout_s=0.0)


def test_a_service_that_ends_is_waited_for_also_where_nobody_reaps_it(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        settings = settings_of(tmp_path, pid=process.pid, process=process_mark(process.pid))

        assert stop_service(settings) is True
        assert stop_service(settings) is False

        assert process.wait() != 0


def test_a_service_whose_home_was_removed_ends_and_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-m", "tuner_service.cli.main", "serve", "--home", str(home), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert "listens on" in service.stdout.readline()

        removed = tmp_path / "removed"  # first out of the way of what writes there
        home.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)

        _, said = service.communicate(timeout=180)
    assert "was moved, removed or replaced while the service ran" in said
    assert service.returncode == ExitCode.FAILURE


def test_a_service_that_is_told_to_end_while_python_listens_to_nobody_ends_all_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", UNHEARD, str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)

    assert "Exception ignored in" in done.stderr, "the signal was heard after all"
    assert done.returncode == ExitCode.OK, done.stderr
    assert "end_took_too_long" not in done.stderr
    assert not (tmp_path / "home" / "service.json").exists()
