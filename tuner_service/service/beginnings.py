"""How streams of events begin: with what their readers missed, read once for all that come at about the same time.

After a restart every page and handle is back within the same second, with the ids of the same few commits. Those wait
for one read, which goes back to the oldest of them: a patch says how things are, so it is right for the others, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tuner_service.dispatcher.changes import TOUCHED_LIMIT, Touched
from tuner_service.domain.errors import NotFoundError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.ports import Clock, Queries
from tuner_service.service.patches import (
    ALL,
    EXPERIMENTS_LIMIT,
    GapReason,
    Patch,
    TrialRow,
    begin_event,
    gap_event,
    of_topic,
    patch_event,
    sequence_in,
)

READS_AT_ONCE = 2  # each holds its rows in memory
NEAR = 64  # commits: readers that have nearly the same are answered alike


class Beginning(NamedTuple):
    """``sequence``: what comes after it is still to be told; None: nothing is, the stream ends."""

    event: bytes
    sequence: int | None


@dataclass(slots=True, kw_only=True)
class _Waiting:
    """Those that wait for one read, by their ids."""

    lasts: set[str] = field(default_factory=set)
    read: asyncio.Task[dict[str, Beginning]]


Key = tuple[ExperimentId, int | None, bool]


class Beginnings:
    """Of the streams of one event loop. A stream asks once it is open, so that nothing falls between."""

    def __init__(self, queries: Queries, *, lineage: str, clock: Clock) -> None:
        self._queries, self._lineage, self._clock = queries, lineage, clock
        self._waiting: dict[Key, _Waiting] = {}
        self._turn = asyncio.Semaphore(READS_AT_ONCE)

    async def of(self, topic: ExperimentId, last_event_id: str) -> Beginning:
        """NotFoundError where the experiment was never there, as far as the reader knows."""
        last = sequence_in(last_event_id, self._lineage)
        key = (topic, None if last is None else last // NEAR, not last_event_id)
        waiting = self._waiting.get(key)
        if waiting is None:
            lasts: set[str] = set()
            read = asyncio.create_task(self._read(key, lasts))
            read.add_done_callback(_look_at)
            waiting = self._waiting[key] = _Waiting(lasts=lasts, read=read)
        waiting.lasts.add(last_event_id)
        return (await asyncio.shield(waiting.read))[last_event_id]

    async def _read(self, key: Key, lasts: set[str]) -> dict[str, Beginning]:
        async with self._turn:
            del self._waiting[key]  # who comes from now on may have to be told of later commits
            return await asyncio.to_thread(self.read, key[0], tuple(lasts))

    def read(self, topic: ExperimentId, lasts: Iterable[str]) -> dict[str, Beginning]:
        """By the ids that they come with, "" for none. One snapshot; not for the event loop."""
        with self._queries.snapshot():
            sequence = self._queries.sequence()
            there = topic == ALL or self._queries.experiment(topic) is not None
            if not there:
                if "" in lasts:
                    raise NotFoundError("experiment", topic)
                return dict.fromkeys(lasts, Beginning(self._gap(sequence, GapReason.REMOVED), None))
            known = {last: sequence_in(last, self._lineage) for last in lasts}
            oldest = min((one for one in known.values() if one is not None and one <= sequence), default=None)
            replayed = None if oldest is None else self._replayed(topic, oldest, sequence)
        found = {}
        for last, one in known.items():
            if not last:
                event = begin_event(sequence, self._lineage)
            elif one is None or one > sequence or replayed is None:
                event = self._gap(sequence, GapReason.UNKNOWN)
            else:
                event = replayed
            found[last] = Beginning(event, sequence)
        return found

    def _replayed(self, topic: ExperimentId, last: int, sequence: int) -> bytes:
        found = self._patch(topic, last, sequence)
        if isinstance(found, GapReason):
            return self._gap(sequence, found)
        return patch_event(found, lineage=self._lineage, now=self._clock.now())

    def _patch(self, topic: ExperimentId, last: int, sequence: int) -> Patch | GapReason:
        touched = self._queries.touched_after(last)
        if touched is None:
            return GapReason.TOO_OLD
        if topic == ALL:
            if len(touched.trials) > EXPERIMENTS_LIMIT:
                return GapReason.TOO_MANY
            found = [self._queries.experiment(name) for name in touched.trials]
            experiments = [experiment for experiment in found if experiment is not None]
            return Patch(
                sequence=sequence, experiments=experiments, touched=replace(touched, trials={}, checkpoints={})
            )
        if topic not in touched.trials:
            return Patch(sequence=sequence, touched=of_topic(touched, topic))
        return self._patch_of_one(topic, touched, sequence)

    def _patch_of_one(self, topic: ExperimentId, touched: Touched, sequence: int) -> Patch | GapReason:
        numbers, one = touched.trials[topic], self._queries.experiment(topic)
        if numbers is None:
            return GapReason.TOO_MANY
        # A report of anything but the objective touches no trial: of all that run it is told when they reported.
        live = {attempt.key.number for attempt in self._queries.live_attempts(topic)}
        if len(live | numbers) > TOUCHED_LIMIT:
            return GapReason.TOO_MANY
        rows = [TrialRow(trial) for trial in self._queries.trials_of(topic, numbers)] if numbers else []
        reported = self._queries.reported_at(topic, sorted(live | numbers))
        return Patch(
            sequence=sequence,
            experiments=() if one is None else (one,),
            trials={topic: rows} if rows else {},
            reported={topic: reported} if reported else {},
            touched=of_topic(touched, topic),
        )

    def _gap(self, sequence: int, reason: GapReason) -> bytes:
        return gap_event(sequence, self._lineage, reason)


def _look_at(read: asyncio.Task[dict[str, Beginning]]) -> None:
    """Also where all who waited for it have gone."""
    if not read.cancelled():
        read.exception()
