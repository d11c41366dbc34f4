"""Kills of a worker, a member trial, or the server of shared data, round after round: ``python -m
tests.shared_data_campaign --rounds 1000``.

Each round begins a server and four trials, kills one of them at a random point, and lets the rest run to the end of
two epochs. Every trial that was not killed must have had every sample once in each epoch, with the bytes it would
have had alone; one that was killed is started again from its position and must have had the rest. Afterwards
nothing is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.forked import ENDED_TIMEOUT_S, Child
from trials.data.sharing.producer_main import SharedOrder, read_spec, serve
from trials.data.sharing.shared_data_loader import SharedDataLoader, Sharing

LENGTH = 210
EPOCHS = 2
ORDER = {"shuffle": True, "block_size": 16, "group_seed": 3}
SIZES = (7, 13, 32, 5)
ROUND_TIMEOUT_S = 120.0
KILL_WITHIN_S = 0.25  # of the start
VICTIMS = ("worker", "trial", "server")


class Slow:
    """Each sample is its index, and takes a moment."""

    fingerprint = "slow numbers"

    def __init__(self, length: int, moment_s: float = 0.0005) -> None:
        self._length, self._moment_s = length, moment_s

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[int, float]:
        until = time.perf_counter() + self._moment_s
        while time.perf_counter() < until:
            pass
        return index, random.random()  # as keyed as the order


# ── one trial ───────────────────────────────────────────────────────────────────────────────────
def trial(number: int, socket: str, state: dict[str, Any] | None) -> None:
    """Prints every batch with the position after it."""
    sharing = Sharing(order=SharedOrder(**ORDER), locate=lambda: Path(socket))
    options: dict[str, Any] = {"sharing": sharing, "seed": number, "collate_fn": list, "timeout": 10.0}
    with SharedDataLoader(Slow(LENGTH), SIZES[number], **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        while loader.epoch < EPOCHS:
            for batch in loader:
                sys.stdout.write(json.dumps({"batch": batch, "state": loader.state_dict()}) + "\n")
                sys.stdout.flush()
        sys.stdout.write(json.dumps(loader.stats()) + "\n")


def alone(number: int) -> list[Any]:
    """The samples that the trial is to have, in order."""
    options: dict[str, Any] = {"sharing": Sharing(order=SharedOrder(**ORDER)), "seed": number, "collate_fn": list}
    with SharedDataLoader(Slow(LENGTH, 0.0), SIZES[number], **options) as loader:
        return [list(sample) for _ in range(EPOCHS) for batch in loader for sample in batch]


# ── one round ───────────────────────────────────────────────────────────────────────────────────
class Round:
    def __init__(self, folder: Path, chosen: random.Random) -> None:
        self._socket = str(folder / "data.sock")
        self._folder, self._chosen = folder, chosen
        self._server = self._start_server()
        self._trials = [self._start_trial(number, None) for number in range(len(SIZES))]
        self._got: list[list[Any]] = [[] for _ in SIZES]

    def run(self, victim: str, expected: list[list[Any]]) -> str:
        """What is wrong; empty when nothing is."""
        try:
            wrong = self._run(victim)
            return wrong or next((f"trial {n} had others" for n, got in enumerate(self._got) if got != expected[n]), "")
        finally:
            for child in (self._server, *self._trials):
                child.end()

    def _run(self, victim: str) -> str:
        time.sleep(self._chosen.random() * KILL_WITHIN_S)
        killed = self._kill(victim)
        for number, child in enumerate(self._trials):
            if not child.wait(ROUND_TIMEOUT_S):
                return f"trial {number} hangs"
            self._take(number)
            if child.code != 0 and number != killed:
                return f"trial {number} ended with {child.code}: {self._text(number)[-2000:]}"
        if killed is not None and not self._resume(killed):
            return f"trial {killed} hangs after it was resumed"
        if not self._server.wait(ENDED_TIMEOUT_S):
            return "the server does not end"
        left = self._server.left() + [pid for child in self._trials for pid in child.left()]
        return f"processes {left} are left" if left else ""

    def _kill(self, victim: str) -> int | None:
        """The number of the trial that was killed."""
        pids = [self._server.pid]
        number = self._chosen.randrange(len(SIZES))
        if victim == "trial":
            pids = [self._trials[number].pid]
        elif victim == "worker":
            pids = _children(self._server.pid)
        with suppress(ProcessLookupError, IndexError):
            os.kill(self._chosen.choice(pids), signal.SIGKILL)
        return number if victim == "trial" else None

    def _resume(self, number: int) -> bool:
        lines = self._lines(number)
        if not lines or "state" in lines[-1]:  # else it had come to its end
            self._trials[number] = self._start_trial(number, lines[-1]["state"] if lines else None)
        ended = self._trials[number].wait(ROUND_TIMEOUT_S)
        self._take(number)
        return ended

    def _take(self, number: int) -> None:
        self._got[number] = [sample for line in self._lines(number) for sample in line.get("batch", [])]

    def _lines(self, number: int) -> list[dict[str, Any]]:
        """Of all lives of the trial; a line that its death cut off was not delivered."""
        return [json.loads(line) for line in self._text(number).splitlines(keepends=True) if line.endswith("}\n")]

    def _text(self, number: int) -> str:
        path = self._folder / f"{number}.out"
        return path.read_text() if path.exists() else ""

    # ── processes ─────────────────────────────────────────────────────────────────────────────
    def _start_server(self) -> Child:
        reading, writing = os.pipe()
        dataset = {"factory": "tests.shared_data_campaign:Slow", "arguments": {"length": LENGTH}}
        options = {"workers": 2, "memory_bytes": 4 << 20, "idle_s": 0.3}
        spec = read_spec(json.dumps({"socket": self._socket, "dataset": dataset, "order": ORDER, "options": options}))
        child = Child(lambda: serve(spec, ready=writing), self._folder / "server.out")
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            if told.read() != b"ready\n":
                raise RuntimeError((self._folder / "server.out").read_text())
        return child

    def _start_trial(self, number: int, state: dict[str, Any] | None) -> Child:
        path = self._folder / f"{number}.out"
        if state is not None:
            whole = path.read_bytes()
            path.write_bytes(whole[: whole.rfind(b"\n") + 1])
        return Child(lambda: trial(number, self._socket, state), path)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def run(rounds: int, seed: int) -> list[str]:
    """What went wrong, with the round that shows it."""
    expected = [alone(number) for number in range(len(SIZES))]
    for samples in expected:
        for epoch in range(EPOCHS):
            assert sorted(index for index, _ in samples[epoch * LENGTH : (epoch + 1) * LENGTH]) == list(range(LENGTH))
    memory = set(Path("/dev/shm").iterdir())
    wrong = []
    for number in range(rounds):
        chosen = random.Random(f"{seed}/{number}")
        victim = VICTIMS[number % len(VICTIMS)]
        with tempfile.TemporaryDirectory(prefix="tuner-campaign-") as folder:
            found = Round(Path(folder), chosen).run(victim, expected)
        if found:
            wrong.append(f"round {number} of seed {seed}, {victim} killed: {found}")
            print(wrong[-1], flush=True)
    wrong += [f"{path} is left" for path in set(Path("/dev/shm").iterdir()) - memory if "tuner" in path.name]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.shared_data_campaign", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.monotonic()
    wrong = run(options.rounds, options.seed)
    print(f"{options.rounds} rounds, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
