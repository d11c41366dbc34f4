"""Trials of several nodes beside trials of one, on the same nodes, for a long virtual time: nobody waits for ever."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass

import pytest

from tuner_service.dispatcher.ledger import Held, Ledger
from tuner_service.dispatcher.placement import Claim, place
from tuner_service.domain.resources import Demand, Device, Node

LONGEST_S = 10
QUEUE = 6  # trials of each experiment that wait, whatever was started
DURATION_S = 400
WAIT_LIMIT_S = 10 * LONGEST_S  # of an experiment of which nothing starts


@dataclass(kw_only=True)
class Running:
    held: Held
    until: int


class Cluster:
    """Experiments that always have more trials; each second those that have ended make room, and others start."""

    def __init__(self, seed: int, nodes: int, demands: list[Demand]) -> None:
        self.rng = random.Random(seed)
        devices = {n: tuple(Device(uuid=f"n{n}-g{g}", memory_bytes=1 << 30) for g in range(2)) for n in range(nodes)}
        self.nodes = {
            f"n{n}": Node(agent_id=f"n{n}", cpus=4, memory_bytes=1 << 36, devices=devices[n]) for n in devices
        }
        self.waiting = {
            f"e{number}": [Claim(experiment_id=f"e{number}", number=at, demand=demand) for at in range(QUEUE)]
            for number, demand in enumerate(demands)
        }
        self.running: list[Running] = []
        self.started: dict[str, list[int]] = defaultdict(list)

    def second(self, now: int) -> None:
        self.running = [one for one in self.running if one.until > now]
        claims = [claim for waiting in self.waiting.values() for claim in waiting]
        for placed in place(claims, nodes=self.nodes, held=Ledger.of(one.held for one in self.running), groups={}):
            claim = placed.claim
            assert len({holding.agent_id for holding in placed.holdings}) == claim.demand.nodes
            held = Held(experiment_id=claim.experiment_id, group="default", holdings=placed.holdings)
            self.running.append(Running(held=held, until=now + self.rng.randint(1, LONGEST_S)))
            self.started[claim.experiment_id].append(now)
            waiting = self.waiting[claim.experiment_id]
            waiting.remove(claim)
            number = max((other.number for other in waiting), default=claim.number) + 1
            waiting.append(
                Claim(experiment_id=claim.experiment_id, number=number, demand=claim.demand, since=float(now))
            )

    def longest_wait(self, experiment: str) -> int:
        times = [0, *self.started[experiment], DURATION_S]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


@pytest.mark.parametrize("seed", range(6))
def test_neither_trials_of_several_nodes_nor_those_of_one_wait_for_ever(seed: int) -> None:
    rng = random.Random(f"demands{seed}")
    nodes = rng.choice((2, 3, 4))
    gang = Demand(gpus=rng.choice((0.0, 1.0, 2.0)), cpus=rng.choice((1.0, 4.0)), nodes=rng.randint(2, nodes))
    singles = [Demand(gpus=rng.choice((0.0, 0.5, 1.0)), cpus=1.0) for _ in range(rng.randint(1, 3))]
    cluster = Cluster(seed, nodes, [gang, *singles])

    for now in range(DURATION_S):
        cluster.second(now)

    waits = {experiment: cluster.longest_wait(experiment) for experiment in cluster.waiting}
    assert max(waits.values()) <= WAIT_LIMIT_S, (waits, gang, singles, nodes)
