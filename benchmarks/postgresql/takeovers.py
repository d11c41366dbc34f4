"""How soon a standby has launched a trial after the active service was killed, or stopped, and what becomes of trials.

Two trials run all the while; others end after a fifth of a second, so that there is always one to be launched. The
figure is from the signal to the first line of the code of a trial that nobody had decided before it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import describe
from benchmarks.postgresql import __main__ as reports
from benchmarks.service import Service, service, wait_for
from benchmarks.writing import Row, save, verdict
from tests.postgresql import INSTALL, Server, a_server, programs

HOW = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
TARGETS = {"killed": 2.0, "stopped": 5.0}
LONG = 2  # trials that run to the end of the measurement
SCRIPT = """
import os, time
import trials
with trials.init() as trial:
    with open({log!r}, "a") as file:
        file.write(f"{{trial.number}} {{time.time()!r}}\\n")
    step = 0
    while trial.number <= {long} and not os.path.exists({gate!r}) or step == 0:
        trial.report(step=step, loss=trial.parameters["x"])
        step += 1
        time.sleep(0.2)
    trial.report_final(loss=trial.parameters["x"])
"""
NOTES = (
    (
        "One server on this machine, `fsync` on; the active service and two standbys share a home folder. A stopped "
        "service is continued once it has been followed, and ends by itself. After all takeovers the two trials that "
        "ran all the while are in their first attempts, in the same processes, and no number was launched twice."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.postgresql.takeovers", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=10, help="of each kind, in turn (default: 10)")
    options = parser.parse_args()
    if programs() is None:
        parser.error(f"there is no PostgreSQL server here: {INSTALL}")
    machine, server = describe(), a_server(*reports.SETTINGS)
    try:
        found = _measured(server, options.rounds)
    finally:
        server.end()
    rows: list[Row] = [
        {
            "service": how,
            "times": len(seconds),
            "to the first trial of the standby, s": round(median(seconds), 3),
            "at most, s": round(max(seconds), 3),
            "target s": TARGETS[how],
            "target is": verdict(median(seconds), str(TARGETS[how])),
        }
        for how, seconds in found.items()
    ]
    command = f"python -m benchmarks.postgresql.takeovers --rounds {options.rounds}"
    save("postgresql-takeover", command=command, machine=machine, rows=rows, notes=NOTES)
    return 0


def _measured(server: Server, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {how: [] for how in HOW}
    with service(TUNER_DB=server.filled_database()) as made, _standbys(made) as standbys:
        gate = made.folder / "gate"
        names = {"log": str(made.folder / "starts"), "gate": str(gate), "long": LONG}
        made.start(_experiment(), SCRIPT.format(**names))
        wait_for(lambda: len(_starts(made)) > 2 * LONG, "the first trials")
        before = _long_ones(made)
        for round_ in range(2 * rounds):
            how = list(HOW)[round_ % 2]
            standbys.fill()
            found[how].append(_taken_over(made, how))
            print(f"{how}: {found[how][-1]:.2f} s", flush=True)
        assert _long_ones(made) == before, "a trial that ran was disturbed"
        numbers = [number for number, _ in _starts(made)]
        assert len(numbers) == len(set(numbers)), "a trial was launched twice"
        gate.touch()
    return found


def _experiment() -> dict[str, Any]:
    return {
        "name": "takeover",
        "seed": 1,
        "objective": {"metric": "loss"},
        "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
        "tuner": {"name": "random"},
        "budget": {"trials": 100_000, "parallel": LONG + 2},
        "trial": {"code": "code", "command": "python script.py", "stop_grace": 1},
    }


def _taken_over(made: Service, how: str) -> float:
    """The seconds to the first trial of the following one."""
    active = int(made.address()["pid"])
    os.kill(active, HOW[how])
    begun = time.time()
    # What had been decided before the signal could still be launched by the agent alone.
    decided = _newest(made)
    later: list[float] = []

    def is_launched() -> bool:
        later[:] = [at for number, at in _starts(made) if number > decided]
        return bool(later)

    wait_for(is_launched, "a trial of the standby")
    if how == "stopped":
        os.kill(active, signal.SIGCONT)
    wait_for(lambda: not _lives(active), "the service before to end")
    return min(later) - begun


def _newest(made: Service) -> int:
    """Of the trials that a launch was ordered for; later ones may have been suggested ahead."""
    with made.reading() as connection:
        return int(connection.execute("SELECT max(number) FROM attempts WHERE attempt > ?", (0,)).fetchone()[0])


def _starts(made: Service) -> list[tuple[int, float]]:
    try:
        lines = (made.folder / "starts").read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [(int(line.split()[0]), float(line.split()[1])) for line in lines if line.endswith("\n")]


def _long_ones(made: Service) -> list[tuple[int, int, str]]:
    """The attempts and processes of the trials that run all the while."""
    with made.reading() as connection:
        query = "SELECT number, attempt, process FROM attempts WHERE number <= ? ORDER BY number, attempt"
        return [tuple(row) for row in connection.execute(query, (LONG,)).fetchall()]


def _lives(pid: int) -> bool:
    """Not the dead that nobody has waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


class _Waiting:
    """Two services that stand by, whoever was taken away."""

    def __init__(self, made: Service) -> None:
        self._made, self._processes = made, list[subprocess.Popen[bytes]]()

    def fill(self) -> None:
        """Returns when two wait."""
        while self._roles().count("standby") < 2:
            command = [sys.executable, "-m", "tuner_service.cli.main", "serve", "--standby"]
            log = (self._made.folder / f"standby-{len(self._processes)}.log").open("wb")
            self._processes.append(subprocess.Popen(command, env=self._made.environment, stdout=log, stderr=log))
            count = self._roles().count("standby")
            wait_for(lambda count=count: self._roles().count("standby") > count, "a standby to wait")  # type: ignore[misc]  # mypy knows no such lambda

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(30)

    def _roles(self) -> list[str]:
        return [one["role"] for one in json.loads(self._made.tuner("ps", "--services", "-o", "json"))]


@contextmanager
def _standbys(made: Service) -> Iterator[_Waiting]:
    waiting = _Waiting(made)
    try:
        yield waiting
    finally:
        waiting.close()


if __name__ == "__main__":
    sys.exit(main())
