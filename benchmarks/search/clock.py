"""Peers on a simulated clock: W workers, an epoch at a time, paused trials going on where they were."""

from __future__ import annotations

import heapq
import itertools
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from benchmarks.search.outcome import Evaluation, Limits, Outcome
from benchmarks.search.task import Parameters, Task

TRIAL_LIMIT = 100_000


@dataclass(slots=True, kw_only=True)
class Slot:
    """One trial of a peer; ``handle`` is the peer's own object."""

    parameters: Parameters
    handle: Any
    epoch: int = 0
    number: int = 0


class Peer(ABC):
    @abstractmethod
    def suggest(self) -> Slot | None:
        """A new trial, or one that was paused and goes on; None: nothing now."""

    @abstractmethod
    def report(self, slot: Slot, epoch: int, values: dict[str, float]) -> bool:
        """After each epoch; False: the trial leaves its worker (stopped or paused)."""

    @abstractmethod
    def finish(self, slot: Slot, values: dict[str, float]) -> None:
        """After the last epoch."""


def run(peer: Peer, task: Task, limits: Limits, *, seed: int) -> Outcome:
    """Until ``limits.trials`` trials have started and ended, or the simulated time is over."""
    workers, trials, horizon_s = limits.workers, limits.trials, limits.horizon_s
    heap: list[tuple[float, int, Slot]] = []
    order = itertools.count()
    evaluations: list[Evaluation] = []
    started, own_s, suggest_s, now = 0, 0.0, 0.0, 0.0
    for _ in range(TRIAL_LIMIT * task.max_epochs):
        while len(heap) < workers and (trials is None or started < trials):
            begun = time.perf_counter()
            slot = peer.suggest()
            suggest_s += time.perf_counter() - begun
            if slot is None:
                break
            if slot.number == 0:
                started += 1
                slot.number = started
            heapq.heappush(heap, (now + task.runtime(slot.parameters, slot.epoch + 1), next(order), slot))
        if not heap:
            break
        now, _, slot = heapq.heappop(heap)
        if horizon_s is not None and now > horizon_s:
            break
        slot.epoch += 1
        values = task.metrics(slot.parameters, slot.epoch, seed)
        evaluations.append(Evaluation(at=now, trial=slot.number, epoch=slot.epoch, values=values))
        begun = time.perf_counter()
        if task.max_epochs > 1 and not peer.report(slot, slot.epoch, values):
            pass
        elif slot.epoch >= task.max_epochs:
            peer.finish(slot, values)
        else:
            heapq.heappush(heap, (now + task.runtime(slot.parameters, slot.epoch + 1), next(order), slot))
        own_s += time.perf_counter() - begun
    return Outcome(evaluations=evaluations, trials=started, own_s=own_s + suggest_s, suggest_s=suggest_s, choice="")
