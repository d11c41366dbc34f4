"""A search whose every process is killed half-way, and what is lost, repeated or different when it is resumed.

    python -m benchmarks.resume --peer ray=/tmp/ray/bin/python

Each search runs twice with the same seed: once undisturbed, once with `kill -9` of everything when half of its trials
have ended, and the command to go on after that.
"""

from __future__ import annotations

import argparse
import ast
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.service import Service, service, wait_for
from benchmarks.writing import Row, median_of, save

PEERS = Path(__file__).resolve().parent / "peers"
MARK = "BENCHMARK_RESUME_MARK"  # in the environment of everything that a search starts
STEPS, STEP_S = 10, 0.05
LIMIT_S = 300.0
MOMENT_S = 0.2  # from the last line of a trial's code until whoever runs it can have stored that it ended
SCRIPT = """
import os, time, trials
LOG = {log!r}
def note(*words):
    with open(LOG, "a") as file:
        file.write(" ".join(map(repr, words)) + f" {{time.time()!r}}\\n")
        file.flush()
        os.fsync(file.fileno())
with trials.init() as trial:
    x = trial.parameters["x"]
    begin = trial.restore(default={{"step": -1}})["step"] + 1
    note("began", x)
    for step in range(begin, {steps}):
        time.sleep({step_s})
        trial.report(step=step, loss=x)
        note("step", x, step)
        trial.save_checkpoint({{"step": step}}, step=step)
    note("ended", x)
    trial.report_final(loss=x)
"""
NOTES = (
    (
        f"`ran again`: points whose trial had come to its end {MOMENT_S:g} s before the kill, and of which steps were "
        "done once more. "
        "`different points`: how many of all that ended, beside the budget. `same points`: the share of the points "
        f"that ended in the undisturbed search which the killed one tried, too. `steps repeated`: of {STEPS} steps a "
        f"trial, {STEP_S:g} s each. "
        "`first trial`: from the command that resumes to the first line of a trial."
    ),
    (
        "All draw at random from one seed, four at a time. Ours is resumed by `tuner resume`, Ray by `Tuner.restore`, "
        "Optuna by running the same script again on the same database. Ours and Ray's trials save a checkpoint at "
        "every step; Optuna leaves that to the script, and a trial of its under way begins anew."
    ),
    (
        "Optuna keeps what ended and not its sampler. Started again with its seed it draws the same points once more: "
        "nobody has to, and without a seed nothing is drawn again, but nothing can be compared either. `sampler kept`: "
        "pickled after each trial, as its page on resuming a study says, by code of the script. Ray saves the state of "
        "a search every ten seconds, or 19 times as long as saving takes, so with trials of minutes it repeats at most "
        "what ended within that; here all began after the one save at the start. `saved often`: once a second and with "
        "each checkpoint of a trial (`TUNE_GLOBAL_CHECKPOINT_S=1`, `num_to_keep=1`)."
    ),
)
PEERS_BESIDE = {  # what is shown: the script of it, the words that it is given
    "Optuna, the same seed again": ("optuna", ("seed",)),
    "Optuna, sampler kept": ("optuna", ("sampler",)),
    "Ray Tune": ("ray", ("reused",)),
    "Ray Tune, saved often": ("ray", ("reused", "often")),
}


@dataclass(frozen=True, kw_only=True)
class Event:
    what: str
    x: float
    step: int
    at: float


def events(log: Path) -> list[Event]:
    found = []
    for line in log.read_text(encoding="utf-8").splitlines():
        words = [ast.literal_eval(word) for word in line.split()]
        found.append(Event(what=words[0], x=words[1], step=words[2] if len(words) == 4 else -1, at=words[-1]))
    return found


