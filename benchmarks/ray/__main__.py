"""Ray Tune's own example on one Ray cluster: as it is, with reused actors, and as a script of ours on Ray's nodes.

    python -m benchmarks.ray --rounds 3

The cluster is on this machine, two nodes of two cores each. Everybody is measured in every round, one after the other,
and finds the whole cluster free. Needs Ray: make with-ray.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks import peers
from benchmarks.dispatch.loads import Load, figures
from benchmarks.machine import describe, load
from benchmarks.ray import ours
from benchmarks.ray.cluster import RayCluster, ray_cluster
from benchmarks.resume.__main__ import PEERS as RESUME_PEERS
from benchmarks.resume.__main__ import events, search
from benchmarks.resume.__main__ import figures as figures_of_resume
from benchmarks.writing import Row, median_of, save

PEERS = Path(__file__).resolve().parent / "peers"
NODES, CORES = 2, 2
OURS, EACH, REUSED = "ours, a process a trial", "Ray Tune, an actor a trial", "Ray Tune, reused actors"
NO_ANSWER = "–"
NOTES = (
    (
        "The example is the function of Ray Tune's page of key concepts: twenty reports of a sum, `a` and `b` drawn at "
        "random. Ours is the same function with `trials.report`; every report is stored durably. Each trial is a "
        "process of its own in the first two rows. `steady` leaves out the first quarter of the trials, by their own "
        "clocks; `first trial` is from the command (the whole script of Ray Tune; `tuner run`, which finds a service "
        "whose bridge has reached the cluster, and no node) to the first line of the first trial."
    ),
    (
        "One actor: from the call that makes it to its first answer, in a driver that is connected. The first trial of "
        "ours beside it is from `tuner start`: the node (placement group, actor, agent) and the trial are started."
    ),
    (
        "Driver killed: with SIGKILL when half of the trials have ended, ours with its bridge; then `tuner resume`, "
        "and `Tuner.restore`. Columns as in benchmarks.resume. Trials of ours went on while the driver was away and "
        "their first one after it was there before the command, so `first trial` would be no answer to it: –."
    ),
)


def main() -> int:
    options = _options()
    if find_spec("ray") is None:
        print("needs Ray: make with-ray", file=sys.stderr)
        return 0
    machine = describe()
    rounds: list[Row] = []
    with ray_cluster(nodes=NODES, cores=CORES) as cluster:
        for _ in range(options.rounds):
            rounds.append({"load": load(), **_round(cluster, options)})
            print(rounds[-1], flush=True)
    command = f"python -m benchmarks.ray --rounds {options.rounds} --trials {options.trials}"
    command += f" --actor-trials {options.actor_trials} --resume-trials {options.resume_trials}"
    save(
        options.name,
        command=command,
        machine=machine,
        rows=rows_of(rounds),
        notes=NOTES,
        rounds=rounds,
        of_rounds=options.rounds,
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ray", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each row, interleaved (default: 3)")
    parser.add_argument("--trials", type=int, default=400, help="of ours and of reused actors (default: 400)")
    parser.add_argument("--actor-trials", type=int, default=40, help="of Ray Tune, an actor each (default: 40)")
    parser.add_argument("--resume-trials", type=int, default=24)
    parser.add_argument("--name", default="ray", help="of the files in results/ (default: ray)")
    return parser.parse_args()


def _round(cluster: RayCluster, options: argparse.Namespace) -> Row:
    with tempfile.TemporaryDirectory(prefix="tuner-ray-bench-") as name:
        folder = Path(name)
        actor = peers.run(PEERS / "actor.py", cluster.address, "5")
        if "error" in actor:
            raise RuntimeError(f"no actor was started: {actor['error']}")
        found: Row = {"actor_s": median(actor["seconds"]), "example": {}}
        cluster.wait_until_free(NODES * CORES)
        found["first_trial_s"] = ours.first_trial_s(cluster, cores=CORES, times=folder / "first")
        for what, trials in ((OURS, options.trials), (EACH, options.actor_trials), (REUSED, options.trials)):
            cluster.wait_until_free(NODES * CORES)
            found["example"][what] = _example(what, cluster, folder, trials)
        found["resume"] = {}
        for what in (OURS, EACH):
            cluster.wait_until_free(NODES * CORES)
            found["resume"][what] = _resume(what, cluster, options.resume_trials)
    return found


def _example(what: str, cluster: RayCluster, folder: Path, trials: int) -> Row:
    times = folder / "".join(letter for letter in what if letter.isalnum())
    if what == OURS:
        watched = ours.example(cluster, trials=trials, cores=CORES, nodes=NODES, times=times)
    else:
        state = folder / f"{times.name}-state"
        state.mkdir()
        words = ["reused"] if what == REUSED else []
        command = [sys.executable, str(PEERS / "example.py"), str(state), str(times), str(trials), cluster.address]
        watched = peers.timed([*command, *words], folder=folder)
    return figures(times, Load(name="example", trials=trials), watched)


def _resume(what: str, cluster: RayCluster, trials: int) -> Row:
    """Undisturbed and killed, as ``benchmarks.resume`` compares them."""
    if what == OURS:
        untouched = ours.resumed(cluster, trials=trials, cores=CORES, nodes=NODES, killed=False)["before"]
        cluster.wait_until_free(NODES * CORES)
        killed = ours.resumed(cluster, trials=trials, cores=CORES, nodes=NODES, killed=True)
        return figures_of_resume(untouched, killed)
    with ExitStack() as stack:
        logs, commands = [], []
        for _ in range(2):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tuner-ray-bench-")))
            (folder / "state").mkdir()
            logs.append(folder / "log")
            script = str(RESUME_PEERS / "ray_resume.py")
            commands.append(
                [sys.executable, script, str(folder / "state"), str(logs[-1]), str(trials), cluster.address]
            )
        peers.timed(commands[0], folder=logs[0].parent, prints_result=False)
        cluster.wait_until_free(NODES * CORES)
        killed = search(commands[1], commands[1], logs[1], trials=trials)
        return figures_of_resume(events(logs[0]), killed)


def rows_of(rounds: Sequence[Row]) -> list[Row]:
    rows: list[Row] = []
    steady = {
        what: median_of([one["example"][what] for one in rounds], "steady_a_second") for what in rounds[0]["example"]
    }
    for what in rounds[0]["example"]:
        found = [one["example"][what] for one in rounds]
        errors = [one["error"] for one in found if "error" in one]
        if errors:
            rows.append({"what": what, "left out": errors[0]})
            continue
        row: Row = {"what": what, "trials": found[0]["trials"], "steady trials/s": round(steady[what], 2)}
        row |= {"ours is ×": round(steady[OURS] / steady[what], 1)}
        row |= {"first trial, s": round(median_of(found, "first_s"), 2)}
        row |= {"trials/s from the command": round(found[0]["trials"] / median_of(found, "whole_s"), 2)}
        rows.append(row)
    actor, first = median_of(rounds, "actor_s"), median_of(rounds, "first_trial_s")
    rows.append({"one actor's start, s": round(actor, 2), "first trial of ours, s": round(first, 2)})
    rows[-1]["first trial / actor"] = round(first / actor, 2)
    for what in rounds[0]["resume"]:
        found = [one["resume"][what] for one in rounds]
        medians: Row = {name: round(median_of(found, name), 2) for name in found[0]}
        rows.append({"driver killed": what, **medians} | ({"first trial, s": NO_ANSWER} if what == OURS else {}))
    return rows


if __name__ == "__main__":
    sys.exit(main())
