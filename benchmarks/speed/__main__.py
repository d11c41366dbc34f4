"""What each trick for the last microseconds is worth: the same work with and without it, one after the other.

Every row of docs/speed.md is one of these. ``python -m benchmarks.speed [--only NAME…] [--rounds N]`` prints medians.
Where processors do the work the time is theirs, so that whoever else uses the machine matters little.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.machine import describe
from benchmarks.speed import processes, readings
from benchmarks.writing import Row, save

Work = Callable[[], float]  # does it once; the microseconds it took


@dataclass(frozen=True, slots=True, kw_only=True)
class Trick:
    """``measure`` yields the work without the trick, and with it."""

    name: str
    what: str
    rounds: int
    measure: Callable[[], Iterator[tuple[Work, Work]]]


NOTES = (
    (
        "`memory` is two tricks together: memory that is kept, and large pages. What `memory`, `direct` and `populate` "
        "copy is memory that was written to before, and not all zeros."
    ),
)
TRICKS: tuple[Trick, ...] = (
    Trick(name="collapse", what="a fork of a process with torch", rounds=60, measure=processes.collapsed_memory),
    Trick(name="freeze", what="a forked child that collects its garbage", rounds=60, measure=processes.frozen_garbage),
    Trick(name="group", what="a process enters its control group", rounds=40, measure=processes.entered_ahead),
    Trick(name="signals", what="a forked child resets its handlers", rounds=200, measure=processes.plain_signals),
    Trick(name="pathlib", what="a supervisor imports its modules", rounds=15, measure=processes.without_pathlib),
    Trick(name="isolated", what="a supervisor's interpreter starts", rounds=15, measure=processes.isolated_start),
    Trick(name="codes", what="a script of 200 lines is compiled", rounds=100, measure=readings.compiled_once),
    Trick(name="seed", what="torch's generator is seeded", rounds=200, measure=readings.seeded_without_devices),
    Trick(name="random", what="the state of random's generator is read", rounds=300, measure=readings.python_generator),
    Trick(name="numpy", what="the state of NumPy's generator is read", rounds=300, measure=readings.numpy_generator),
    Trick(name="same", what="two states of torch's generator are compared", rounds=300, measure=readings.torch_states),
    Trick(
        name="copy", what="the row of a trial is copied with three changes", rounds=200, measure=readings.copied_rows
    ),
    Trick(name="select", what="a row is read by its key", rounds=200, measure=readings.prepared_select),
    Trick(name="update", what="a row is updated", rounds=200, measure=readings.prepared_update),
    Trick(name="read", what="a file of one block is read", rounds=300, measure=readings.read_by_descriptor),
    Trick(name="live", what="an attempt is put among the living", rounds=200, measure=readings.linked),
    Trick(name="spool", what="1,000 lines of a spool are taken", rounds=30, measure=readings.spool_in_one_go),
    Trick(name="memory", what="a state of 64 MB is copied", rounds=10, measure=readings.kept_memory),
    Trick(name="direct", what="a checkpoint of 64 MB is written", rounds=8, measure=readings.past_the_page_cache),
    Trick(name="populate", what="64 MB are first written to", rounds=10, measure=readings.populated),
    Trick(name="imports", what="the longest collection, 60,000 records", rounds=7, measure=readings.frozen_imports),
    Trick(name="threshold", what="60,000 records are read", rounds=7, measure=readings.collected_seldom),
    Trick(name="malloc", what="a photograph is made into a sample", rounds=100, measure=readings.kept_freed_memory),
    Trick(name="answer", what="the trials of a search are read over the API", rounds=60, measure=readings.cached_read),
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[trick.name for trick in TRICKS], metavar="NAME")
    parser.add_argument("--rounds", type=float, default=1.0, help="times as many repetitions")
    parser.add_argument("--name", default="speed", help="of the files in results/ (default: speed)")
    options = parser.parse_args(arguments)
    machine, rows = describe(), list[Row]()
    for trick in TRICKS:
        if options.only and trick.name not in options.only:
            continue
        rows.append(row_of(trick, max(3, int(trick.rounds * options.rounds))))
        print(rows[-1], file=sys.stderr)
    command = " ".join(["python -m benchmarks.speed", *arguments])
    save(options.name, command=command, machine=machine, rows=rows, notes=NOTES)
    return 0


def row_of(trick: Trick, rounds: int) -> Row:
    for without, with_trick in trick.measure():
        for work in (without, with_trick):
            work()  # once for nothing: what is imported and cached then, is so in every round
        pairs = [(without(), with_trick()) for _ in range(rounds)]
        plain, quick = (median(times) for times in zip(*pairs, strict=True))
        return {
            "trick": trick.name,
            "of": trick.what,
            "without, µs": plain,
            "with, µs": quick,
            "saves, µs": plain - quick,
        }
    return {"trick": trick.name, "of": trick.what}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
