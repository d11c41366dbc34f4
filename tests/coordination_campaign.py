"""``examples/coordination``, killed at every message between the coordinator and its two learners: the same weights.

    python -m tests.coordination_campaign --iterations 12

A proxy stands between them. When a message comes by that was not seen before, it kills the coordinator, the learner, or
both, before or after it passes the message on, and starts them again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import runpy
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.fork_ends import end_with
from trials.learner.coordination.frames import connect, listen, record_path, socket_name

EXAMPLE = Path(__file__).parents[1] / "examples/coordination"
NAMES = ("left", "right")
VICTIMS = ("learner", "coordinator", "both")
OURS = ("trials.learner", "trials.data.own_batches", "trials.data.core.collating")
SILENCE_LIMIT_S = 120.0  # without a message that was not seen before


class Life:
    """One of the three programs: a fork of this process, which has imported what they need."""

    def __init__(self, script: str, arguments: Sequence[str], folder: Path) -> None:
        self.script, self.arguments, self.folder = script, arguments, folder
        self.pid = 0
        self.is_done = False
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.script}.log"

    def begin(self) -> None:
        self.pid = os.fork()
        if not self.pid:
            end_with(self._run)

    def _run(self) -> int:
        os.closerange(3, 1 << 12)  # connections of the proxy would not end where it closes them
        os.chdir(self.folder)
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = [self.script, *self.arguments]
        runpy.run_path(str(EXAMPLE / self.script), run_name="__main__")
        return 0

    def kill(self) -> None:
        if self.pid and not self.is_done:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.begin()

    def look(self) -> None:
        """AssertionError where it has ended by itself, and not well."""
        if self.is_done:
            return
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) == 0, self.log.read_text()[-4000:]
            self.is_done = True

    def end(self) -> None:
        if not self.is_done and self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Between:
    """Passes messages on between the coordinator and one learner; each is shown to ``seen`` before and after."""

    def __init__(self, name: str, outside: Path, inside: Path, seen: Callable[[str, str, bytes, bool], bool]) -> None:
        self.name, self.outside, self.inside, self.seen = name, outside, inside, seen
        self.listening = listen(outside, name)
        self.ends: list[socket.socket] = []  # the coordinator's and the learner's
        self.rests = [b"", b""]

    def descriptors(self) -> list[int]:
        return [s.fileno() for s in (self.listening, *self.ends)]

    def attend(self, ready: int) -> None:
        if ready == self.listening.fileno():
            self.drop()
            came, _ = self.listening.accept()
            learner = connect(self.inside, self.name)
            if learner is None:
                came.close()
                return
            learner.setblocking(True)
            self.ends, self.rests = [came, learner], [b"", b""]
            return
        side = [end.fileno() for end in self.ends].index(ready)
        try:
            data = self.ends[side].recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.drop()
            return
        self.rests[side] += data
        for frame in self._frames(side):
            sender = ("coordinator", "learner")[side]
            if not self.seen(self.name, sender, frame[4:], True):
                self.drop()
                return
            with suppress(OSError):
                self.ends[1 - side].sendall(frame)
            if not self.seen(self.name, sender, frame[4:], False):
                self.drop()
                return

    def _frames(self, side: int) -> Iterator[bytes]:
        while len(self.rests[side]) >= 4:
            (length,) = struct.unpack_from(">I", self.rests[side])
            if len(self.rests[side]) < 4 + length:
                return
            frame, self.rests[side] = self.rests[side][: 4 + length], self.rests[side][4 + length :]
            yield frame

    def drop(self) -> None:
        for end in self.ends:
            end.close()
        self.ends = []


class Coordination:
    """The example in a folder. ``kills``: who dies at a message that was not seen before, and whether before it."""

    def __init__(self, folder: Path, *, iterations: int, kills: Iterator[tuple[str, bool]] | None) -> None:
        self.folder, self.kills = folder, kills
        self.inside, self.outside = folder / "inside", folder / "outside"
        for place in (self.inside, self.outside):
            place.mkdir()
        place = ["--place", str(self.inside)]
        self.learners = {name: Life("learner.py", [*place, "--name", name], folder / name) for name in NAMES}
        arguments = ["--place", str(self.outside), "--iterations", str(iterations)]
        self.coordinator = Life("coordinate.py", arguments, folder / "coordinator")
        self.planned: dict[tuple[str, ...], tuple[str, bool]] = {}  # by message: who dies, and whether before it
        self.killed: list[str] = []
        self.weights: dict[str, str] = {}
        self.seen_at = 0.0
        self.journal = ""

    def run(self) -> None:
        """``weights`` are those of both learners when this returns."""
        lives = [self.coordinator, *self.learners.values()]
        between = [Between(name, self.outside, self.inside, self.seen) for name in NAMES]
        self.seen_at = time.monotonic()
        for life in lives:
            life.begin()
        try:
            while not all(life.is_done for life in lives):
                assert time.monotonic() - self.seen_at < SILENCE_LIMIT_S, self.logs()
                self._round(between)
                for life in lives:
                    life.look()
                self._show_records()
        finally:
            for life in lives:
                life.end()
        logs = {name: life.log.read_text() for name, life in self.learners.items()}
        found = {name: re.findall(r"^weights (\w+)$", log, re.MULTILINE) for name, log in logs.items()}
        assert all(weights and len(set(weights)) == 1 for weights in found.values()), self.logs()
        self.weights = {name: weights[0] for name, weights in found.items()}
        self.journal = (self.outside / "journal").read_text()

    def told(self) -> dict[str, list[int]]:
        """The iterations that the journal has, by learner, in order."""
        lines = [json.loads(line) for line in self.journal.splitlines()]
        learnt = [line for line in lines if line["kind"] == "learnt"]
        return {n: [line["info"]["number"] for line in learnt if line["learner"] == n] for n in NAMES}

    def logs(self) -> str:
        return "\n".join(life.log.read_text()[-2000:] for life in (self.coordinator, *self.learners.values()))

    def seen(self, name: str, sender: str, frame: bytes, is_before: bool) -> bool:
        """False where somebody was killed at the message."""
        key = (name, sender, *self._about(json.loads(frame)))
        if key not in self.planned:
            self.planned[key] = ("", False) if self.kills is None else next(self.kills)
            self.seen_at = time.monotonic()
        victim, dies_before = self.planned[key]
        if not victim or dies_before != is_before:
            return True
        self.planned[key] = ("", False)
        self.killed.append(victim)
        if victim in {"learner", "both"}:
            self.learners[name].kill()
        if victim in {"coordinator", "both"}:
            self.coordinator.kill()
        return False

    def _about(self, message: dict[str, Any]) -> Iterator[str]:
        """What a message is, whoever says it again."""
        answer = message.get("ok", message)
        yield str(message.get("task", "error" if "error" in message else "ok"))
        yield str(message.get("after", message.get("cur_learner_iter", "")))
        yield str((answer.get("demand") or {}).get("cur_learner_iter", ""))
        yield str([info["number"] for info in answer.get("learnt", ())][-1:])

    def _round(self, between: Sequence[Between]) -> None:
        poller = select.poll()
        owners = {descriptor: one for one in between for descriptor in one.descriptors()}
        for descriptor in owners:
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(50):
            if descriptor in owners[descriptor].descriptors():
                owners[descriptor].attend(descriptor)

    def _show_records(self) -> None:
        """The coordinator looks for them beside the socket it knows."""
        for name, life in self.learners.items():
            shown = record_path(self.outside, name)
            if life.is_done and not shown.exists():
                draft = shown.with_suffix(".new")
                shutil.copy(record_path(self.inside, name), draft)
                draft.replace(shown)
                (self.outside / socket_name(name)).unlink()  # nobody listens for one that is gone


def run_once(*, iterations: int, kills: Iterator[tuple[str, bool]] | None = None) -> Coordination:
    """As it is when it has ended. The folder is kept where something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="coordination-"))
    found = Coordination(folder, iterations=iterations, kills=kills)
    found.run()
    for name, told in found.told().items():
        assert told == list(range(1, iterations + 1)), (name, told)
    shutil.rmtree(folder)
    return found


def every_message(turn: int = 0) -> Iterator[tuple[str, bool]]:
    """Who dies, one message after the other."""
    ways = list(itertools.product(VICTIMS, (True, False)))
    return itertools.cycle([*ways[turn:], *ways[:turn]])


def warm() -> None:
    """What the programs import is imported once, before they are forked."""
    for name in ("torch.utils.data", "torch._dynamo", "torch._inductor.config", *OURS):
        import_module(name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills coordinator and learners at every message.")
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=6, help="each begins with another victim")
    options = parser.parse_args()
    warm()
    expected = run_once(iterations=options.iterations).weights
    failed = 0
    for turn in range(options.rounds):
        found = run_once(iterations=options.iterations, kills=every_message(turn))
        counts = {victim: found.killed.count(victim) for victim in VICTIMS}
        failed += found.weights != expected
        said = "the same weights" if found.weights == expected else f"{found.weights}, not {expected}"
        print(f"round {turn + 1}: killed {counts}: {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
