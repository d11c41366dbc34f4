"""A Ray cluster on this machine for one service: ``python -m tuner_service.executors.ray.local_cluster FOLDER``.

The holder of a cluster outlives the service, so that a restart disturbs no trial, and ends with everything that it
started when no service has used the folder for UNUSED_S. Ray runs below a keeper: whichever part is killed, the rest
ends. A killed holder or a killed part of Ray means a new cluster, whose nodes begin anew. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trials.files import create_once, write_atomically
from trials.wire.programs import KEEPER

UNUSED_S = 30.0  # without a service
POLL_S = 0.25
LEAVE_S = 5  # for Ray to end by itself; then its keeper ends it
START_LIMIT_S = 120.0  # for Ray to say where it is
BACKOFF_S = 1.0  # after a cluster that ended; doubled by each that did not last
BACKOFF_LIMIT_S = 30.0
STEADY_S = 60.0
OBJECT_STORE_BYTES = 100 << 20  # nothing of ours is put there
# Workers that Ray starts ahead of tasks: our nodes do not take them, for they have a runtime environment. Whoever sets
# these variables for the service has them as set.
NO_IDLE_WORKERS = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}
FOLDER_PREFIX = "tuner-ray-"  # of Ray's files: its sockets have long names, and a name has 107 characters at most
USERS, HOLDER, ADDRESS, PLACE, TOKEN = "users.lock", "holder.lock", "address", "place", "auth-token"
_BY_VALUE = "RAY_AUTH_TOKEN"
HELD = "held.lock"  # in Ray's folder: its keeper has it, and so nobody when that is gone


@dataclass(kw_only=True)
class LocalCluster:
    """The service's side: it says that the cluster is used, and sees to a holder."""

    folder: Path
    _users: int | None = None
    _holder: subprocess.Popen[bytes] | None = None
    _started_at: float = 0.0
    _next: float = 0.0
    _backoff_s: float = BACKOFF_S

    def see_to_it(self) -> None:
        """Start a holder unless there is one. OSError where none can be started, or the last one failed; to be called
        again and again."""
        is_there = self._users is not None and self._holder is not None and self._holder.poll() is None
        if is_there:
            return
        self._look_at_end()
        if time.monotonic() < self._next:
            return
        if self._users is None:
            self._take()
        if is_held(self.folder / HOLDER):
            return
        self._started_at = time.monotonic()
        self._next = self._started_at + BACKOFF_S
        with (self.folder / "cluster.log").open("ab") as log:
            self._holder = subprocess.Popen(
                [sys.executable, "-P", "-m", "tuner_service.executors.ray.local_cluster", str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
                start_new_session=True,
            )

    def _look_at_end(self) -> None:
        """Of the holder that was started last. OSError where it failed; if it did so at once, the next is put off."""
        code = None if self._holder is None else self._holder.poll()
        if code is None:
            return
        self._holder = None
        has_lasted = time.monotonic() - self._started_at >= BACKOFF_LIMIT_S
        self._backoff_s = BACKOFF_S if code == 0 or has_lasted else min(BACKOFF_LIMIT_S, 2 * self._backoff_s)
        self._next = self._started_at + self._backoff_s
        if code != 0:
            raise OSError(f"its holder ended with exit code {code}: see {self.folder}/cluster.log")

    def _take(self) -> None:
        """Say that the cluster is used. A holder that looks at this very moment has the lock itself."""
        self._next = time.monotonic() + BACKOFF_S
        create_once(str(self.folder / TOKEN), secrets.token_hex(32).encode())
        users = _open_lock(self.folder / USERS)
        try:
            fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            os.close(users)
            raise
        self._users, self._next = users, 0.0

    def address(self) -> str:
        """Of the cluster, once it is up; "" until then."""
        if not is_held(self.folder / HOLDER):
            return ""
        with suppress(OSError):
            return (self.folder / ADDRESS).read_text(encoding="ascii").strip()
        return ""

    def close(self) -> None:
        """The cluster goes on for UNUSED_S."""
        if self._users is not None:
            os.close(self._users)
            self._users = None
        if self._holder is not None and self._holder.poll() is None:
            self._holder.returncode = 0  # not ours to wait for: it outlives this process


def with_access(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """These variables and two more: who has them may speak to the cluster of that folder; nobody else may.

    Ray listens at every address of the machine, and whoever it lets in can run what they like.
    """
    rest = {name: value for name, value in environment.items() if name != _BY_VALUE}  # it would go before the file
    return rest | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / TOKEN)}


