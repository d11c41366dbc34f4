"""Open pages of an experiment, scripted: each asks what the dashboard asks, as often as that does while trials report.

Like that, each reads one stream of events and looks at what an event concerns, waits longer between two looks while one
change follows another, at least REST times as long as the last look took, and names with each read the newest event
that it has (``dashboard/src/api/resource.ts``, ``live.ts``, ``seen.ts``).

    python -m benchmarks.streams.pages URL TOKEN_FILE COUNT EXPERIMENT_ID

Prints a line once each has read everything; then, when its standard input ends, how much was asked.
"""

from __future__ import annotations

import gzip
import http.client
import json
import math
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CHANGES_S = 0.25  # between two looks at the experiment
TRIALS_S = 0.5  # between two looks at what changed of its trials
ANALYSES_S = 1.5  # between two looks at what is computed from all trials
BUSY_S = 1.0  # so long, or twice as long, while one change follows another
REST = 8
MOST_BETWEEN_S = 3.0  # however long a look took
COLUMNS = "number,status,reason,value,last_value,step,attempts,started_at,ended_at,running_s,reported_at,parameters.*"


@dataclass(kw_only=True)
class Resource:
    """``makeResource`` of the dashboard: when what is shown of ``path`` is read again. ``of_outcomes``: its topic."""

    path: str
    pace: float
    of_outcomes: bool = False
    has_changed: bool = True
    began: float = float("-inf")
    next: float = 0.0
    given: str = ""  # the event up to which its last answer has everything
    _pause: float = field(init=False)

    def __post_init__(self) -> None:
        self._pause, self._longest = self.pace, max(BUSY_S, 2 * self.pace)

    def change(self, now: float) -> None:
        if not self.has_changed and now >= max(self.next, self.began + self._longest):
            self._pause = self.pace
        self.has_changed = True

    def looked(self, begun: float, now: float) -> None:
        rest = max(self._pause, min(MOST_BETWEEN_S, REST * (now - begun)))
        if self._pause >= self._longest:  # to a whole one of the clock on the wall, as all other pages do
            ago = time.time() - (now - begun)
            rest = math.ceil((ago + rest - self._longest / 2) / self._longest) * self._longest - ago
        self.began, self.next = begun, begun + rest
        self._pause = min(self._longest, 2 * self._pause)


class Page(threading.Thread):
    """One open overview. ``asked`` counts its requests, ``slowest_s`` is the longest that it waited for one."""

    def __init__(self, address: tuple[str, int], token: str, experiment_id: str, ended: threading.Event) -> None:
        super().__init__(daemon=True)
        self._address, self._id, self._ended = address, experiment_id, ended
        self._connection = http.client.HTTPConnection(*address, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "gzip, deflate"}
        one = f"/api/v1/experiments/{experiment_id}"
        self._table = Resource(path=f"{one}/table?limit=20000&columns={COLUMNS}", pace=TRIALS_S)
        self._resources = [
            Resource(path=one, pace=CHANGES_S),
            self._table,
            Resource(path=f"{one}/curves?limit=100&points=200", pace=ANALYSES_S),
            Resource(path=f"{one}/importance", pace=ANALYSES_S, of_outcomes=True),
            Resource(path=f"{one}/best", pace=ANALYSES_S, of_outcomes=True),
        ]
        self._since = ""
        self._told = ""  # the newest event
        self._outcomes: object = None
        self._news = threading.Condition()
        self.ready = threading.Event()
        self.asked, self.slowest_s, self.broke = 0, 0.0, False

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while not self._ended.is_set():
            for resource in self._resources:
                if resource.has_changed and resource.next <= (begun := time.monotonic()):
                    resource.has_changed = False
                    self._look(resource)
                    resource.looked(begun, time.monotonic())
            self.ready.set()
            with self._news:
                due = [resource.next for resource in self._resources if resource.has_changed]
                self._news.wait(max(0.0, min(due, default=time.monotonic() + 0.5) - time.monotonic()))

    def _listen(self) -> None:
        """Reads the stream of events of everything, as the one tab of a browser does."""
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        connection.request("GET", "/api/v1/events", headers=self._headers)
        answer = connection.getresponse()
        event: dict[str, str] = {}
        while not self._ended.is_set():
            line = answer.readline()
            if not line:
                self.broke = not self._ended.is_set()
                return
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
                continue
            self._take(event)
            event = {}

    def _take(self, event: dict[str, str]) -> None:
        if event.get("event") not in {"patch", "gap"}:
            return
        with self._news:
            self._told = event["id"]
            told: list[dict[str, Any]] = json.loads(event["data"]).get("experiments", [])
            found = next((one for one in told if one["id"] == self._id), None)
            if found is None and event["event"] == "patch":
                return
            outcomes = found and (found["counts"], found["budget"])
            for resource in self._resources:
                if not resource.of_outcomes or outcomes is None or outcomes != self._outcomes:
                    resource.change(time.monotonic())
            self._outcomes = outcomes
            self._news.notify()

    def _look(self, resource: Resource) -> None:
        is_table = resource is self._table
        body = self._ask(resource, f"&since={self._since}" if is_table and self._since else "")
        if is_table:
            self._since = str(json.loads(body)["revision"])

    def _ask(self, resource: Resource, rest: str) -> bytes:
        seen = self._told and max(self._told, resource.given, key=_sequence)
        begun = time.monotonic()
        headers = self._headers | ({"Last-Event-ID": seen} if seen else {})
        self._connection.request("GET", resource.path + rest, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
        self.asked += 1
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{resource.path}: {answer.status}: {body[:300]!r}")
        if not rest:
            resource.given = answer.headers["X-Tuner-Event"]
        return gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body


def _sequence(event_id: str) -> int:
    return int(event_id.partition("-")[0] or 0)


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
    alive = sum(page.is_alive() and not page.broke for page in pages)
    told = {"asked_a_second": asked / seconds, "slowest_s": max(page.slowest_s for page in pages), "alive": alive}
    print(json.dumps(told), flush=True)
    return 0 if alive == len(pages) else 1


if __name__ == "__main__":
    sys.exit(main())