def kill_all(mark: str, home: str = "") -> None:
    """SIGKILL to every process that has the mark in its environment or ``home`` in its command line, till none is left.

    What a service starts has an environment of its own.
    """
    deadline = time.monotonic() + LIMIT_S
    while marked := _marked(mark, home):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(marked)} processes do not end")
        for pid in marked:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def _marked(mark: str, home: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_marked = f"{MARK}={mark}".encode() in (entry / "environ").read_bytes()
            is_marked |= bool(home) and home.encode() in (entry / "cmdline").read_bytes()
            if is_marked and _runs(entry) and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _runs(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"


def figures(undisturbed: list[Event], killed: Row) -> Row:
    """``killed``: as ``search`` gives it."""
    before, after = killed["before"], killed["after"]
    done = {event.x for event in before if event.what == "ended" and event.at <= killed["killed_at"] - MOMENT_S}
    whole = [*before, *after]
    planned = {event.x for event in undisturbed if event.what == "ended"}
    tried = {event.x for event in whole if event.what == "began"}
    steps = [(event.x, event.step) for event in whole if event.what == "step"]
    ended = [event.x for event in whole if event.what == "ended"]
    return {
        "ran again": len({event.x for event in after if event.what == "step"} & done),
        "different points": len(set(ended)),
        "same points, %": round(100 * len(planned & tried) / len(planned)),
        "steps repeated": len(steps) - len(set(steps)),
        "first trial, s": min(event.at for event in after) - killed["resumed_at"],
    }


def search(begin: Sequence[str], go_on: Sequence[str], log: Path, *, trials: int, home: Service | None = None) -> Row:
    """Kill ``begin`` half-way and run ``go_on`` to its end; {"before", "killed_at", "resumed_at", "after"}."""
    log.touch()
    mark = uuid.uuid4().hex
    marked = {**(os.environ if home is None else home.environment), MARK: mark}
    place = "" if home is None else str(home.home)
    try:
        with (log.parent / "said").open("ab") as said:
            subprocess.Popen(begin, env=marked, stdout=said, stderr=said, cwd=log.parent)
            wait_for(lambda: _ended(log) >= trials // 2, "half of the trials to end", patience_s=LIMIT_S, poll_s=0.01)
            time.sleep(MOMENT_S)
            killed_at = time.time()
            kill_all(mark, place)
            before, resumed_at = events(log), time.time()
            subprocess.run(go_on, env=marked, stdout=said, stderr=said, cwd=log.parent, timeout=LIMIT_S, check=False)
    finally:
        kill_all(mark, place)
    after = events(log)[len(before) :]
    return {"before": before, "killed_at": killed_at, "resumed_at": resumed_at, "after": after}


def _ended(log: Path) -> int:
    return sum(line.startswith("'ended'") for line in log.read_text(encoding="utf-8").splitlines())


def ours(trials: int) -> Row:
    undisturbed = _ours(trials, killed=False)["before"]
    killed = _ours(trials, killed=True)
    return figures(undisturbed, killed)


def _ours(trials: int, *, killed: bool) -> Row:
    experiment: dict[str, Any] = {
        "name": "resume",
        "seed": 1,
        "objective": {"metric": "loss"},
        "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
        "tuner": {"name": "random"},
        "budget": {"trials": trials, "parallel": 4},
        "trial": {"code": "code", "command": "python script.py"},
    }
    with service() as made:
        log, tuner = made.folder / "log", str(Path(sys.executable).with_name("tuner"))
        file = made.write(experiment, SCRIPT.format(log=str(log), steps=STEPS, step_s=STEP_S))
        if not killed:
            made.tuner("run", str(file))
            return {"before": events(log)}
        begin, go_on = [tuner, "run", str(file)], [tuner, "resume", "@last", "--wait"]
        return search(begin, go_on, log, trials=trials, home=made)


def peer(name: str, words: Sequence[str], python: str, trials: int) -> Row:
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tuner-resume-"))) for _ in range(2)]
        logs, commands = [], []
        for folder in folders:
            (folder / "state").mkdir()
            logs.append(folder / "log")
            script = str(PEERS / f"{name}_resume.py")
            commands.append([python, script, str(folder / "state"), str(folder / "log"), str(trials), *words])
        try:
            _undisturbed(commands[0])
            killed = search(commands[1], commands[1], logs[1], trials=trials)
        except subprocess.CalledProcessError as error:
            return {"error": " ".join(error.stderr.strip().splitlines()[-1:])[:300]}
        except (TimeoutError, subprocess.TimeoutExpired):
            return {"error": f"not done within {LIMIT_S:g} s"}
        return figures(events(logs[0]), killed)


def _undisturbed(command: Sequence[str]) -> None:
    """To its end; nothing that it started is left."""
    mark = uuid.uuid4().hex
    try:
        environment = {**os.environ, MARK: mark}
        subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    finally:
        kill_all(mark)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.resume", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each row, interleaved (default: 5)")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--peer", action="append", default=[], metavar="ray=PYTHON", help="an interpreter that has Ray")
    options = parser.parse_args()
    pythons = {"optuna": sys.executable, **dict(named.split("=", 1) for named in options.peer)}
    machine = describe()
    measures: dict[str, Callable[[], Row]] = {"ours": lambda: ours(options.trials)}
    for what, (name, words) in PEERS_BESIDE.items():
        if name in pythons:
            measures[what] = partial(peer, name, words, pythons[name], options.trials)
    found: dict[str, list[Row]] = {name: [] for name in measures}
    for _ in range(options.rounds):
        for name, measure in measures.items():
            found[name].append(measure())
            print(name, found[name][-1], flush=True)
    rows = [{"what": name, **_medians(rounds)} for name, rounds in found.items()]
    command = f"python -m benchmarks.resume --rounds {options.rounds} --trials {options.trials}"
    command += "".join(f" --peer {name}=PYTHON" for name in pythons if name != "optuna")
    save("resume", command=command, machine=machine, rows=rows, notes=NOTES, rounds=[found])
    return 0


def _medians(rounds: list[Row]) -> Row:
    errors = [one["error"] for one in rounds if "error" in one]
    if errors:
        return {"left out": errors[0]}
    return {name: round(median_of(rounds, name), 2) for name in rounds[0]}


if __name__ == "__main__":
    sys.exit(main())
