"""Other libraries, measured by scripts that run in an interpreter which has them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TIMEOUT_S = 180.0


def run(script: Path, *arguments: str, python: str = sys.executable) -> dict[str, Any]:
    """What the script said in its last line, which is JSON; or {"error": …} with the end of what it printed."""
    with tempfile.TemporaryDirectory(prefix="tuner-peer-") as folder:
        command = [python, str(script), folder, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=folder)
        except subprocess.TimeoutExpired:
            return {"error": f"not done within {TIMEOUT_S:g} s"}
    if done.returncode != 0:
        return {"error": " ".join(done.stderr.strip().splitlines()[-1:])[:300]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def timed(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    prints_result: bool = True,
) -> dict[str, Any]:
    """Run ``command`` to its end; ``began_at``, and ``whole_s`` until it printed its result, a line of JSON.

    How it ends after that (servers that are shut down) is not counted; where it prints no result, it is. ``next``: its
    second line of JSON, where it goes on and prints one. {"error": …} as above.
    """
    errors = folder / "stderr"
    environment = environment or {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    with errors.open("w") as stderr:
        began_at, begun = time.time(), time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    watch = threading.Timer(TIMEOUT_S, _kill, [process.pid])
    watch.start()
    found: dict[str, Any] = {}
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            if found:
                found["next"] = json.loads(line)
            else:
                found = {**json.loads(line), "began_at": began_at, "whole_s": time.perf_counter() - begun}
    code = process.wait()
    watch.cancel()
    if not prints_result and code == 0:
        found = {"began_at": began_at, "whole_s": time.perf_counter() - begun}
    if found:
        return found
    said = errors.read_text(errors="replace").strip().splitlines()[-1:]
    return {"error": " ".join(said)[:300] or f"ended with {code} and no result"}


def _kill(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
