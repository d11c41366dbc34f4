"""A deterministic search of trials of two nodes, killed at each phase of a launch and while they train.

Two agents with homes of their own; gloo over both, and on each a producer that the trial's loader shares. Whatever is
killed, and when: no part runs alone for longer than the grace, and the weights (every loss) are those of a search that
nobody disturbed.

    python -m tests.gangs_campaign --rounds 5 --seed 1
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.acceptance.harness import Home
from tests.joined_agents import JoinedAgent, joined, served, service_without_own_agent
from tests.process_table import processes
from tests.rounds import campaign_parser
from tests.waiting import wait_until
from trials.files import read_json

NAMES = ("near", "far")
# Which takes a node a second or two: once, and not for each of the first trials.
IMPORTS = ["torch.distributed.checkpoint", "torch.distributed.tensor", "trials.checkpoints.shards"]
GRACE_S = 5.0
ALONE_S = GRACE_S + 20.0  # of a busy machine, until the last process of an attempt has ended after the first
PATIENCE_S = 180.0
STEPS = 9
TRAIN = """
import os, pathlib, time

import torch
import torch.distributed as dist

import trials

def batches():
    if not pathlib.Path("sets.py").exists():
        yield from ([step * (rank + 1), rank] for step in range(STEPS))
        return
    import trials.data
    options = {"arguments": {"length": 2 * SAMPLES * STEPS}, "sharing": {"block_size": 16, "memory_bytes": 16 << 20}}
    with trials.data.shared("sets:Numbers", SAMPLES, collate_fn=list, **options) as loader:
        yield from loader

pathlib.Path("pid").write_text(str(os.getpid()))
dist.init_process_group("gloo")
rank = dist.get_rank()
with trials.init() as trial:
    torch.manual_seed(trial.seed)
    weight = torch.randn(4, 8)
    state = {"weight": weight, "step": torch.tensor(-1)}
    trial.restore(into=state)
    for step, samples in enumerate(batches()):
        if step <= int(state["step"]):
            continue
        batch = torch.full((8,), (sum(samples) + 1) * trial.parameters["x"] / 100)
        gradient = torch.outer(weight @ batch, batch)
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
        time.sleep(0.2)
        trial.report(step=step, loss=float(weight.double().square().sum()))
        if step % 3 == 2:
            state["step"].fill_(step)
            trial.save_checkpoint(state, step=step, sharded=True)
    trial.report_final(loss=float(weight.double().square().sum()))
dist.destroy_process_group()
""".replace("STEPS", str(STEPS)).replace("SAMPLES", "2")
SETS = """
class Numbers:
    def __init__(self, length):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return index
