"""Processes of algorithm workers, and how one is started anew.

A worker is the child of a keeper, which ends whatever the worker started, however it got away, and bounds its memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Protocol

import tuner_service
from trials.wire.programs import KEEPER
from trials.wire.variables import is_inherited

WORKER_MEMORY_BYTES = 4 << 30  # of a worker and whatever it started, unless the setting says another
KILL_GRACE_S = 15.0  # for a keeper to end everything below it, which it tries for ten seconds
RECORDS = "kept"  # in the workers' folder: what keepers have to end


class WorkerProcess(Protocol):
    """The keeper of a worker, which ends as the worker did: what is used of a ``Popen``."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


def spawn_worker(folder: Path, *, memory_bytes: int = WORKER_MEMORY_BYTES) -> subprocess.Popen[bytes]:
    """Start a worker below a keeper; OSError where no process can be started. It waits on its standard input.

    The process is the keeper: SIGTERM ends it with all that is below, and it ends as the worker did. ``memory_bytes``
    0: without a limit.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", str(KEEPER), str(folder.absolute() / RECORDS), str(memory_bytes)),
            *(sys.executable, "-P", "-m", "tuner_service.workers.worker"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=folder,
    )


def end_worker(process: WorkerProcess) -> threading.Timer:
    """Have a worker ended with everything that it started; returns at once. The timer does it the hard way, later."""
    process.terminate()
    process.send_signal(signal.SIGCONT)  # one that is stopped hears nothing else
    timer = threading.Timer(KILL_GRACE_S, process.kill)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no thread can be started now: it was told to end all the same
        timer.start()
    return timer


def environment() -> dict[str, str]:
    """The service's own, with what makes a worker find this package and compute the same every time."""
    package_root = str(Path(tuner_service.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {
        **{name: value for name, value in os.environ.items() if is_inherited(name)},
        # More threads of BLAS cost more than they bring here and add in another order, and a search goes on where the
        # shell, or the machine, has another number of them. A class of a user's that wants threads asks for them.
        **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "BLIS", "GOTO", "NUMEXPR")},
        "PYTHONPATH": package_root + (os.pathsep + inherited if inherited else ""),
        "PYTHONHASHSEED": "0",  # the order of sets, and so of what a class of a user does, outlives a restart
    }
