"""Going on from a checkpoint: of this trial or of another one, saved by one process or by several together."""

from __future__ import annotations

import json
import operator
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

from trials.checkpoints.file_format import Restored, read_image
from trials.checkpoints.stores import Entry, listed
from trials.checkpoints.verified_files import replace_file
from trials.wire.files import BEST_TRIAL, FILE_RESTORE, FILE_WANTED, FOLDER_WANTED
from trials.wire.limits import STEP_MAX

if TYPE_CHECKING:
    from trials.checkpoints.shards import Ranks

ANSWER_POLL_S = 0.02
WAKE_AGAIN_S = 5.0  # an agent that came meanwhile has not heard of the request
BEST = "best"
NUMBER_DIGITS = 20  # of a number in a text; one with more is beyond every trial


class CheckpointMissingError(LookupError):
    """The other trial has no such checkpoint, or it cannot be had; the text says what there is instead."""


def trial_named(named: SupportsIndex | str, *, experiment_id: str) -> int:
    """The number of a trial of this experiment: of 7, "7", "EXPERIMENT/7" as the command line prints it, or "best".

    BEST_TRIAL for the last. TypeError and ValueError say what may be given.
    """
    forms = f"a trial is named by its number, as {experiment_id}/NUMBER, or as {BEST!r}"
    if isinstance(named, str):
        if named == BEST:
            return BEST_TRIAL
        experiment, _, number = named.rpartition("/")
        if experiment not in {"", experiment_id}:
            raise ValueError(f"{named!r} is not of this experiment, {experiment_id}; {forms}")
        if not (number.isascii() and number.isdecimal()):
            raise ValueError(f"{forms}, not {named[:100]!r}")
        return _counted_from_1(int(number[:NUMBER_DIGITS]), forms)
    if isinstance(named, bool) or not hasattr(named, "__index__"):
        raise TypeError(f"{forms}, not {type(named).__name__} {str(named)[:100]!r}")
    return _counted_from_1(operator.index(named), forms)


def _counted_from_1(number: int, forms: str) -> int:
    if not 1 <= number <= STEP_MAX:
        raise ValueError(f"{forms}; numbers begin at 1, so there is no trial {number}")
    return number


def describe_trial(number: int) -> str:
    return "the best trial" if number == BEST_TRIAL else f"trial {number}"


def restored(choose: Callable[[], Entry | None], *, into: Any = None, is_apart: bool = False) -> Restored | None:
    """The state of the entry that ``choose`` returns; sets the random generators.

    ``is_apart``: ranks of another node have files of their own.

    ``into``: every rank calls this, and what several processes saved together is loaded into its tensors; rank 0
    chooses for all. ValueError where such a checkpoint was chosen, and there is nothing to load it into, and where
    another one was, and there is.
    """
    if into is None:
        entry = choose()
    else:
        from trials.checkpoints.shards import Ranks

        ranks = Ranks()
        entry = _chosen_apart(choose, ranks) if is_apart else ranks.agree(lambda: _by_first(choose, ranks))[0]
    if entry is None:
        return None
    path = Path(entry["file"])
    if not path.is_dir() and into is not None:
        raise ValueError(
            f"the checkpoint of step {entry['step']} was not saved with sharded=True, so nothing is loaded into the "
            "state: take what trial.restore() returns, without into"
        )
    if not path.is_dir():
        return read_image(path)
    if into is None:
        raise ValueError(
            f"the checkpoint of step {entry['step']} was saved by several processes together; give the state to load "
            "it into, on every rank: trial.restore(into=state)"
        )
    from trials.checkpoints.shards import load_sharded

    step, index = load_sharded(path, into)
    return Restored(step=step, state=into, index=index)


def _by_first(choose: Callable[[], Entry | None], ranks: Ranks) -> Entry | None:
    return choose() if ranks.rank == 0 else None


def _chosen_apart(choose: Callable[[], Entry | None], ranks: Ranks) -> Entry | None:
    """On each node the first of its ranks chooses, among the files of that node; all must have chosen the same.

    ShardedCheckpointError where a node has another one, because its copy of the newest was damaged.
    """
    from trials.checkpoints.shards import ShardedCheckpointError

    chosen = ranks.agree(lambda: choose() if ranks.local == 0 else None)
    of_nodes = chosen[:: ranks.per_node]
    if len({None if entry is None else entry["digest"] for entry in of_nodes}) > 1:
        steps = ", ".join("none" if entry is None else str(entry["step"]) for entry in of_nodes)
        raise ShardedCheckpointError(f"the nodes have checkpoints of different steps that are intact: {steps}")
    entry: Entry | None = of_nodes[ranks.rank // ranks.per_node]
    return entry


class OtherTrials:
    """Asks the agent for checkpoints of other trials, by a file in the attempt's folder; waits for its answer."""

    def __init__(self, attempt: Path, *, wake: Callable[[], None]) -> None:
        self._attempt = attempt
        self._wake = wake

    def entries(self, number: int, *, step: int | None, is_stopping: Callable[[], bool]) -> list[Entry]:
        """Newest first. CheckpointMissingError when there are none, or the trial is asked to stop meanwhile."""
        request = secrets.token_hex(6)
        question = {"id": request, "number": number, "step": step}
        replace_file(self._attempt / FILE_WANTED, json.dumps(question).encode())
        answer = self._attempt / FOLDER_WANTED.format(id=request)
        try:
            self._wait(answer / FILE_RESTORE, is_stopping)
        finally:
            (self._attempt / FILE_WANTED).unlink(missing_ok=True)
        error = json.loads((answer / FILE_RESTORE).read_bytes()).get("error")
        if error is not None:
            raise CheckpointMissingError(str(error))
        return listed(answer)

    def _wait(self, answer: Path, is_stopping: Callable[[], bool]) -> None:
        wake_at = 0.0
        while not answer.exists():
            if is_stopping():
                raise CheckpointMissingError("the trial was asked to stop while it waited for a checkpoint")
            if time.monotonic() >= wake_at:
                self._wake()
                wake_at = time.monotonic() + WAKE_AGAIN_S
            time.sleep(ANSWER_POLL_S)


class NoOtherTrials:
    """Of a script that runs alone."""

    def entries(self, number: int, *, step: int | None, is_stopping: Callable[[], bool]) -> list[Entry]:
        """CheckpointMissingError."""
        del step, is_stopping
        raise CheckpointMissingError(
            f"this script runs alone, so there is no {describe_trial(number)} to choose from, nor a step; "
            "trial.restore() gives its own newest checkpoint"
        )
