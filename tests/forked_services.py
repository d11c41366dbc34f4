"""Services of tests as forks of one process that has imported what a service imports, a second of a processor.

``tests.parts`` has such a process for all of its tests. A service that ``begin`` starts there is the one that a command
would start by itself, by the same code and with the same command line; only its interpreter is not started anew. A test
that runs alone has no such process, and its first command starts the service, as for everybody.

``python -m tests.forked_services PLACE ROOM`` is that process: it listens at PLACE until its input ends. ROOM makes
place for the command lines of the services, as other processes see them.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

from tests.become import become
from tests.fork_ends import end_with

PLACE = "TESTS_SERVICES"  # the variable that names it
ROOT = Path(__file__).resolve().parents[1]
ROOM_BYTES = 4096
ARGUMENTS_PLACE = slice(45, 47)  # in what /proc/self/stat says behind the name: where the command line begins and ends
END_S = 60.0
ANSWERS = b"."
MODULES = (
    "alembic.command",
    "httptools",
    "tuner_service.api.app",
    "tuner_service.api.server",
    "tuner_service.cli.verbs.serve",
    "tuner_service.storage.engine",
    "tuner_service.wiring",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
)


def begin(home: Path, *, folder: Path, environment: Mapping[str, str]) -> bool:
    """Whether there is a service for ``home`` now that answers; else the command that needs it starts one, or says why.

    ``folder`` and ``environment`` are those of that command.
    """
    place, answer = os.environ.get(PLACE), b""
    if place:
        with suppress(OSError), closing(socket.socket(socket.AF_UNIX)) as order:
            order.settimeout(END_S)
            order.connect(place)
            said = {"home": str(home), "folder": str(folder), "environment": dict(environment)}
            order.sendall(json.dumps(said).encode() + b"\n")
            answer = order.recv(1)
    return answer == ANSWERS


@contextmanager
def process_for_all() -> Iterator[None]:
    """As long as the block runs, ``begin`` of this process and of its forks gives services."""
    folder = tempfile.mkdtemp(prefix="tuner-tests-", dir="/tmp")  # the names of sockets are short
    place = f"{folder}/services"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.forked_services", place, "-" * ROOM_BYTES],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    before = os.environ.get(PLACE, "")
    try:
        assert process.stdout.readline() == b"listens\n"
        os.environ[PLACE] = place
        yield
    finally:
        os.environ[PLACE] = before
        process.stdin.close()
        process.stdout.close()
        process.wait(END_S)
        shutil.rmtree(folder)


# ── the process that is forked ──────────────────────────────────────────────────────────────────
def main() -> None:
    for name in MODULES:
        import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(128)
    print("listens", flush=True)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        order, _ = listener.accept()
        if not os.fork():
            listener.close()
            end_with(partial(_serve, order))
        order.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _serve(order: socket.socket) -> int:
    """In a fork: does as the command does that needs a service."""
    with order.makefile("rb") as stream:
        said = json.loads(stream.readline())
    os.chdir(said["folder"])
    os.environ.clear()
    os.environ.update(said["environment"])
    tempfile.tempdir = None  # it was that of other variables
    if _start(Path(said["home"])):
        order.sendall(ANSWERS)
    return 0


def _start(home: Path) -> bool:
    from tuner_service import local_service
    from tuner_service.client import ClientError
    from tuner_service.config import resolve_settings

    settings = resolve_settings({"home": str(home)}, environment=os.environ, folder=Path.cwd())
    local_service.subprocess = _Subprocess  # type: ignore[assignment]  # that module starts services and nothing else
    with suppress(ClientError):
        (local_service.find_service(settings) or local_service.start_service(settings).wait()).close()
        return True
    return False


class _Forked:
    """In place of a Popen: the process is a fork."""

    def __init__(
        self, command: Sequence[str], *, stdin: int, stdout: int, stderr: IO[bytes], env: Mapping[str, str], **_: Any
    ) -> None:
        assert stdin == stdout == subprocess.DEVNULL
        self._code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            end_with(partial(_be_service, list(command), stderr.fileno(), env))

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


class _Subprocess:
    Popen, DEVNULL = _Forked, subprocess.DEVNULL


def _be_service(command: list[str], log: int, environment: Mapping[str, str]) -> NoReturn:
    os.setsid()
    os.dup2(log, 2)
    os.closerange(3, 1 << 12)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    _show(command)
    sys.orig_argv = command
    assert command[1:4] == ["-P", "-m", "tuner_service.cli.main"]
    become(command[3], command[4:], streams=(0, 1, 2))


def _show(command: Sequence[str]) -> None:
    """To whoever looks at the command lines of processes."""
    said = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    begin, end = map(int, said[ARGUMENTS_PLACE])
    line = b"".join(os.fsencode(word) + b"\0" for word in command)
    assert len(line) <= end - begin
    ctypes.memmove(begin, line.ljust(end - begin, b"\0"), end - begin)


if __name__ == "__main__":
    main()
