"""How far an advisor lets a trial run, and where the trial rests on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class RungPhase(StrEnum):
    CLIMBING = "climbing"  # not yet where it is to rest; so is every trial without an advisor
    REACHED = "reached"  # it has come to its rung, which its advisor was not told
    RESTING = "resting"  # its advisor knows, and may promote it


@dataclass(frozen=True, slots=True, kw_only=True)
class Rungs:
    """What its advisor decided about a trial, and how far it has come. Part of the trial's row.

    ``phase`` moves by ``RUNG_TRANSITIONS``; each method below is the value after one of those moves.
    """

    until_step: int | None = None  # the advisor lets it run to this step, where it rests; None: to its end
    rung_step: int | None = None  # of the report at which it last came to rest
    rung_reached: bool = False  # what it was decided to run to is reached; what comes after belongs to no decision
    rested_line: int | None = None  # the journal line that told the advisor that it rests, while it does
    rested_step: int | None = None  # the rung of the newest rest that was told: forks go on from there
    segment_line: int = 0  # the journal line of the advisor's newest decision about it
    forked_from: int | None = None  # the trial whose checkpoint it began with
    forked_step: int | None = None  # and the step of that, where there was one

    @property
    def phase(self) -> RungPhase:
        if self.rested_line is not None:
            return RungPhase.RESTING
        return RungPhase.REACHED if self.rung_reached else RungPhase.CLIMBING

    @property
    def was_late(self) -> bool:
        """Whether the advisor said while the trial ran that it rests, and not before it began to run."""
        return self.until_step is None or self.until_step > (self.rung_step or 0)

    def reached(self, at_step: int) -> Rungs:
        """It has done what was decided."""
        return replace(self, rung_step=at_step, rung_reached=True)

    def again(self) -> Rungs:
        """It lost what it was to rest with: it runs to its rung once more."""
        return replace(self, until_step=self.rung_step, rung_reached=False)

    def told(self, line: int) -> Rungs:
        """``line`` of the journal tells the advisor that it rests."""
        return replace(self, rested_line=line, rested_step=self.rung_step or 0)

    def promoted(self, *, until_step: int | None, line: int) -> Rungs:
        """``line`` of the journal asked for what the advisor decided: it goes on, to ``until_step``."""
        return replace(self, until_step=until_step, segment_line=line, rung_reached=False, rested_line=None)

    def left(self) -> Rungs:
        """It has ended where it rested: nothing promotes it any more."""
        return replace(self, rested_line=None)


NO_RUNGS = Rungs()  # of a trial without an advisor