"""
PHASES = ("preparing", "ready", "running", "training")
DATA = ("data near", "data far")
VICTIMS = ("service", "agent near", "agent far", "part near", "part far", *DATA)
SEARCHES_FOR_A_CASE = 4  # at most, on average: a case that never comes about is a fault


class Gang:
    """The search, its two agents and the service, any of which may be killed."""

    def __init__(self, home: Home, agents: dict[str, JoinedAgent], stack: ExitStack) -> None:
        self.home, self.agents, self._stack = home, agents, stack
        self.alone_s = 0.0  # the longest that a part ran on after the other had been killed

    def begin(self, *, trials: int, shares: bool) -> None:
        """``shares``: their data come from the producers of their nodes, which can be killed then."""
        if shares:
            (self.home.folder / "code").mkdir(exist_ok=True)
            (self.home.folder / "code" / "sets.py").write_text(SETS)
        trial = {"nodes": 2, "stop_grace": f"{GRACE_S:g}s", "preload": IMPORTS}
        self.home.begin(TRAIN, trial=trial, budget={"trials": trials, "parallel": 1}, deterministic=True)

    def wait_for_both_nodes(self) -> None:
        """One that was killed while a search ended may not be back yet; asking for more than there are is refused."""
        with self.home.service() as service:
            wait_until(
                lambda: sum(node["state"] == "ready" for node in service.agents()) == len(NAMES), timeout_s=PATIENCE_S
            )

    def is_running(self) -> bool:
        return bool(self.home.show()["status"] == "running")

    def completed(self) -> None:
        wait_until(lambda: not self.is_running(), timeout_s=PATIENCE_S)
        self.home.completed()

    # ── what is seen ────────────────────────────────────────────────────────────────────────────
    def attempt(self) -> dict[str, Any]:
        """The one that lives, if any does: its nodes, and the step it has reported."""
        found = self.home.show()["running"]
        if not found:
            return {}
        shown = self.home.trial(found[0]["number"])
        nodes = shown["attempt_details"][-1]["nodes"]
        return {"number": found[0]["number"], "attempt": found[0]["attempt"], "nodes": nodes, "step": found[0]["step"]}

    def phase(self) -> str:
        """Of the attempt that lives; "" between two attempts."""
        attempt = self.attempt()
        states = {node["state"] for node in attempt.get("nodes", ())}
        if "preparing" in states or "ready" in states:
            return "preparing" if "preparing" in states else "ready"
        if states != {"running"}:
            return ""
        return "training" if attempt["step"] is not None else "running"

    def trial_processes(self, name: str) -> list[int]:
        """Of all attempts, by what their scripts have written down."""
        alive = {pid for pid, _ in processes()}
        written = [path.read_text() for path in Path(self.agents[name].home).glob("attempts/*/*/*/work/pid")]
        return [int(text) for text in written if text and int(text) in alive]

    def producers(self, name: str) -> list[int]:
        found = [read_json(str(path)) for path in Path(self.agents[name].home).glob("agent/data/*/server.json")]
        alive = {pid for pid, words in processes() if "trials.data.sharing.producer_main" in words}
        return [server["pid"] for server in found if server is not None and server["pid"] in alive]

    def rows(self) -> list[dict[str, Any]]:
        """What each trial came to, without what is said of its loading, in which times stand."""
        rows = []
        for trial in self.home.trials():
            metrics: dict[int | None, dict[str, float]] = {}
            for report in trial["metrics"]:
                values = {name: value for name, value in report["values"].items() if not name.startswith("data/")}
                if values:
                    known = metrics.setdefault(report["step"], values)
                    assert known == values, f"trial {trial['number']} reported step {report['step']} twice"
            kept = ("number", "status", "reason", "parameters", "final")
            rows.append({name: trial[name] for name in kept} | {"metrics": metrics})
        return rows

    # ── what is done ────────────────────────────────────────────────────────────────────────────
    @contextmanager
    def held(self, name: str) -> Iterator[Callable[[], None]]:
        """This agent answers nothing until what is given is called: a launch goes no further than its preparing."""
        pid = self.agents[name].pid
        os.kill(pid, signal.SIGSTOP)

        def go_on() -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        try:
            yield go_on
        finally:
            go_on()

    def kill(self, victim: str) -> bool:
        """False where there was nothing to kill."""
        what, _, name = victim.partition(" ")
        if what == "service":
            self.home.kill_all("service")
            (self.home.home / "service.json").unlink(missing_ok=True)
            self._stack.enter_context(served(self.home))
        elif what == "agent":
            self.agents[name].kill()
            self.agents[name].start()
        elif what == "data":
            return kill_all(self.producers(name))
        else:
            is_done = kill_all(self.trial_processes(name))
            if is_done:
                self._wait_for_the_other(name)
            return is_done
        return True

    def _wait_for_the_other(self, killed: str) -> None:
        (other,) = set(NAMES) - {killed}
        pids, began = set(self.trial_processes(other)), time.monotonic()
        wait_until(lambda: not pids & set(self.trial_processes(other)), timeout_s=ALONE_S)
        self.alone_s = max(self.alone_s, time.monotonic() - began)


def kill_all(pids: Sequence[int]) -> bool:
    """False where there was none."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


