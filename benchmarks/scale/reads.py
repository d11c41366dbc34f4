"""What a screen reads of a large experiment: analyses, the table, curves; first, after a change, and again."""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.machine import describe
from benchmarks.scale.build import EXPERIMENT_ID, SPACE, Size, build
from benchmarks.service import Service, memory_mb, service, wait_for
from benchmarks.writing import RESULTS, Row, save, verdict

SETTLING_S = 5.0  # what the service starts beside itself is there by then
ONE = f"/api/v1/experiments/{EXPERIMENT_ID}"
READS = {
    "best": (f"{ONE}/best", 0.15),
    "slices": (f"{ONE}/slices", 0.15),
    "importance": (f"{ONE}/importance", 0.3),
    "pareto": (f"{ONE}/pareto", 0.15),
    "failures": (f"{ONE}/failures", None),
    "table, three columns": (f"{ONE}/table?columns=number,status,value", None),
    "table, all columns": (f"{ONE}/table", None),
    "curves, 100": (f"{ONE}/curves", None),
}
NOTES = (
    (
        "Over one connection that stays open, by the clock of the client. First: of a service that has just been "
        "started, which has read nothing yet; the database was written shortly before, and is read from the page "
        "cache. Changed: the median over the runs, each after a change of the search space, so that no answer is kept; "
        "the target is on it. Again: nothing has changed since."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.reads", description=__doc__, allow_abbrev=False)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=100, help="of each trial (default: 100)")
    parser.add_argument("--runs", type=int, default=5, help="after a change each (default: 5)")
    parser.add_argument("--name", default="reads", help="of the result (default: reads)")
    parser.add_argument("--before", type=Path, help="a result of an earlier version, which stands beside this one")
    options = parser.parse_args()
    machine = describe()
    rows = _rows(options)
    if options.before is not None:
        earlier = {row["read"]: row for row in json.loads(options.before.read_text(encoding="utf-8"))["rows"]}
        rows = [{**row, "before, changed s": earlier.get(row["read"], {}).get("changed s")} for row in rows]
    command = f"python -m benchmarks.scale.reads --trials {options.trials} --reports {options.reports}"
    save(options.name, command=command, machine=machine, rows=rows, notes=NOTES)
    print(f"written to {RESULTS / options.name}.md")
    return 0


def _rows(options: argparse.Namespace) -> list[Row]:
    with service() as made:
        made.home.mkdir()
        build(made.database, Size(trials=options.trials, reports=options.reports), snapshots=False)
        rows = []
        for what, (path, target) in READS.items():
            serve(made)
            asking = Asking(made)
            first, size, _ = asking.get(path)
            changed = []
            for run in range(options.runs):
                asking.change(2.0 + run)
                changed.append(asking.get(path)[0])
            again, _, tag = asking.get(path)
            known = asking.get(path, tag=tag)[0] if tag else None
            row = {"read": what, "first s": first, "changed s": median(changed), "target s": target}
            row["target is"] = verdict(median(changed), "" if target is None else str(target))
            rows.append({**row, "again s": again, "304 s": known, "KB": size / 1000})
            print(rows[-1], flush=True)
            if what != list(READS)[-1]:
                made.end()
        rows.append(_row_of_command(made, options.runs))
        print(f"memory of the service: {memory_mb(made.processes()['service']):.0f} MB", flush=True)
        return rows


def serve(made: Service) -> None:
    command = [str(Path(sys.executable).with_name("tuner")), "serve", "--port", "0"]
    subprocess.Popen(command, env=made.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for((made.home / "service.json").exists, "the service to listen", patience_s=120)
    time.sleep(SETTLING_S)


def _row_of_command(made: Service, runs: int) -> Row:
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        made.tuner("best", EXPERIMENT_ID)
        seconds.append(time.perf_counter() - begun)
    return {"read": "tuner best, the whole command", "changed s": median(seconds)}


class Asking:
    """A client with one connection."""

    def __init__(self, made: Service) -> None:
        address = made.address()
        parts = urlsplit(address["url"])
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=120)
        token = Path(address["token_file"]).read_text(encoding="utf-8").strip()
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str, *, tag: str = "") -> tuple[float, int, str]:
        """Seconds, bytes, and the entity tag."""
        headers = {**self._headers, **({"If-None-Match": tag} if tag else {})}
        begun = time.perf_counter()
        answer, body = self._ask("GET", path, headers=headers)
        seconds = time.perf_counter() - begun
        if answer.status not in {200, 304}:
            raise RuntimeError(f"{path}: {answer.status}: {body[:300]!r}")
        return seconds, len(body), answer.headers.get("etag", "")

    def change(self, high: float) -> None:
        """The search space, by the end of one range."""
        body = json.dumps({"search_space": SPACE | {"x0": {"type": "float", "low": 0, "high": high}}})
        headers = {**self._headers, "Content-Type": "application/json"}
        answer, text = self._ask("PUT", f"{ONE}/search-space", headers=headers, body=body)
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {text[:300]!r}")

    def _ask(self, method: str, path: str, **request: Any) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request(method, path, **request)
        answer = self._connection.getresponse()
        return answer, answer.read()


if __name__ == "__main__":
    sys.exit(main())
