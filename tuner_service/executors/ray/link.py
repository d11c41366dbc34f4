"""The service's side of one bridge process, from its start to its end."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import tuner_service
from trials.wire.programs import KEEPER
from trials.wire.variables import is_inherited
from tuner_service.executors.ray.local_cluster import with_access

FRAME_CHARACTERS = 4 << 20  # of one line; a bridge that says more is ended
END_S = 5.0  # for a bridge that was told to end
_OF_RAY = "RAY_"  # variables that people set for Ray

logger = logging.getLogger(__name__)


class BridgeLink:
    """``on_frame`` and ``on_end`` are called from a thread of the link, from ``listen`` on; the latter last, once, with
    the exit code. A bridge that says what is not understood, ``on_frame`` included, is ended.

    ``is_of_own``: the cluster is the one of this folder, which lets nobody in but who knows its token.
    """

    def __init__(
        self,
        *,
        folder: Path,
        python: str,
        is_of_own: bool,
        on_frame: Callable[[dict[str, Any]], None],
        on_end: Callable[[int], None],
    ) -> None:
        """OSError where no process can be started."""
        self._on_frame, self._on_end = on_frame, on_end
        self._sending = threading.Lock()
        self._rest = b""  # of what was sent, that a bridge which does not read leaves no room for
        environment = _environment(_packages(folder))
        with (folder / "bridge.log").open("ab") as log:
            self._process = subprocess.Popen(
                [python or sys.executable, "-P", "-m", "tuner_service.executors.ray.bridge"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=with_access(environment, folder) if is_of_own else environment,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is for the service, which ends it
            )
        assert self._process.stdin is not None  # noqa: S101  # it is a pipe
        self._orders = self._process.stdin
        os.set_blocking(self._orders.fileno(), False)

    def listen(self) -> None:
        """Once whoever made it is prepared for its end, which may come at once."""
        threading.Thread(target=self._read, name="ray bridge", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, frame: Mapping[str, Any]) -> None:
        """Never waits for a bridge that does not read: see ``send_rest``.

        Dropped where the bridge has ended: ``on_end`` says so.
        """
        with self._sending:
            self._rest += json.dumps(frame, separators=(",", ":")).encode() + b"\n"
        self.send_rest()

    def send_rest(self) -> None:
        """What was sent and has found no room yet, as far as there is some now."""
        with self._sending:
            try:
                while self._rest:
                    self._rest = self._rest[os.write(self._orders.fileno(), self._rest) :]
            except BlockingIOError:
                return
            except (OSError, ValueError):
                self._rest = b""

    def _close_orders(self) -> None:
        """Not while another thread writes there: the number of what is closed may be another file's by then."""
        with self._sending, suppress(OSError):
            self._orders.close()

    def end(self) -> None:
        """Its nodes go on: the next bridge finds them."""
        self._close_orders()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """``on_end`` says when it has ended."""
        self._process.kill()

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None  # noqa: S101  # it is a pipe
        try:
            with stream:
                while line := stream.readline(FRAME_CHARACTERS):
                    self._on_frame(cast("dict[str, Any]", json.loads(line)))
        except Exception as exc:  # noqa: BLE001  # Ray has written into what is not its own, or a line without end
            logger.warning("ray_bridge_not_understood", extra={"why": str(exc)[:200]})
            self._process.kill()
        code = self._process.wait()
        self._close_orders()
        self._on_end(code)


def _packages(folder: Path) -> Path:
    """A folder with our two packages and nothing else: another interpreter may import what it has of its own."""
    path = folder / "path"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for target in (KEEPER.resolve().parents[1], Path(tuner_service.__file__).resolve().parent):
        link = path / target.name
        if not link.is_symlink() or link.readlink() != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    return path


def _environment(path: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if is_inherited(name) or name.startswith(_OF_RAY)}
    return {**own, "PYTHONPATH": str(path), "RAY_USAGE_STATS_ENABLED": own.get("RAY_USAGE_STATS_ENABLED", "0")}
