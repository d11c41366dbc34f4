"""Whose output a person means: of which node of an attempt, and of which of its processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trials.wire.log_streams import STREAMS, of_rank, rank_of
from tuner_service.domain.errors import NotFoundError
from tuner_service.domain.trial import Attempt, Part

NOTHING = Path("/dev/null")


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What was printed on ``node``, or the first one; of one ``rank`` alone, which says where it runs."""

    node: int | None = None
    rank: int | None = None  # in the whole world, as the process sees it

    def node_in(self, attempt: Attempt, processes: int) -> int:
        """NotFoundError where there is no such rank, or not on that node. ``processes`` run on each."""
        if self.rank is None:
            return self.node or 0
        nodes = len(attempt.parts) or 1
        what, node = f"{attempt.key} of rank {self.rank}", self.rank // processes
        if node >= nodes:
            raise NotFoundError("log", what, f"it has {_ranks(0, nodes * processes)}")
        if self.node is not None and self.node != node:
            part_on(attempt, self.node)
            there = f"there it has {_ranks(self.node * processes, processes)}"
            raise NotFoundError("log", f"{what} on node {self.node}", f"{there}; rank {self.rank} is on node {node}")
        return node

    def stream(self, stream: str, processes: int) -> str:
        """As the node names it: of a process that is alone there, all of it."""
        return stream if self.rank is None or processes == 1 else of_rank(stream, self.rank)


ALL = Printed()  # of the first node, or the only one


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """``data`` from ``offset`` up to ``end`` of a log that has ``size`` bytes now; ``ended``: it grows no more."""

    data: str
    offset: int
    end: int
    size: int
    attempt: int
    ended: bool


def part_on(attempt: Attempt, node: int) -> Attempt | Part:
    """Of an attempt of one node, the attempt. NotFoundError where it has no such node."""
    held: tuple[Attempt | Part, ...] = attempt.parts or (attempt,)
    if node >= len(held):
        raise NotFoundError("log", f"{attempt.key} of node {node}", f"it has {len(held)}, counted from 0")
    return held[node]


def collected_log(find: Callable[[str], Path | None], stream: str) -> Path | None:
    """What a node has sent of a stream; None where it has sent nothing."""
    found = find(stream)
    if found is None and rank_of(stream) is not None and find(STREAMS[0]) is not None:
        return NOTHING  # a node sends what each rank has printed before what all have: this one has printed nothing
    return found


def _ranks(first: int, count: int) -> str:
    return f"rank {first} only" if count == 1 else f"ranks {first} to {first + count - 1}"
