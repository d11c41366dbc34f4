"""``examples/whole``, both searches, while something of it is killed at every report: the weights must be the same.

    python -m tests.acceptance.whole_campaign --rounds 3 --trials 3 --epochs 3

Each trial is held after each of its reports until something was killed: the service, the agent, the trial (its parent
process, or one of its ranks), the node's producer of samples, or all of it. Then it, or the attempt that takes its
place, may go on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.acceptance.harness import ROOT, Home, descendants
from tests.process_table import processes
from trials.learner import WeightsReader

KILLED = ("service", "trial", "agent", "rank", "producer", "everything")
SEARCH_TIMEOUT_S = 600.0
HOOK = '''
import time


class Held(Hook):
    """Waits after each report until whoever kills has done so."""

    priority = 90
    when = When(every_steps=EVERY)
    on_every_rank = False

    def after_iteration(self, learner: Learner) -> None:
        place = Path(os.environ["GATES"]) / f"{learner.trial.experiment_id}-{learner.trial.number}-{learner.step}"
        place.with_suffix(".there").touch()
        while not place.with_suffix(".open").exists():
            time.sleep(0.01)


'''


class Whole:
    """A copy of the example in a folder, with its two searches in one home. ``kills``: what dies, report by report.

    ``images``: where they are written already. ``resources``: what each trial asks for.
    """

    def __init__(
        self,
        folder: Path,
        *,
        trials: int,
        epochs: int,
        kills: Iterator[str] | None = None,
        images: Path | None = None,
        resources: Mapping[str, Any] | None = None,
    ) -> None:
        self.home = Home(folder=folder)
        self.killed: list[str] = []
        self._code, self._gates = folder / "whole", folder / "gates"
        self._trials, self._kills, self._images, self._resources = trials, kills, images, resources or {}
        self._environment = {"EPOCHS": str(epochs), "GATES": str(self._gates)}
        self._gates.mkdir(parents=True)
        shutil.copytree(ROOT / "examples/whole", self._code, ignore=shutil.ignore_patterns("images", "__pycache__"))
        if kills is not None:
            self._hold()
        self.home.environment["PYTHONPATH"] = str(ROOT)

    def run(self) -> dict[str, str]:
        """The digest of the weights that each trial of both searches left."""
        if self._images is None:
            write = [sys.executable, str(self._code / "images.py"), str(self._code / "images")]
            os.spawnv(os.P_WAIT, write[0], write)
        else:
            shutil.copytree(self._images, self._code / "images")
        found: dict[str, str] = {}
        for name in ("first", "second"):
            self._search(name)
            for trial in self.home.trials():
                assert trial["status"] == "succeeded", (name, trial["number"], trial["status"], trial.get("message"))
                found[f"{name}/{trial['number']}"] = self._weights(f"{name}-{trial['number']}", trial["number"])
        return found

    def end(self) -> None:
        self.home.end()

    # ── one search ──────────────────────────────────────────────────────────────────────────────
    def _search(self, name: str) -> None:
        body = yaml.safe_load((self._code / f"{name}.yaml").read_text())
        body["budget"] |= {"trials": self._trials}
        body["trial"] |= {"environment": self._environment, "resources": dict(self._resources)}
        file = self._code / f"{name}.json"
        file.write_text(json.dumps(body))
        self.home.id = self.home.tuner("start", str(file)).strip().splitlines()[-1]
        deadline = time.monotonic() + SEARCH_TIMEOUT_S
        while (shown := self.home.show())["status"] != "completed":
            assert shown["status"] == "running", (shown["status"], shown["reason"], shown["message"], shown["detail"])
            assert time.monotonic() < deadline, f"the search did not end: {shown}"
            for place in sorted(self._gates.glob("*.there")):
                if not place.with_suffix(".open").exists():
                    self._kill_at(place)
            time.sleep(0.05)

    def _weights(self, name: str, number: int) -> str:
        folder = self.home.folder / f"left-{name}"
        self.home.tuner("get", f"{self.home.id}/{number}", str(folder))
        return (folder / "weights.sha256").read_text().strip()

    # ── what is killed ──────────────────────────────────────────────────────────────────────────
    def _hold(self) -> None:
        script = self._code / "train.py"
        text = script.read_text()
        held = text.replace("SaveCheckpoint(every_steps=EVERY),", "SaveCheckpoint(every_steps=EVERY), Held(),")
        held = held.replace("\ndef main()", f"{HOOK}\ndef main()", 1)
        assert held.count("Held") == 2
        script.write_text(held)

    def _kill_at(self, place: Path) -> None:
        assert self._kills is not None
        target = next(self._kills)
        pids = self._pids(target)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if pids:
            self.killed.append(target)
        if target in {"service", "everything"}:
            self.home.tuner("resume", self.home.id)
        place.with_suffix(".open").touch()
        self._look_at_published()

    def _pids(self, target: str) -> Sequence[int]:
        mine = [pid for parent in self.home.parents() for pid in descendants(parent)]
        of_agents = [pid for agent in self.home.pids("agent") for pid in descendants(agent)]
        words = dict(processes())
        match target:
            case "rank":
                return [pid for pid in mine if "train.py" in words.get(pid, []) and "trials.tasks" not in words[pid]][
                    -1:
                ]
            case "producer":
                return [p for p in (*mine, *of_agents) if "trials.data.sharing.producer_main" in words.get(p, [])]
            case "everything":
                return [*self.home.all_pids(), *mine, *of_agents]
            case _:
                return self.home.pids(target)

    def _look_at_published(self) -> None:
        """Whoever follows a trial never sees torn weights. WeightsError otherwise."""
        for folder in self.home.home.glob("attempts/*/*/*/work/published"):
            weights = WeightsReader(str(folder)).poll()
            assert weights is None or len(weights) == 6


def run_once(
    *,
    trials: int,
    epochs: int,
    kills: Iterator[str] | None = None,
    images: Path | None = None,
    resources: Mapping[str, Any] | None = None,
) -> tuple[dict[str, str], list[str]]:
    """The digests of the weights, and what was killed. The folder is kept where something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="tuner-whole-"))
    whole = Whole(folder, trials=trials, epochs=epochs, kills=kills, images=images, resources=resources)
    try:
        weights = whole.run()
    finally:
        whole.end()
    shutil.rmtree(folder)
    return weights, whole.killed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=3, help="of each of the two searches")
    parser.add_argument("--gpus", help="of each trial: 1, or a part of one (default: none)")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    sizes: dict[str, Any] = {"trials": options.trials, "epochs": options.epochs}
    if options.gpus is not None:
        sizes["resources"] = {"gpus": float(options.gpus)}
    expected, _ = run_once(**sizes)
    failed = 0
    for number in range(options.rounds):
        turned = (*KILLED[number % len(KILLED) :], *KILLED[: number % len(KILLED)])
        weights, killed = run_once(**sizes, kills=itertools.cycle(turned))
        differs = sorted(name for name in expected if weights.get(name) != expected[name])
        failed += bool(differs)
        counts = {target: killed.count(target) for target in KILLED}
        print(f"round {number + 1}: killed {counts}: {differs or 'the same weights'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
