"""`tuner rm` at a terminal asks whoever sits there; Ctrl-C and the end of the input are no yes."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import COMMAND_TIMEOUT_S, CommandLine, command_line

pytestmark = pytest.mark.slow
QUESTION = "[y/N] "


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


def typed(tuner: CommandLine, keys: str, *arguments: str) -> tuple[int, str]:
    """The exit code of a command at a terminal and what stood there; ``keys`` are typed once it asks."""
    side, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tuner_service.cli.main", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tuner.folder,
        env=tuner.environment(),
        start_new_session=True,
        preexec_fn=_own_terminal,  # noqa: PLW1509  # one call of the system
    )
    os.close(theirs)
    written, deadline = "", time.monotonic() + COMMAND_TIMEOUT_S
    try:
        while time.monotonic() < deadline and select.select([side], [], [], deadline - time.monotonic())[0]:
            try:
                data = os.read(side, 4096)
            except OSError:  # the last one at its other end has gone
                break
            written += data.decode()
            if QUESTION in written and keys:
                os.write(side, keys.encode())
                keys = ""
        return process.wait(COMMAND_TIMEOUT_S), written
    finally:
        process.kill()
        process.wait()
        os.close(side)


def _own_terminal() -> None:
    """So that Ctrl-C that is typed there is heard."""
    import fcntl
    import signal
    import termios

    signal.signal(signal.SIGINT, signal.default_int_handler)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_an_experiment_is_deleted_when_somebody_says_yes(tuner: CommandLine) -> None:
    tuner.run("run", tuner.experiment_file())

    for keys, code in (("\n", 1), ("no\n", 1), ("\x04", 1), ("\x03", 130)):
        ended, written = typed(tuner, keys, "rm", "digits")
        assert ended == code, written
        assert "(digits, completed) has 3 trials" in written
        assert "delete it with all their metrics, checkpoints and logs?" in written
    assert tuner.read("show", "digits")["status"] == "completed"

    ended, written = typed(tuner, "y\n", "rm", "digits")
    assert ended == 0, written
    assert "is deleted" in written
    tuner.run("show", "digits", code=3)

    tuner.run("run", tuner.experiment_file())
    tuner.run("rm", "digits")  # no terminal: nobody is asked
    assert tuner.read("ps") == []


def test_the_version_is_that_of_the_package(tuner: CommandLine) -> None:
    from importlib.metadata import version

    assert tuner.run("--version") == tuner.run("version") == f"{version('tuner-service')}\n"
    assert not tuner.home.exists()