def is_held(path: Path) -> bool:
    """Whether some process has the lock."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def remove_left() -> None:
    """Folders of Ray's files of this user whose keeper is gone, as after a kill of all that would have removed them."""
    for place in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            if (place / HELD).stat().st_uid == os.getuid() and not is_held(place / HELD):
                shutil.rmtree(place, ignore_errors=True)


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


# ── the holder ──────────────────────────────────────────────────────────────────────────────────
@dataclass(kw_only=True)
class _Holder:
    folder: Path
    is_told: bool = False
    _keeper: subprocess.Popen[bytes] | None = None
    _place: Path | None = None
    _started_at: float = 0.0
    _next: float = 0.0
    _backoff_s: float = 0.0
    _used_at: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        (self.folder / ADDRESS).unlink(missing_ok=True)  # of a holder that was killed
        remove_left()
        while not self.is_told and time.monotonic() - self._used_at < UNUSED_S:
            if is_held(self.folder / USERS):
                self._used_at = time.monotonic()
            self._look()
            time.sleep(POLL_S)
        self._end()

    def _look(self) -> None:
        now = time.monotonic()
        if self._keeper is not None and self._keeper.poll() is not None:
            lasted = now - self._started_at >= STEADY_S
            self._backoff_s = BACKOFF_S if lasted else min(BACKOFF_LIMIT_S, 2 * self._backoff_s or BACKOFF_S)
            self._end()
            self._next = now + self._backoff_s
        if self._keeper is None and now >= self._next:
            self._start()
        address = self.folder / ADDRESS
        if self._keeper is None or address.exists() or self._place is None:
            return
        with suppress(OSError):
            found = (self._place / "ray_current_cluster").read_text(encoding="ascii").strip()
            if ":" in found:
                write_atomically(str(address), found.encode())
        if now - self._started_at > START_LIMIT_S and not address.exists():
            self._keeper.terminate()

    def _start(self) -> None:
        self._place = place = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        lock = _open_lock(place / HELD)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_atomically(str(self.folder / PLACE), str(place).encode())
        ray = [sys.executable, "-P", "-c", "from ray.scripts.scripts import main; main()"]
        start = ["start", "--head", "--block", "--port=0", "--include-dashboard=false", "--disable-usage-stats"]
        only_here = ["--node-ip-address=127.0.0.1", f"--temp-dir={place}"]
        size = [f"--object-store-memory={OBJECT_STORE_BYTES}"]
        keeper = [sys.executable, "-I", "-S", str(KEEPER), "--unbounded", str(LEAVE_S), str(self.folder / "kept"), "0"]
        self._keeper = subprocess.Popen(
            [*keeper, *ray, *start, *only_here, *size],
            stdin=subprocess.PIPE,  # where this process is killed, the keeper finds its other side gone
            cwd=self.folder,
            env=with_access(NO_IDLE_WORKERS | os.environ, self.folder),
            pass_fds=(lock,),
        )
        os.close(lock)
        self._started_at = time.monotonic()

    def _end(self) -> None:
        """Everything of the cluster: processes by the keeper, which waits for their end, then its files."""
        (self.folder / ADDRESS).unlink(missing_ok=True)
        if self._keeper is not None:
            self._keeper.terminate()
            self._keeper.wait()
            if self._keeper.stdin is not None:
                self._keeper.stdin.close()
        self._keeper = None
        self._remove_place(self._place)

    def _remove_place(self, place: Path | None) -> None:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    """0 also where another holder has the folder."""
    folder = Path(sys.argv[1])
    lock = _open_lock(folder / HOLDER)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    holder = _Holder(folder=folder)

    def tell(*_: object) -> None:
        holder.is_told = True

    signal.signal(signal.SIGTERM, tell)
    holder.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
