"""Open pages of an experiment, scripted: each asks what the dashboard asks, as often as that does while trials report.

Like that, it waits between two looks for at least REST times as long as the last one took, so that a busy service is
asked less often (``dashboard/src/api/resource.ts``).

    python -m benchmarks.streams.pages URL TOKEN_FILE COUNT EXPERIMENT_ID

Prints a line once each has read everything; then, when its standard input ends, how much was asked.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

CHANGES_S = 0.25  # between two looks at the experiment
TRIALS_S = 0.5  # between two looks at what changed of its trials
ANALYSES_S = 1.5  # between two looks at what is computed from all trials
REST = 8
MOST_BETWEEN_S = 3.0  # however long a look took
COLUMNS = "number,status,reason,value,step,attempts,started_at,ended_at,running_s,parameters.*"


class Page(threading.Thread):
    """One open overview. ``asked`` counts its requests, ``slowest_s`` is the longest that it waited for one."""

    def __init__(self, address: tuple[str, int], token: str, experiment_id: str, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection(*address, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip"}
        self._one = f"/api/v1/experiments/{experiment_id}"
        self._ended = ended
        self._tags: dict[str, str] = {}
        self._since = ""
        self.ready = threading.Event()
        self.asked, self.slowest_s = 0, 0.0

    def run(self) -> None:
        looks: dict[Callable[[], object], tuple[float, float]] = {self._look: (CHANGES_S, 0.0)}
        looks[self._read_changes] = (TRIALS_S, 0.0)
        for what in ("/curves?limit=100&points=200", "/importance", "/best"):
            looks[partial(self._look, what)] = (ANALYSES_S, 0.0)
        while not self._ended.is_set():
            for look, (pace, due) in looks.items():
                begun = time.monotonic()
                if begun >= due:
                    look()
                    rest = min(MOST_BETWEEN_S, REST * (time.monotonic() - begun))
                    looks[look] = (pace, begun + max(pace, rest))
            self.ready.set()
            self._ended.wait(max(0.0, min(due for _, due in looks.values()) - time.monotonic()))

    def _look(self, what: str = "") -> None:
        self._ask(self._one + what)

    def _read_changes(self) -> None:
        since = f"&since={self._since}" if self._since else ""
        body = self._ask(f"{self._one}/table?limit=20000&columns={COLUMNS}{since}", plain=True)
        self._since = str(json.loads(body)["revision"])

    def _ask(self, path: str, *, plain: bool = False) -> bytes:
        headers = self._headers | ({"If-None-Match": self._tags[path]} if path in self._tags else {})
        if plain:
            headers = {name: value for name, value in headers.items() if name == "Authorization"}
        begun = time.monotonic()
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
        self.asked += 1
        if answer.status not in {200, 304}:
            raise RuntimeError(f"{path}: {answer.status}: {body[:300]!r}")
        if not plain and (tag := answer.headers.get("ETag")):
            self._tags[path] = tag
        return body


def main() -> int:
    url, token_file, count, experiment_id = sys.argv[1:]
    token = Path(token_file).read_text(encoding="utf-8").strip()
    parts = urlsplit(url)
    ended = threading.Event()
    address = (parts.hostname or "", parts.port or 80)
    pages = [Page(address, token, experiment_id, ended) for _ in range(int(count))]
    for page in pages:
        page.start()
    for page in pages:
        while not page.ready.wait(1.0):
            if not page.is_alive():
                raise SystemExit("a scripted page ended")
    print("ready", flush=True)
    before = sum(page.asked for page in pages)
    begun = time.monotonic()
    sys.stdin.read()
    seconds = time.monotonic() - begun
    ended.set()
    asked = sum(page.asked for page in pages) - before
    alive = sum(page.is_alive() for page in pages)
    told = {"asked_a_second": asked / seconds, "slowest_s": max(page.slowest_s for page in pages), "alive": alive}
    print(json.dumps(told), flush=True)
    return 0 if alive == len(pages) else 1


if __name__ == "__main__":
    sys.exit(main())
