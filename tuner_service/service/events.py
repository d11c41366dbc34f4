"""Streams of events: what each commit changed, told after it to everybody who listens.

    runner  ── changes, sequence ──►  pending     merged: each row once, as it is now
    a thread of its own, at most PATCHES_PER_S times a second:  pending ──► bytes, one for all streams of a topic
    event loop                        ──► the outbox of each stream, which is bounded

Nothing waits for a reader: whoever does not keep up is told so, and dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tuner_service.dispatcher.changes import TOUCHED_LIMIT, Changes, Touched
from tuner_service.domain.errors import UnavailableError
from tuner_service.domain.experiment import Experiment, ExperimentId
from tuner_service.domain.trial import Parameters, Trial
from tuner_service.ports import Clock, Queries
from tuner_service.service.beginnings import Beginnings
from tuner_service.service.patches import (
    ALL,
    EXPERIMENTS_LIMIT,
    GapReason,
    Patch,
    TrialRow,
    cluster_event,
    event_id,
    gap_event,
    heartbeat_event,
    of_topic,
    patch_event,
    sequence_in,
)

MAX_STREAMS = 400  # at once; one more is refused. Fewer than connections, so that pages can always ask
PATCHES_PER_S = 4.0  # to one stream; what changes meanwhile is merged
EVENTS_PER_S = 400.0  # to all streams together: where there are very many, each gets fewer and larger patches
OUTBOX_LIMIT = 16  # events that wait for a reader, beside what the socket holds; then it is dropped
HEARTBEAT_S = 15.0

ALWAYS = 2**63  # in place of the sequence of an event that no reader has yet

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class Stream:
    """One reader. Everything but its making happens on its event loop.

    ``may_go_on`` is asked with each heartbeat, and when somebody was signed out. ``write`` sends an event at once where
    it can, and says whether it did; it is asked only while whoever calls ``next`` waits there.
    """

    topic: ExperimentId
    may_go_on: Callable[[], bool]
    after: int = 0  # the reader has everything up to this commit; set before anything is taken from here
    has_ended: bool = False
    write: Callable[[bytes], bool] = lambda _: False
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _outbox: deque[tuple[int, bytes]] = field(default_factory=deque)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _has_sent_all: bool = False

    def put(self, event: bytes, *, sequence: int) -> bool:
        """Whether there was room for it. It is of no use to a reader that has everything up to ``sequence``."""
        if self.has_ended or sequence <= self.after:
            return True
        if self._has_sent_all and not self._outbox and self.write(event):
            return True
        if len(self._outbox) >= OUTBOX_LIMIT:
            return False
        self._outbox.append((sequence, event))
        self._changed.set()
        return True

    def end(self, last: bytes | None = None) -> None:
        """No event comes after ``last``, in whose place nothing else is waiting."""
        if self.has_ended:
            return
        self.has_ended = True
        if last is not None:
            self._outbox.clear()
            self._outbox.append((ALWAYS, last))
        self._changed.set()

    async def next(self) -> bytes | None:
        """What there is to send now, in one piece; None at the end."""
        while True:
            events = b"".join(event for sequence, event in self._outbox if sequence > self.after)
            self._outbox.clear()
            if events:
                return events
            if self.has_ended:
                return None
            self._changed.clear()
            self._has_sent_all = True
            try:
                await self._changed.wait()
            finally:
                self._has_sent_all = False


@dataclass(slots=True, kw_only=True)
class _Pending:
    """What was committed since the last patch, as far as somebody listens."""

    sequence: int
    touched: Touched = field(default_factory=Touched)
    experiments: dict[ExperimentId, Experiment] = field(default_factory=dict)
    trials: dict[ExperimentId, dict[int, Trial]] = field(default_factory=dict)
    reported: dict[ExperimentId, dict[int, float]] = field(default_factory=dict)  # when the last time, by trial
    cluster: bool = False

    def add(self, changes: Changes, sequence: int, topics: dict[ExperimentId, set[Stream]]) -> None:
        self.sequence = sequence
        everything = ALL in topics
        for experiment in changes.experiments.values():
            if everything or experiment.id in topics:
                self.experiments[experiment.id] = experiment
        for (experiment_id, number), trial in changes.trials.items():
            if experiment_id in topics:
                self.trials.setdefault(experiment_id, {})[number] = trial
        if topics.keys() - {ALL}:
            for row in changes.metrics:
                if row.experiment_id in topics:
                    self.reported.setdefault(row.experiment_id, {})[row.number] = row.at
        self.touched.add(changes.touched_besides_trials())
        for experiment_id in changes.deleted_experiments:
            self.experiments.pop(experiment_id, None)
            self.trials.pop(experiment_id, None)
            self.reported.pop(experiment_id, None)


class EventHub:
    """All streams of a service, made before its first commit.

    ``committed`` and ``cluster_changed`` may be called from any thread and never wait.
    """

    def __init__(self, *, queries: Queries, lineage: str, clock: Clock) -> None:
        self._lineage, self._clock = lineage, clock
        self._beginnings = Beginnings(queries, lineage=lineage, clock=clock)
        self._told = self._newest = queries.sequence()  # streams have everything up to the first, rows up to the other
        self._lock = threading.Condition()
        self._topics: dict[ExperimentId, set[Stream]] = {}  # none without a stream
        self._count = 0
        self._pending: _Pending | None = None
        self._known: dict[ExperimentId, dict[int, Parameters]] = {}  # of running trials, that every stream has
        self._thread: threading.Thread | None = None
        self._closing = False

    @property
    def count(self) -> int:
        """How many streams there are."""
        return self._count

    @property
    def newest(self) -> int:
        """The newest commit. Whatever is read from now on sees it; whoever made it learns of it after this."""
        return self._newest

    def sequence_in(self, event_id: str) -> int | None:
        """The commit up to which whoever took that event has everything; None where it is none of this database."""
        sequence = sequence_in(event_id, self._lineage)
        return sequence if sequence is not None and sequence <= self._newest else None

    def event_id(self, sequence: int) -> str:
        return event_id(sequence, self._lineage)

    # ── from the runner ─────────────────────────────────────────────────────────────────────────
    def committed(self, changes: Changes, sequence: int) -> None:
        """To be called after each commit, in their order."""
        with self._lock:
            self._newest = sequence
            if not self._topics:
                self._told = sequence
                return
            if self._pending is None:
                self._pending = _Pending(sequence=sequence)
                self._lock.notify()
            self._pending.add(changes, sequence, self._topics)

    def cluster_changed(self) -> None:
        """An agent came or went, or told of other devices."""
        with self._lock:
            if ALL not in self._topics:
                return
            if self._pending is None:
                self._pending = _Pending(sequence=self._told)
                self._lock.notify()
            self._pending.cluster = True

    # ── readers ─────────────────────────────────────────────────────────────────────────────────
    def open(self, topic: ExperimentId, may_go_on: Callable[[], bool]) -> Stream:
        """A stream that gets every event from now on. UnavailableError where there are too many."""
        stream = Stream(topic=topic, may_go_on=may_go_on)
        with self._lock:
            if self._closing:
                raise UnavailableError("the service is shutting down; try again when it is up")
            if self._count >= MAX_STREAMS:
                raise UnavailableError(
                    f"{MAX_STREAMS} streams of events are open, the most that are served; close some, or try again"
                )
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="events", daemon=True)
                thread.start()  # where none can be had, whoever asks next tries again
                self._thread = thread
            self._topics.setdefault(topic, set()).add(stream)
            self._count += 1
            self._lock.notify()
        return stream

    async def begin(self, stream: Stream, last_event_id: str) -> bytes:
        """The first event of ``stream``, which was opened before: what its reader missed since that id.

        NotFoundError where its experiment was never there, as far as the reader knows.
        """
        event, sequence = await self._beginnings.of(stream.topic, last_event_id)
        if sequence is None:
            stream.end()
        else:
            stream.after = sequence
        return event

    def close_stream(self, stream: Stream) -> None:
        """Its reader has gone. Safe to repeat."""
        with self._lock:
            streams = self._topics.get(stream.topic, set())
            if stream not in streams:
                return
            streams.discard(stream)
            self._count -= 1
            if not streams:
                del self._topics[stream.topic]
                self._known.pop(stream.topic, None)
            if not self._topics and self._pending is not None:
                self._told, self._pending = self._pending.sequence, None

    def end_those_who_may_not(self) -> None:
        """End the streams whose readers were signed out. Any thread."""
        self._hand_out(lambda stream: None if stream.may_go_on() else stream.end())

    def close(self) -> None:
        """End every stream, and take no further one. Any thread."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        self._hand_out(Stream.end)

    # ── the thread ──────────────────────────────────────────────────────────────────────────────
    def _run(self) -> None:
        patched_at = heart_at = time.monotonic()
        while True:
            with self._lock:
                while not self._closing and self._pending is None and time.monotonic() < heart_at + HEARTBEAT_S:
                    if self._topics:
                        self._lock.wait(heart_at + HEARTBEAT_S - time.monotonic())
                    else:
                        self._lock.wait()
                        heart_at = time.monotonic()
                if self._pending is not None:
                    since = time.monotonic() - patched_at
                    self._lock.wait_for(lambda: self._closing, timeout=max(0.0, pause_s(self._count) - since))
                if self._closing:
                    return
                pending, self._pending = self._pending, None
                if pending is not None:
                    self._told = pending.sequence
                told = self._told
                topics = {topic: tuple(streams) for topic, streams in self._topics.items()}
            try:
                if pending is not None:
                    patched_at = time.monotonic()
                    self._tell(pending, topics)
                if time.monotonic() - heart_at >= HEARTBEAT_S:
                    heart_at = time.monotonic()
                    self._beat(told)
            except Exception:  # whatever it was, readers must not wait for what was lost: they come back and ask
                logger.exception("events_not_told")
                self._hand_out(Stream.end)

    def _tell(self, pending: _Pending, topics: dict[ExperimentId, tuple[Stream, ...]]) -> None:
        for topic, streams in topics.items():
            if topic == ALL and pending.cluster:
                _hand(streams, partial(self._give, event=cluster_event(), sequence=ALWAYS, told=pending.sequence))
            if topic in pending.touched.removed:
                _hand(streams, partial(Stream.end, last=self._gap(pending.sequence, GapReason.REMOVED)))
            elif event := self._event_of(topic, pending):
                _hand(streams, partial(self._give, event=event, sequence=pending.sequence, told=pending.sequence))

    def _event_of(self, topic: ExperimentId, pending: _Pending) -> bytes:
        """What streams of ``topic`` are told; empty where there is nothing."""
        if topic == ALL:
            if len(pending.experiments) > EXPERIMENTS_LIMIT:
                return self._gap(pending.sequence, GapReason.TOO_MANY)
            touched = replace(pending.touched, checkpoints={})
            return self._bytes(
                Patch(sequence=pending.sequence, experiments=list(pending.experiments.values()), touched=touched)
            )
        trials = pending.trials.get(topic, {})
        ended = {number for number, trial in trials.items() if trial.ended_at is not None}
        reported = {number: at for number, at in pending.reported.get(topic, {}).items() if number not in ended}
        if max(len(trials), len(reported)) > TOUCHED_LIMIT:
            return self._gap(pending.sequence, GapReason.TOO_MANY)
        one = pending.experiments.get(topic)
        return self._bytes(
            Patch(
                sequence=pending.sequence,
                experiments=() if one is None else (one,),
                trials={topic: self._rows(topic, trials)} if trials else {},
                reported={topic: reported} if reported else {},
                touched=of_topic(pending.touched, topic),
            )
        )

    def _gap(self, sequence: int, reason: GapReason) -> bytes:
        return gap_event(sequence, self._lineage, reason)

    def _bytes(self, patch: Patch) -> bytes:
        if patch.experiments or patch.trials or patch.reported or patch.touched != Touched():
            return patch_event(patch, lineage=self._lineage, now=self._clock.now())
        return b""

    def _rows(self, topic: ExperimentId, trials: dict[int, Trial]) -> list[TrialRow]:
        """Parameters stand in the first patch that has the trial, and in those where they became others."""
        with self._lock:
            known = self._known.setdefault(topic, {}) if topic in self._topics else {}
        if len(known) > TOUCHED_LIMIT:
            known.clear()
        rows = []
        for number in sorted(trials):
            trial = trials[number]
            rows.append(TrialRow(trial, known.get(number)))
            if trial.status.is_final:
                known.pop(number, None)
            else:
                known[number] = trial.result_parameters
        return rows

    def _give(self, stream: Stream, *, event: bytes, sequence: int, told: int) -> None:
        if not stream.put(event, sequence=sequence):
            stream.end(self._gap(told, GapReason.SLOW))

    def _beat(self, told: int) -> None:
        event = heartbeat_event(told, self._lineage)

        def beat(stream: Stream) -> None:
            if not stream.may_go_on():
                stream.end()
            stream.put(event, sequence=told + 1)  # told again; where there is no room, the next patch finds it out

        self._hand_out(beat)

    def _hand_out(self, give: Callable[[Stream], None]) -> None:
        with self._lock:
            streams = [stream for streams in self._topics.values() for stream in streams]
        _hand(streams, give)


def pause_s(streams: int) -> float:
    """Between two patches, while so many streams are open. What follows a longer silence is told at once."""
    return max(1 / PATCHES_PER_S, streams / EVENTS_PER_S)


def _hand(streams: Sequence[Stream], give: Callable[[Stream], None]) -> None:
    """Have ``give`` called with each of them on its own event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Stream]] = {}
    for stream in streams:
        by_loop.setdefault(stream.loop, []).append(stream)
    for loop, those in by_loop.items():
        with contextlib.suppress(RuntimeError):  # a loop that has ended took its streams with it
            loop.call_soon_threadsafe(_give_each, those, give)


def _give_each(streams: list[Stream], give: Callable[[Stream], None]) -> None:
    for stream in streams:
        give(stream)
