"""The stream of batches, and its position: exactly where it was after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from trials.checkpoints import random_generators


class EmptyEpochError(ValueError):
    """The batches end before the first one."""


class BatchStream:
    """Goes through ``batches`` again and again; each time is an epoch.

    An iterable with ``state_dict`` and ``load_state_dict`` keeps its own position. Of any other, the epoch is begun
    anew after a restart, with the random generators as they were then, and as many batches as were taken are passed
    over. ``set_epoch`` of the iterable, or of its ``sampler``, is told the epoch before it begins, and after a restart
    once more before it goes on.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self.epoch = 0
        self.taken = 0  # batches of this epoch
        self._iterator: Iterator[Any] | None = None
        self._generators: dict[str, Any] | None = None  # when this epoch began
        self._begun = False

    def next(self) -> tuple[bool, Any]:
        """(True, batch), or (False, None) when an epoch has ended; the next call begins another."""
        if self._iterator is None:
            self._begin()
        assert self._iterator is not None
        try:
            batch = next(self._iterator)
        except StopIteration:
            if self.taken == 0:
                raise EmptyEpochError(
                    f"there is no batch in epoch {self.epoch}: {type(self._batches).__name__} is empty, or can be "
                    "gone through only once; give something that can be iterated again, such as a DataLoader or a list"
                ) from None
            self.epoch, self.taken, self._iterator, self._begun = self.epoch + 1, 0, None, False
            return False, None
        self.taken += 1
        return True, batch

    def state_dict(self) -> dict[str, Any]:
        """Small: the batches themselves are not in it."""
        state: dict[str, Any] = {"epoch": self.epoch, "taken": self.taken, "begun": self._begun}
        if self._keeps_its_position():
            return state | {"batches": self._batches.state_dict()}  # type: ignore[attr-defined]  # looked at just above
        return state | ({"generators": self._generators} if self._begun else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Call it once the random generators are those of the checkpoint: they are left so."""
        self.epoch, self.taken, self._begun = state["epoch"], state["taken"], state["begun"]
        self._iterator, self._generators = None, state.get("generators")
        if "batches" in state:
            if self._begun:
                self._tell_epoch()  # first: what the state says of the position counts
            self._batches.load_state_dict(state["batches"])  # type: ignore[attr-defined]  # it was saved by the same
            if self._begun:
                self._iterator = iter(self._batches)
        elif self._begun:
            self._pass_over()

    def _keeps_its_position(self) -> bool:
        return hasattr(self._batches, "state_dict") and hasattr(self._batches, "load_state_dict")

    def _begin(self) -> None:
        if not self._keeps_its_position():
            self._generators = random_generators.capture()
        self._tell_epoch()
        self._iterator = iter(self._batches)
        self._begun = True

    def _pass_over(self) -> None:
        """What shuffles the batches drew from the generators when the epoch began; what came after did so by itself."""
        assert self._generators is not None
        now = random_generators.capture()
        random_generators.put_back(self._generators)
        self._tell_epoch()
        self._iterator = iter(self._batches)
        for number in range(self.taken):
            if next(self._iterator, self) is self:
                raise EmptyEpochError(
                    f"epoch {self.epoch} had {self.taken} batches when the checkpoint was saved and has {number} now; "
                    "restore with the data and the batch size it was saved with"
                )
        random_generators.put_back(now)

    def _tell_epoch(self) -> None:
        told = self._batches if hasattr(self._batches, "set_epoch") else getattr(self._batches, "sampler", None)
        if hasattr(told, "set_epoch"):
            told.set_epoch(self.epoch)  # type: ignore[union-attr]  # looked at just above
