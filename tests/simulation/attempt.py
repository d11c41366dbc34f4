"""What is on a simulated node's disk of one attempt, or of one part of an attempt of several nodes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from trials.wire.attempt import AttemptKey
from trials.wire.launch import LaunchSpec
from trials.wire.records import ExitRecord
from tuner_service.dispatcher import commands as c


def unit(*parts: Any) -> float:
    """A number in [0, 1) that depends on ``parts`` alone."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big") / 2**48


@dataclass(kw_only=True)
class SimAttempt:
    """What is on the node's disk, and whether it runs."""

    key: AttemptKey
    nonce: str
    lineage: str
    spec: LaunchSpec
    spool: list[c.Record] = field(default_factory=list)
    acknowledged: int = 0
    exit: ExitRecord | None = None
    in_flight_since: float | None = None
    exit_sent_at: float | None = None
    stopping: bool = False
    answers: dict[int, dict[str, Any] | None] = field(default_factory=dict)  # the files with further parameters
    index: int = 0  # of the parameters it runs with
    ancestry: str = ""  # of its weights: the checkpoint of another trial that it began with
    cooperates: bool = False  # its script asks should_stop
    asks_first: bool = False  # before each step instead of after it
    reports_half_way: bool = False  # a final metric, although it was told to stop
    asked: int = 0
    asked_at: float = 0.0
    is_prepared: bool = False  # a part that waits for the order to begin
    was_ready: bool = False
    wanted_at: float = 0.0  # when it last heard that it is

    @property
    def node(self) -> int:
        return 0 if self.spec.world is None else self.spec.world.node

    @property
    def parameters(self) -> dict[str, Any]:
        further = self.answers.get(self.index) if self.index else self.spec.parameters
        assert further is not None, "it runs with parameters that it was not given"
        return further
