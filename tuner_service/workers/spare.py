"""Worker processes, and one kept ready: it has imported what every worker imports, and waits for its experiment.

Half of the time to a first trial would go into starting a worker. A spare one ends, like every worker, with its input.
A worker is the child of a keeper, which ends whatever the worker started, however it got away, and bounds its memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import tuner_service
from trials.wire.programs import KEEPER
from trials.wire.variables import is_inherited

NEXT_SPARE_DELAY_S = 2.0  # after one was taken: its experiment's first trials come before the next spare
WORKER_MEMORY_BYTES = 4 << 30  # of a worker and whatever it started, unless the setting says another
KILL_GRACE_S = 15.0  # for a keeper to end everything below it, which it tries for ten seconds
_RECORDS = "kept"  # in the workers' folder: what keepers have to end


def spawn_worker(folder: Path, *, memory_bytes: int = WORKER_MEMORY_BYTES) -> subprocess.Popen[bytes]:
    """Start a worker below a keeper; OSError where no process can be started. It waits on its standard input.

    The process is the keeper: SIGTERM ends it with all that is below, and it ends as the worker did. ``memory_bytes``
    0: without a limit.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", str(KEEPER), str(folder.absolute() / _RECORDS), str(memory_bytes)),
            *(sys.executable, "-P", "-m", "tuner_service.workers.worker"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        cwd=folder,
    )


def end_worker(process: subprocess.Popen[bytes]) -> threading.Timer:
    """Have a worker ended with everything that it started; returns at once. The timer does it the hard way, later."""
    process.terminate()
    process.send_signal(signal.SIGCONT)  # one that is stopped hears nothing else
    timer = threading.Timer(KILL_GRACE_S, process.kill)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no thread can be started now: it was told to end all the same
        timer.start()
    return timer


def _environment() -> dict[str, str]:
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


@dataclass(kw_only=True)
class SpareWorker:
    """At most one process that waits. Any thread."""

    folder: Path
    memory_bytes: int = WORKER_MEMORY_BYTES
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _spare: subprocess.Popen[bytes] | None = None
    _timer: threading.Timer | None = None
    _closed: bool = False

    def prepare(self) -> None:
        """Start the spare unless there is one. A machine that cannot start it now can do without."""
        with self._lock:
            if not self._closed and (self._spare is None or self._spare.poll() is not None):
                self._discard()
                try:
                    self._spare = spawn_worker(self.folder, memory_bytes=self.memory_bytes)
                except OSError:
                    self._spare = None

    def take(self, folder: Path) -> subprocess.Popen[bytes]:
        """The spare if it lives, else a new process in ``folder``; another spare follows soon."""
        with self._lock:
            process, self._spare = self._spare, None
            if not self._closed:
                self._timer = threading.Timer(NEXT_SPARE_DELAY_S, self.prepare)
                self._timer.daemon = True
                self._timer.start()
        if process is not None and process.poll() is None:
            return process
        _close(process)
        return spawn_worker(folder, memory_bytes=self.memory_bytes)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            self._discard()

    def _discard(self) -> None:
        _close(self._spare)
        self._spare = None


def _close(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    timer = end_worker(process)
    process.wait()
    timer.cancel()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