@contextmanager
def a_gang(folder: Path) -> Iterator[Gang]:
    """A service at a port that it has again after a kill, and two agents that have joined it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = Home(folder=folder, environment={"TUNER_PORT": str(port)})
    try:
        with ExitStack() as stack:
            stack.enter_context(service_without_own_agent(home))
            agents = {name: stack.enter_context(joined(home, name)) for name in NAMES}
            yield Gang(home, agents, stack)
    finally:
        home.end()


def disturb(gang: Gang, todo: list[tuple[str, str]]) -> Counter[str]:
    """While the search runs: each of ``todo``, a phase and whom to kill in it, in turn. What was done is removed."""
    done = Counter[str]()
    while todo and gang.is_running():
        phase, victim = todo[0]
        if gang.phase() != phase:
            time.sleep(0.01)
            continue
        if gang.kill(victim):
            done[f"{victim} while {phase}"] += 1
            todo.pop(0)
        elif phase in {"preparing", "ready"}:
            todo.pop(0)  # no process of a trial runs then, nor need a producer
    return done


def disturb_the_preparing(gang: Gang, todo: list[tuple[str, str]], **search: Any) -> Counter[str]:
    """Likewise of a search that begins now, the first in the preparing, which lasts until it was done."""
    gang.wait_for_both_nodes()
    with gang.held(NAMES[-1]) as go_on:
        gang.begin(**search)
        wait_until(lambda: gang.phase() == "preparing", timeout_s=PATIENCE_S)
        _, victim = todo.pop(0)
        is_done = gang.kill(victim)
        go_on()
        return Counter({f"{victim} while preparing": 1} if is_done else {}) + disturb(gang, todo)


def run(*, rounds: int, trials: int, cases: Sequence[tuple[str, str]], seed: int) -> tuple[Counter[str], float]:
    """What was killed how often, and the longest that a part was alone. AssertionError for other rows."""
    rng, done = random.Random(seed), Counter[str]()
    folder = Path(tempfile.mkdtemp(prefix="tuner-gangs-"))
    shares = any(victim in DATA for _, victim in cases)
    with a_gang(folder) as gang:
        gang.wait_for_both_nodes()
        gang.begin(trials=trials, shares=shares)
        gang.completed()
        undisturbed = gang.rows()
        for number in range(1, rounds + 1):
            todo, searches = [*cases], 0
            rng.shuffle(todo)
            while todo:
                assert searches < SEARCHES_FOR_A_CASE * len(cases), f"round {number}: {todo} do not come about"
                searches += 1
                if todo[0][0] == "preparing":  # over in a moment, which a busy machine does not let us see
                    told = disturb_the_preparing(gang, todo, trials=trials, shares=shares)
                else:
                    gang.wait_for_both_nodes()
                    gang.begin(trials=trials, shares=shares)
                    told = disturb(gang, todo)
                gang.completed()
                assert gang.rows() == undisturbed, f"round {number}: other rows after {dict(told)}"
                done += told
                attempts = sum(trial["attempts"] for trial in gang.home.trials())
                print(f"round {number}: the same rows, {attempts} attempts, {dict(told)}", flush=True)
        alone_s = gang.alone_s
    shutil.rmtree(folder)
    return done, alone_s


def main() -> int:
    parser = campaign_parser("python -m tests.gangs_campaign", __doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=VICTIMS, metavar="VICTIM")
    options = parser.parse_args()
    cases = [(phase, victim) for phase in PHASES for victim in options.victims]
    print(f"load before: {os.getloadavg()[0]:.1f}", flush=True)
    done, alone_s = run(rounds=options.rounds, trials=options.trials, cases=cases, seed=options.seed)
    print(f"{sum(done.values())} kills: {dict(sorted(done.items()))}; load after: {os.getloadavg()[0]:.1f}")
    print(f"the same rows always; a part ran on alone for {alone_s:.1f} s at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
