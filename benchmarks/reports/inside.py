"""The service's own time per report, without processes and sockets: from a frame's text to rows on disk and an answer.

What it leaves out: the frame's way through the socket, and the assessor, which has a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trials.wire.attempt import AttemptKey
from trials.wire.encoding import decode, encode
from trials.wire.lines import metric_line
from trials.wire.messages import Launch, Reports
from trials.wire.records import ProcessRecord
from tuner_service.clock import SystemClock
from tuner_service.dispatcher.commands import (
    AgentConnected,
    AttemptStarted,
    Command,
    ExperimentCreated,
    QueueAnswered,
    ReportsReceived,
    WorkerReady,
)
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.effects import Deliver, Effect, StartWorker, Tell
from tuner_service.dispatcher.items import Queue, Suggested, SuggestionRequested, Taken
from tuner_service.domain.experiment import AlgorithmSpec, Budget, ExperimentSpec, Objective, TrialTemplate
from tuner_service.service.reports import parse_lines
from tuner_service.storage.engine import open_store
from tuner_service.workers.messages import Told, command_to_wire
from tuner_service.workers.protocol import encode_frames

BATCH_LINES = 2_000
PARTS = ("decode", "parse", "decide", "save", "tell the assessor")


@dataclass
class Bench:
    """A dispatcher and a store as the runner uses them, with four trials running."""

    folder: Path
    spent_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    launched: dict[int, Launch] = field(default_factory=dict)
    waiting: list[Deliver] = field(default_factory=list)
    sequence: dict[int, int] = field(default_factory=dict)
    generation: int = 0

    def __post_init__(self) -> None:
        self.clock = SystemClock()
        self.store = open_store(self.folder / "tuner.db", self.clock)
        self.dispatcher = Dispatcher(lineage=self.store.lineage, incarnation="bench")

    def begin(self) -> None:
        spec = ExperimentSpec(
            name="inside",
            seed=1,
            objective=Objective(metric="loss"),
            search_space={"x": {"type": "float", "low": 0, "high": 1}},
            tuner=AlgorithmSpec(name="random"),
            assessor=AlgorithmSpec(name="median_stop"),
            budget=Budget(trials=100, parallel=4),
            trial=TrialTemplate(command=("python", "script.py")),
        )
        at = self.clock.now()
        self.step(AgentConnected(at=at, agent_id="a", cpus=4, memory_bytes=1 << 30, attempts=()))
        self.step(ExperimentCreated(at=at, experiment_id="bench", spec=spec))
        self.step(WorkerReady(at=at, experiment_id="bench", generation=self.generation))
        while len(self.launched) < 4:
            self.answer()
        for launch in self.launched.values():
            process = ProcessRecord(pid=1, start_time=1, boot_id="b")
            self.step(AttemptStarted(at=at, agent_id="a", key=launch.key, nonce=launch.nonce, process=process))
            self.sequence[launch.key.number] = 0

    def step(self, *commands: Command) -> None:
        effects: list[Effect] = []
        for command in commands:
            effects += self.dispatcher.handle(command)
        self.store.commit(self.dispatcher.take_changes())
        self._note(effects)

    def _note(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartWorker():
                    self.generation = effect.generation
                case Deliver():
                    self.waiting.append(effect)
                case Tell(message=Launch() as launch):
                    self.launched[launch.key.number] = launch

    def answer(self) -> None:
        """What the worker says to everything it was told."""
        told, self.waiting = self.waiting, []
        for queue in Queue:
            answers = tuple(
                Suggested(line=order.item.line, parameters={"x": 0.5})
                if queue is Queue.TUNER and isinstance(order.item, SuggestionRequested)
                else Taken(line=order.item.line)
                for order in told
                if order.queue is queue
            )
            if answers:
                at, generation = self.clock.now(), self.generation
                self.step(
                    QueueAnswered(at=at, experiment_id="bench", generation=generation, queue=queue, answers=answers)
                )

    def round(self, lines: int) -> None:
        """Each trial reports ``lines`` times; all in one step, as when the service is busy."""
        frames = [self._frame(launch.key, launch.nonce, lines) for launch in self.launched.values()]
        commands = [self._received(frame) for frame in frames]
        effects: list[Effect] = []
        with self._timed("decide"):
            for command in commands:
                effects += self.dispatcher.handle(command)
            changes = self.dispatcher.take_changes()
        with self._timed("save"):
            self.store.commit(changes)
        self._note(effects)
        with self._timed("tell the assessor"):
            encode_frames([command_to_wire(Told(queue=order.queue, item=order.item)) for order in self.waiting])
        with self._timed("decide"):
            self.answer()

    def _received(self, frame: str) -> ReportsReceived:
        with self._timed("decode"):
            message = decode(frame)
        assert isinstance(message, Reports)
        with self._timed("parse"):
            records = parse_lines(message.lines)
        return ReportsReceived(
            at=self.clock.now(),
            agent_id="a",
            key=message.key,
            nonce=message.nonce,
            first_sequence=message.first_sequence,
            records=records,
        )

    def _frame(self, key: AttemptKey, nonce: str, lines: int) -> str:
        first = self.sequence[key.number] + 1
        self.sequence[key.number] += lines
        now = time.time()
        spool = (
            metric_line(step=step, values={"loss": 1 / step, "accuracy": 0.5}, at=now, final=False).decode()
            for step in range(first, first + lines)
        )
        return encode(Reports(key=key, nonce=nonce, first_sequence=first, lines=tuple(spool)))

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begun = time.process_time()
        try:
            yield
        finally:
            self.spent_s[part] += time.process_time() - begun


def measure(folder: Path, *, rounds: int = 20, lines: int = BATCH_LINES) -> dict[str, float]:
    """Processor time per report, in microseconds, of each part and in all."""
    bench = Bench(folder)
    try:
        bench.begin()
        bench.round(lines)
        bench.spent_s = dict.fromkeys(PARTS, 0.0)
        for _ in range(rounds):
            bench.round(lines)
    finally:
        bench.store.close()
    count = rounds * lines * 4
    parts = {part: 1e6 * seconds / count for part, seconds in bench.spent_s.items()}
    return {**parts, "in all": sum(parts.values())}
