"""Other libraries, measured by scripts that run in an interpreter which has them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
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
