"""The bridge: Ray's driver, in a process of its own, which a crash of Ray's library may end.

    python -m tuner_service.executors.ray.bridge

Lines of JSON come in on the standard input: the first says to which cluster, each later one what is wanted, the newest
counts. Lines of JSON go out: what exists. It holds nothing that the next bridge could not find again by name, and
ends when the service does: what was asked for and has not come is taken back then, so that no autoscaler brings it for
nobody. Imports Ray, the standard library, and nothing else that the nodes' Python may lack.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

STEP_S = 0.25
SAY_EVERY_S = 2.0  # also where nothing has changed
SILENT_S = 5.0  # for Ray's head to answer, before people are told that it does not
LET_GO_S = 3.0  # once the service is gone, for what nobody will use to be taken back
AUTO, AUTH_MODE = "auto", "RAY_AUTH_MODE"
EXIT_NO_RAY = 5
EXIT_NOT_CONNECTED = 6
EXIT_BAD_FRAME = 7


class Pipe:
    """The two ends of the service: the newest frame that came, and a way to say something."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # whatever Ray prints belongs to the log
        self._changed = threading.Condition()
        self._start: dict[str, Any] | None = None
        self._newest: dict[str, Any] | None = None
        self._revision = 0
        self.is_closed = False  # the service is gone
        self._saying = threading.Lock()

    def read_on(self) -> None:
        """In a thread of its own; when the service is gone, this process goes, in LET_GO_S at most."""
        for line in sys.stdin:
            try:
                frame = json.loads(line)
            except ValueError:
                os._exit(EXIT_BAD_FRAME)
            with self._changed:
                if self._start is None:
                    self._start = frame
                else:
                    self._newest, self._revision = frame, self._revision + 1
                self._changed.notify_all()
        with self._changed:
            self.is_closed, self._revision = True, self._revision + 1
            self._changed.notify_all()
            is_connecting = self._start is None
        if not is_connecting:
            time.sleep(LET_GO_S)
        os._exit(0)

    def start(self) -> dict[str, Any]:
        """Where the cluster is, as soon as the service knows."""
        with self._changed:
            self._changed.wait_for(lambda: self._start is not None)
            return self._start or {}

    def next(self, after: int, timeout_s: float) -> tuple[int, dict[str, Any] | None]:
        """The newest frame, at once where it came after the one of that number."""
        with self._changed:
            self._changed.wait_for(lambda: self._revision > after, timeout_s)
            return self._revision, self._newest

    def say(self, frame: dict[str, Any]) -> None:
        try:
            with self._saying:
                self._out.write(json.dumps(frame, separators=(",", ":")) + "\n")
                self._out.flush()
        except OSError:
            os._exit(0)


class Watch:
    """Says when Ray's head leaves a question without an answer: its library waits, and ends this process in the end."""

    def __init__(self, pipe: Pipe, address: str) -> None:
        self._pipe, self._address = pipe, address
        self._asked_at: float | None = None
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def __enter__(self) -> None:
        self._asked_at = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._asked_at = None

    def _look(self) -> None:
        while True:
            time.sleep(SILENT_S / 2)
            asked_at = self._asked_at
            if asked_at is not None and time.monotonic() - asked_at >= SILENT_S:
                silent_s = round(time.monotonic() - asked_at)
                message = f"Ray's head at {self._address} has not answered for {silent_s} s; what runs goes on"
                self._pipe.say({"kind": "trouble", "message": message})


def main() -> int:
    pipe = Pipe()
    threading.Thread(target=pipe.read_on, name="read", daemon=True).start()
    try:
        import ray  # noqa: F401  # takes a second, while the service finds out where the cluster is
    except ImportError as exc:
        pipe.say({"kind": "trouble", "message": f"there is no Ray in {sys.executable}: {exc}"})
        return EXIT_NO_RAY
    from tuner_service.executors.ray.driver import RayDriver
    from tuner_service.executors.ray.reconciler import Reconciler

    start = pipe.start()
    driver = RayDriver(start)
    try:
        driver.connect()
    except Exception as exc:  # noqa: BLE001  # whatever Ray raises: the service says it, and tries again
        pipe.say({"kind": "trouble", "message": not_connected(str(start.get("address")), exc, os.environ)})
        return EXIT_NOT_CONNECTED
    reconciler = Reconciler(driver, str(start.get("lineage")))
    watch = Watch(pipe, str(start.get("address")))
    said: dict[str, Any] = {}
    said_at, revision = 0.0, 0
    while True:
        revision, wanted = pipe.next(revision, STEP_S)
        if pipe.is_closed:
            reconciler.let_go()
            os._exit(0)
        with watch:
            seen = {"kind": "nodes", **reconciler.step(wanted)}
        if seen != said or time.monotonic() - said_at >= SAY_EVERY_S:
            pipe.say(seen)
            said, said_at = seen, time.monotonic()


def not_connected(address: str, exc: Exception, environ: Mapping[str, str]) -> str:
    """What people are told. Ray names no token where one is asked for, and looks for one by itself with "auto" only."""
    is_open = address != AUTO and AUTH_MODE not in environ
    hint = f"; if that cluster asks for a token, start the service with {AUTH_MODE}=token" if is_open else ""
    return f"Ray at {address}: {_sentence(exc)}{hint}"


def _sentence(exc: Exception) -> str:
    return " ".join(str(exc).split())[:500] or type(exc).__name__


if __name__ == "__main__":
    sys.exit(main())
