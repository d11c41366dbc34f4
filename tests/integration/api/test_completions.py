"""Completions in the shells themselves: bash is asked at a terminal; zsh and fish where they are installed."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_repository import SLOW_MACHINE
from tests.command_line import CommandLine, command_line

COMPLETED_S = 0.3
SHELL_S = 30.0
TAB = "\t"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tuner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with command_line(tmp_path_factory.mktemp("completions")) as line:
        line.begin_service()
        (line.folder / "bin").mkdir()
        command = line.folder / "bin" / "tuner"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m tuner_service.cli.main "$@"\n')
        command.chmod(0o755)
        line.run("run", line.experiment_file(name="unmistakable"))
        line.run("run", line.experiment_file(name="$(touch pwned)"))
        yield line


def need(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    return found


def variables(tuner: CommandLine) -> dict[str, str]:
    path = f"{tuner.folder / 'bin'}:{os.environ['PATH']}"
    return tuner.environment() | {"PATH": path, "TERM": "dumb", "HOME": str(tuner.folder), "PS1": "$ "}


class Terminal:
    """A shell at a terminal; what was written there so far."""

    def __init__(self, tuner: CommandLine, *command: str) -> None:
        self._side, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tuner.folder, env=variables(tuner),
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.written = ""

    def type(self, text: str) -> None:
        os.write(self._side, text.encode())

    def until(self, text: str) -> str:
        """What was written up to ``text``, since the last call."""
        deadline = time.monotonic() + SHELL_S
        while text not in self.written:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} is not in {self.written!r}"
            if select.select([self._side], [], [], left)[0]:
                self.written += os.read(self._side, 4096).decode("utf-8", "replace")
        before, _, self.written = self.written.partition(text)
        return before

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._side)


@pytest.fixture(params=["bash", "zsh"])
def terminal(request: pytest.FixtureRequest, tuner: CommandLine) -> Iterator[Terminal]:
    shell = need(request.param)
    options = {"bash": ("--norc", "--noprofile", "-i"), "zsh": ("-f", "-i")}[request.param]
    begin = {"bash": "", "zsh": "autoload -Uz compinit; compinit -u -D; "}[request.param]
    opened = Terminal(tuner, shell, *options)
    opened.type(f"{begin}source <(tuner completion {request.param}); echo rea''dy\n")
    opened.until("ready")
    yield opened
    opened.close()


def test_a_tab_writes_the_rest_of_a_word(terminal: Terminal) -> None:
    terminal.type(f"echo tuner; tuner show unmis{TAB}")
    terminal.until("tuner show unmistakable")
    terminal.type("\x15")  # Ctrl-U clears the line

    terminal.type(f"tuner quicks{TAB}")
    terminal.until("tuner quickstart")
    terminal.type("\x15")

    terminal.type(f"tuner show @la{TAB}")
    terminal.until("@last")
    terminal.type("\x15")

    terminal.type(f"tuner init --template=lightn{TAB}")
    terminal.until("--template=lightning")
    terminal.type("\x15")

    terminal.type(f"tuner start sear{TAB}")
    terminal.until("search.json")


def test_a_chosen_completion_is_what_the_command_takes(terminal: Terminal, tuner: CommandLine) -> None:
    terminal.type(f"tuner show unmis{TAB} -o json | grep -o comple''ted | head -1\n")
    terminal.until("completed")

    assert not (tuner.folder / "pwned").exists()


def test_bash_offers_ids_names_and_options(tuner: CommandLine) -> None:
    experiment = str(tuner.read("show", "unmistakable")["id"])

    def offers(line: str) -> set[str]:
        words = [*line.split(), ""] if line.endswith(" ") else line.split()
        array = " ".join(f"'{word}'" for word in words)
        script = (
            f"source <(tuner completion bash)\nCOMP_LINE='{line}' COMP_POINT={len(line)} COMP_WORDS=({array})\n"
            f"COMP_CWORD={len(words) - 1}\n_tuner_complete tuner\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", script], env=variables(tuner), cwd=tuner.folder, capture_output=True, text=True,
            check=True, timeout=SHELL_S,
        )  # fmt: skip
        return set(done.stdout.split("\n")) - {""}

    shown = offers("tuner show ")
    assert {"@last", experiment, "unmistakable"} <= shown
    assert not any("pwned" in one for one in shown)
    assert f"{experiment}/best" in offers(f"tuner logs {experiment}/")
    assert offers("tuner ps --dev") == {"--devices"}
    assert offers("tuner nonsense ") == set()


def test_fish_offers_ids_names_and_options(tuner: CommandLine) -> None:
    fish = need("fish")

    def offers(line: str) -> dict[str, str]:
        script = f"tuner completion fish | source; complete -C '{line}'"
        done = subprocess.run(
            [fish, "--no-config", "-c", script], env=variables(tuner), cwd=tuner.folder, capture_output=True, text=True,
            check=True, timeout=SHELL_S,
        )  # fmt: skip
        assert done.stderr == ""
        return dict((*found.split("\t"), "")[:2] for found in done.stdout.splitlines())  # type: ignore[misc]  # pairs

    shown = offers("tuner show ")
    assert {"@last", "unmistakable"} <= shown.keys()
    assert shown["@last"].endswith(", completed")
    assert offers("tuner show unmis").keys() == {"unmistakable"}
    assert offers("tuner init --template l").keys() == {"lightning"}
    assert "search.json" in offers("tuner start sea")


def test_ids_are_there_within_a_third_of_a_second(tuner: CommandLine) -> None:
    command = [sys.executable, "-P", "-m", "tuner_service.cli.main", "completion", "bash", "--words"]
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        done = subprocess.run(
            command, input="tuner show ", env=variables(tuner), capture_output=True, text=True, check=True
        )
        seconds.append(time.perf_counter() - begun)
        assert "unmistakable" in done.stdout
    assert min(seconds) <= COMPLETED_S * SLOW_MACHINE


def test_the_script_of_zsh_works_as_a_file_of_its_path_as_well(tuner: CommandLine, tmp_path: Path) -> None:
    zsh = need("zsh")
    (tmp_path / "_tuner").write_text(tuner.run("completion", "zsh"))
    opened = Terminal(tuner, zsh, "-f", "-i")
    try:
        opened.type(f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy\n")
        opened.until("ready")
        for _ in range(2):  # the first one loads the function
            opened.type(f"tuner show unmis{TAB}")
            opened.until("tuner show unmistakable")
            opened.type("\x15")
    finally:
        opened.close()


def test_a_service_that_is_gone_offers_nothing_and_says_nothing(tmp_path: Path) -> None:
    with command_line(tmp_path) as line:
        line.home.mkdir()
        (line.home / "service.json").write_text(json.dumps({"pid": os.getpid(), "url": "http://127.0.0.1:9"}))
        command = [sys.executable, "-P", "-m", "tuner_service.cli.main", "completion", "bash", "--words"]
        done = subprocess.run(
            command, input="tuner show ", env=line.environment(), capture_output=True, text=True, check=True
        )
        (line.home / "service.json").unlink()
    assert (done.stdout, done.stderr) == (":word\t\n", "")
