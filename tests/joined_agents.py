"""Agents of tests that are joined to a service, each with a home of its own beside the service's."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import websockets

from tests.acceptance.harness import ROOT, Home
from tests.waiting import PATIENCE_S, wait_until


class JoinedAgent:
    """A real one, in a process of its own, by the command that a person types.

    ``is_bare``: on a machine that has the folder ``trials`` and the package ``websockets``, and nothing of the service.
    """

    def __init__(
        self, of: Home, name: str, *options: str, home: str = "", url: str = "", is_bare: bool = False
    ) -> None:
        self._of, self._name, self._options, self._url, self._is_bare = of, name, options, url, is_bare
        self.home = of.folder / (home or name)
        self._output = of.folder / f"{name}-{home or name}.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        url = self._url or json.loads((self._of.home / "service.json").read_text())["url"]
        command = [sys.executable, "-m", "tuner_service.cli.main", "agent", "join", url, "--id", self._name]
        path = ROOT
        if self._is_bare:
            path = self._bare_machine()
            command = [sys.executable, "-S", "-m", "trials.agent", "--join", url, "--agent-id", self._name]
        command += ["--home", str(self.home), "--token-file", str(self._token()), *self._options]
        variables = {n: v for n, v in os.environ.items() if not n.startswith("TUNER_")} | {"PYTHONPATH": str(path)}
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=self._of.folder, env=variables, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def _token(self) -> Path:
        """Of this agent's name; made once."""
        file = self._of.folder / f"{self._name}.token"
        if not file.exists():
            self._of.tuner("token", "add", self._name, "--role", "agent", "--file", str(file))
        return file

    def _bare_machine(self) -> Path:
        """The only folder that its agent imports from, beside Python's own library."""
        folder = self._of.folder / f"{self._name}-packages"
        if not folder.exists():
            for package in (ROOT / "trials", Path(websockets.__file__).parent):
                shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        return folder

    def log(self) -> str:
        return self._output.read_text()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def ended(self, *, timeout_s: float) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    def end(self) -> None:
        """With its trials and the parents of these."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
        end_processes_of(self.home)


def end_processes_of(home: Path) -> None:
    """Those whose command line or variables name the folder, as fork servers and trials have it."""
    needle = os.fsencode(home)
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            if needle in (folder / "cmdline").read_bytes() or needle in (folder / "environ").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended, or is another user's


@contextmanager
def joined(
    of: Home, name: str, *options: str, home: str = "", url: str = "", is_bare: bool = False
) -> Iterator[JoinedAgent]:
    agent = JoinedAgent(of, name, *options, home=home, url=url, is_bare=is_bare)
    agent.start()
    try:
        yield agent
    finally:
        agent.end()


@contextmanager
def service_without_own_agent(home: Home) -> Iterator[None]:
    """A service that starts no agent of its own home, whose lock is held as long as the block runs."""
    folder = home.home / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with served(home):
            yield


@contextmanager
def served(home: Home) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        home.command("serve"), env=home.variables(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until((home.home / "service.json").exists)
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
