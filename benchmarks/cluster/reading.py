"""A client that reads while agents connect, in a process of its own: what it waits for is the service alone.

``python -m benchmarks.cluster.reading TOKEN_FILE``: begins once it is told the address, a line, and ends with its
input; then it prints the seconds of each read.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.request import Request, urlopen

READ_EVERY_S = 0.02
PATIENCE_S = 300.0
PATHS = ("/api/v1/experiments", "/api/v1/agents")


class Reader:
    """Started early, so that its own start costs nothing of what is measured."""

    def __init__(self, token_file: str) -> None:
        command = [sys.executable, "-m", "benchmarks.cluster.reading", token_file]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, url: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{url}\n")
        self._process.stdin.flush()

    def end(self) -> Sequence[float]:
        """How long each read took."""
        found, _ = self._process.communicate(timeout=PATIENCE_S)
        return [float(took) for took in json.loads(found)]


def main() -> int:
    token = Path(sys.argv[1]).read_text(encoding="utf-8").strip()
    url = sys.stdin.readline().strip()
    took: list[float] = []
    while len(took) < 2 or not select.select([sys.stdin], [], [], READ_EVERY_S)[0]:
        begun = time.monotonic()
        path = PATHS[len(took) % len(PATHS)]
        with urlopen(Request(url + path, headers={"Authorization": f"Bearer {token}"}), timeout=PATIENCE_S) as answer:
            json.loads(answer.read())
        took.append(time.monotonic() - begun)
    print(json.dumps(took))
    return 0


if __name__ == "__main__":
    sys.exit(main())
