"""The position of a loader, as a small dict: what a checkpoint holds of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trials.data.errors import DatasetMismatch, StateError

VERSION = 1
_WHOLE = ("seed", "epoch", "delivered", "batch_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """``delivered``: samples of the epoch that the trial has been given, all its ranks together; for a batch sampler:
    batches. ``iteration``: batches handed out in all epochs; only of a source without an index."""

    dataset: str  # its fingerprint
    seed: int
    epoch: int
    delivered: int
    batch_size: int  # 0 where the loader has none
    order: str
    iteration: int | None = None

    def to_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "version": VERSION,
            "dataset": self.dataset,
            "seed": self.seed,
            "epoch": self.epoch,
            "delivered": self.delivered,
            "batch_size": self.batch_size,
            "order": self.order,
        }
        said_already = self.iteration in {None, self.delivered // (self.batch_size or 1)}  # as in every first epoch
        return state if said_already else state | {"iteration": self.iteration}

    @classmethod
    def of_state(cls, state: Mapping[str, Any], *, dataset: str, order: str) -> Position:
        """StateError for what ``to_state`` did not write, DatasetMismatch for what it wrote of another dataset."""
        if state.get("version") != VERSION:
            raise StateError(f"a loader's state of version {VERSION} is needed, not {state.get('version')!r}")
        given = (*_WHOLE, "iteration") if "iteration" in state else _WHOLE
        for name in given:
            value = state.get(name)
            if type(value) is not int or (value < 0 and name != "seed"):
                raise StateError(f"the loader's state has {name} = {value!r}, not a whole number: {_shown(state)}")
        if state.get("dataset") != dataset:
            raise DatasetMismatch(ours=dataset, theirs=str(state.get("dataset")))
        if state.get("order") != order:
            raise StateError(
                f"the state was taken with order {state.get('order')!r}, and the loader has {order!r}: its positions "
                "mean other samples; give the loader the same shuffle, order and sampler"
            )
        return cls(dataset=dataset, order=order, **{name: state[name] for name in given})


def _shown(state: Mapping[str, Any]) -> str:
    return json.dumps(dict(state), default=repr)[:300]
