"""A runner as its session sees it: one process, two pipes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trials

QUIT_TIMEOUT_S = 30.0
READ_BYTES = 1 << 16


class LocalNode:
    """A node on this machine: a runner, started with the object."""

    address = "127.0.0.1"

    def __init__(
        self,
        name: str,
        workspace: Path,
        *,
        removed: Sequence[Path],
        environment: Mapping[str, str],
        cpus: Sequence[int] = (),
    ) -> None:
        """``removed`` are folders that go with the node, also where the session was killed; ``cpus``, if any are
        given, are the only cores that its processes run on."""
        self.name, self.workspace = name, workspace
        commands_out, self._commands = os.pipe2(os.O_CLOEXEC)
        self.events, events_in = os.pipe2(os.O_CLOEXEC)
        self._rest = b""
        self.is_lost = False
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "trials.tasks.runner", str(commands_out), str(events_in)),
                    *(",".join(map(str, cpus)), *map(str, removed)),
                ],
                env={**os.environ, **environment, "PYTHONPATH": _path_with_this_package()},
                stdin=subprocess.DEVNULL,
                pass_fds=(commands_out, events_in),
                start_new_session=True,
            )
        finally:
            os.close(commands_out)
            os.close(events_in)

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, **order: Any) -> None:
        """Nothing where the runner is gone: ``read`` says so."""
        with contextlib.suppress(BrokenPipeError):
            data = memoryview(json.dumps(order).encode() + b"\n")
            while data:
                data = data[os.write(self._commands, data) :]

    def read(self) -> Sequence[dict[str, Any]]:
        """What the runner has said; waits for something. ``{"event": "lost"}`` when it ended by itself."""
        data = os.read(self.events, READ_BYTES)
        if not data:
            self.is_lost = True
            return [{"event": "lost", "code": self._process.wait()}]
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Nothing of the node runs when this returns."""
        os.close(self._commands)
        try:
            self._process.wait(QUIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children die with it
            self._process.wait()
        os.close(self.events)


def _path_with_this_package() -> str:
    root = str(Path(trials.__file__).parents[1])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))
