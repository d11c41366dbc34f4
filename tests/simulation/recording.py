"""Histories as files: what a dispatcher was told, in order, and where the service was started anew in between.

    {"about": "what was wrong", "steps": [...], "expect": {...}}

A step is a command, or a ``Restart``. Replaying needs no world: the memory store and a dispatcher are enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import ModuleType
from typing import Any

import trials.wire.launch
import trials.wire.messages
import trials.wire.records
from tests.memory_store import MemoryStore
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import items
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.effects import Effect
from tuner_service.dispatcher.invariants import violations
from tuner_service.domain import experiment as experiment_module
from tuner_service.domain import trial as trial_module
from tuner_service.domain.errors import ConflictError, InputError, NotFoundError, UnavailableError

TYPE, VALUE = "is a", "of"  # no names of a search space in NNI's form, which has `_type` and `_value`


@dataclass(frozen=True, kw_only=True)
class Restart:
    """The service died after the step before, and started from its rows."""

    at: float
    incarnation: str
    first_generation: int


Step = c.Command | Restart


def _types(modules: Iterable[ModuleType]) -> dict[str, type[Any]]:
    return {
        name: found
        for module in modules
        for name, found in vars(module).items()
        if isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum))
    }


TYPES = _types(
    (trials.wire.messages, trials.wire.launch, trials.wire.records, experiment_module, trial_module, items, c)
) | {"Restart": Restart}


def encode(value: Any) -> Any:
    """Plain JSON that ``decode`` turns back exactly."""
    if isinstance(value, Enum):
        return {TYPE: type(value).__name__, VALUE: value.value}
    if is_dataclass(value) and not isinstance(value, type):
        given = {f.name: getattr(value, f.name) for f in fields(value)}
        return {TYPE: type(value).__name__} | {name: encode(item) for name, item in given.items()}
    if isinstance(value, bytes):
        return {TYPE: "bytes", VALUE: value.hex()}
    if isinstance(value, frozenset):
        return {TYPE: "frozenset", VALUE: sorted(value)}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if TYPE not in value:
        return {key: decode(item) for key, item in value.items()}
    name = value[TYPE]
    if name == "bytes":
        return bytes.fromhex(value[VALUE])
    if name == "frozenset":
        return frozenset(value[VALUE])
    if VALUE in value:
        return TYPES[name](value[VALUE])
    given = {key: decode(item) for key, item in value.items() if key != TYPE}
    # Our dataclasses hold tuples; lists stand only inside of parameters and search spaces.
    return TYPES[name](**{key: tuple(item) if isinstance(item, list) else item for key, item in given.items()})


class Replay:
    """What is left after ``steps``; the invariants are checked after each of them."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.store = MemoryStore()
        self.effects: list[Effect] = []
        self.dispatcher = Dispatcher(lineage=self.store.lineage, incarnation="none")
        for step in steps:
            self._take(step)

    def _take(self, step: Step) -> None:
        if isinstance(step, Restart):
            self.dispatcher = Dispatcher(
                lineage=self.store.lineage, incarnation=step.incarnation, first_generation=step.first_generation
            )
            for loaded in self.store.load():
                self.dispatcher.restore(loaded)
            self.effects = self.dispatcher.recover(step.at)
        else:
            try:
                self.effects = self.dispatcher.handle(step)
            except (ConflictError, InputError, NotFoundError, UnavailableError):
                self.effects = []
        broken = violations(self.dispatcher.state)
        assert not broken, broken
        self.store.commit(self.dispatcher.take_changes())
