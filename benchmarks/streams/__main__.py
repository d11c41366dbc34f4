"""What streams of events and open pages cost the service while trials report: processor time for a report."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from statistics import median
from typing import Any

from benchmarks.machine import describe
from benchmarks.reports.ours import Load, measure
from benchmarks.service import Service
from benchmarks.writing import Row, median_of, rounds_of, save, spread, verdict

TARGET_A_SECOND = 25_000
TARGET = "≤ 5"  # percent
ALONE = "no stream"
NOTES = (
    (
        "Four trials in processes of their own report together so often, `median_stop` judging every report; the "
        "readers are one process on the same two cores. Half of the streams are of all experiments, half of the one "
        "that runs, which are told of every trial. Processor time is that of the service alone, its kernel time "
        "included, from the first report until all are on disk; rounds with and without streams take turns. Where "
        "other work shares the cores, reports reach the disk later than they are made: the rate tells it. A page is a "
        "scripted client that reads one of the streams and asks what the dashboard asks of the experiment that runs: "
        "it and what changed of its trials once a second, curves every three seconds, importance and the best where a "
        "trial has ended, and each of them not sooner than eight times as long after the last time as that took."
    ),
    (
        "All streams together are capped: where more than a hundred are open, each is told seldomer, so that there "
        "are not more than 400 events a second (docs/rest-api.md). So the cost grows with streams up to a hundred, and "
        "hardly beyond; `events/s` is what all of them were told. `more %` is of each round, beside the row without "
        "streams of the same round, with the least and the most of the rounds in brackets; the target is on the median."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, help="of each row, interleaved (default: 5)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of reports in each round (default: 8)")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument(
        "--pages", type=int, default=20, help="scripted ones, each with one of the streams (default: 20)"
    )
    options = parser.parse_args()
    machine = describe()
    a_second = TARGET_A_SECOND / Load().trials
    load = Load(reports=int(options.seconds * a_second), a_second=a_second)
    found: dict[str, list[dict[str, Any]]] = {}
    for turn in range(options.rounds):
        streams = f"{options.streams} streams"
        counts = {ALONE: (0, 0), streams: (options.streams, 0)}
        if options.pages:
            counts[f"{streams}, {options.pages} pages"] = (options.streams, options.pages)
        for name in counts if turn % 2 == 0 else reversed(counts):
            row = _round(load, *counts[name])
            print(name, row, flush=True)
            found.setdefault(name, []).append(row)
    command = f"python -m benchmarks.streams --rounds {options.rounds} --seconds {options.seconds:g}"
    command += f" --streams {options.streams} --pages {options.pages}"
    save(
        "streams",
        command=command,
        machine=machine,
        rows=rows_of(found),
        notes=NOTES,
        rounds=rounds_of(found),
        of_rounds=options.rounds,
    )
    return 0


def _round(load: Load, streams: int, pages: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    beside = partial(_beside, streams, pages, told) if streams else nullcontext
    row: dict[str, Any] = dict(measure(load, beside=beside))
    events = told.get("events", {})
    asked = {"asked_a_second": told.get("asked_a_second", 0.0), "slowest_s": told.get("slowest_s")}
    return {**row, "events": sum(events.values()), "gaps": events.get("gap", 0) + told.get("ended", 0), **asked}


@contextmanager
def _beside(streams: int, pages: int, told: dict[str, Any], made: Service) -> Iterator[None]:
    """So many streams and pages are open meanwhile; ``told`` says afterwards what they were told."""
    experiment_id = json.loads(made.tuner("show", "@last", "-o", "json"))["id"]
    with ExitStack() as stack:
        paths = ["/api/v1/events", f"/api/v1/experiments/{experiment_id}/events"]
        stack.enter_context(_program(made, told, "readers", str(streams - pages), *paths))
        if pages:
            stack.enter_context(_program(made, told, "pages", str(pages), experiment_id))
        yield


@contextmanager
def _program(made: Service, told: dict[str, Any], name: str, *arguments: str) -> Iterator[None]:
    """One that prints a line when it is ready, and what it saw when its standard input ends."""
    address = made.address()
    command = [sys.executable, "-m", f"benchmarks.streams.{name}", address["url"], address["token_file"], *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the {name} did not begin")
        yield
        process.stdin.close()
        told |= json.loads(process.stdout.readline())


def rows_of(found: dict[str, list[dict[str, Any]]]) -> list[Row]:
    """What streams cost is the ratio of each round, whose rows follow one another."""
    rows = []
    for name, rounds in found.items():
        us = median_of(rounds, "service_us")
        row: Row = {"what": name, "reports/s": median_of(rounds, "a_second"), "service µs": round(us, 2)}
        if name != ALONE:
            pairs = zip(rounds, found[ALONE], strict=True)
            more = [100 * (one["service_us"] / alone["service_us"] - 1) for one, alone in pairs]
            row |= {"more %": spread(more), "target %": TARGET, "target is": verdict(round(median(more), 1), TARGET)}
        else:
            row |= {"more %": None, "target %": None, "target is": None}
        row |= {"median ms to disk": median_of(rounds, "delay_median_ms"), "p99 ms": median_of(rounds, "delay_p99_ms")}
        events = median([one["events"] * one["a_second"] / one["reports"] for one in rounds])
        row |= {"events/s": round(events), "gaps": max(one["gaps"] for one in rounds)}
        slowest = [one["slowest_s"] for one in rounds if one["slowest_s"] is not None]
        row |= {"asked/s": round(median_of(rounds, "asked_a_second")), "slowest s": max(slowest, default=None)}
        rows.append(row)
    return rows


if __name__ == "__main__":
    sys.exit(main())
