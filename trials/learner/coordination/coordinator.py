"""A coordinator: starts learners, chooses their data, hears what they learn; durable, so that it may be killed."""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from trials.arguments import seconds
from trials.learner.coordination.frames import FRAME_BYTES, learner_name, require_own
from trials.learner.coordination.journal import VERSION, Journal, JournalError
from trials.learner.coordination.link import Link
from trials.learner.coordination.messages import Demand, Ended, LearnInfo
from trials.wire.plain import from_plain, to_plain

DEMANDS_KEPT = 1000  # of each learner, the newest: one that goes on from a checkpoint asks for them again
LOST_AFTER_S = 600.0
LOOK_S = 1.0  # at learners that do not answer
INFO_BYTES = FRAME_BYTES - (1 << 12)  # of the info of a task: it is sent in one frame


class Chooser(Protocol):
    """Chooses data; whoever coordinates writes one.

    It may have ``joined(coordinator)``, told its coordinator before all else; ``learnt(learner, info)``, told each info
    once and in order; ``handed_out(learner, demand, data)``, told what was decided; and ``state_dict`` and
    ``load_state_dict``. A coordinator that was killed tells a new chooser the whole story, in the same order, and asks
    it only for what had not been asked.
    """

    def sample(self, learner: str, demand: Demand) -> Sequence[Any] | None:
        """JSON values: as many samples as the demand says, or None where there are no more."""
        ...


class LearnerLostError(TimeoutError):
    """Nobody was there for a learner's name for too long."""


class DemandForgottenError(LookupError):
    """A learner goes on from a checkpoint whose next batches are not kept any more."""


class Coordinator:
    """Drives the learners of ``place`` with what ``chooser`` says. ``journal`` is a file of its own.

    What it decides is on the disk before a learner gets it, and what it hears before the learner may drop it. So it,
    and any learner, may be killed at any moment and started again: each demand is decided once, each info told once.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        chooser: Chooser,
        journal: str | os.PathLike[str],
        lost_after_s: float = LOST_AFTER_S,
    ) -> None:
        _require_chooser(chooser)
        self._lost_after_s = seconds(lost_after_s, what="lost_after_s", may_be_zero=False)
        self._place, self._chooser = Path(place).absolute(), chooser
        require_own(self._place)
        self._journal = Journal(journal)
        self._id = ""
        self._decided: dict[str, dict[int, list[Any] | None]] = {}
        self._heard: dict[str, int] = {}  # by learner: the iteration up to which it was heard
        self._ended: dict[str, Ended] = {}
        self._closing: set[str] = set()
        self._is_torn = False  # what it knows may be other than what is on the disk, or than what its chooser was told
        self._noted: set[str] = set()  # those of them that are in the journal
        self._teller: int | None = None  # the thread that tells the chooser a line of the story
        try:
            if hasattr(chooser, "joined"):
                chooser.joined(self)
            for line in self._journal.lines():
                self._fold(line)
            if not self._id:
                self._record({"kind": "journal", "version": VERSION, "id": os.urandom(6).hex()})
        except BaseException:
            self._journal.close()
            raise

    def run(self, tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, Ended]:
        """Until all learners have ended; ``tasks`` are their names, each with the info that it is started with.

        LearnerLostError for one that nobody is for ``lost_after_s``; LearnerRefusedError for one that is at another
        task, or was started with other info. What the chooser raises comes through as it is.
        """
        self._require_whole()
        for name, info in _checked(tasks).items():
            _require_sendable(name, info)
            self._heard.setdefault(name, 0)
            self._decided.setdefault(name, {})
        links = [
            Link(self._place, name, task_id=f"{self._id}/{name}", info=dict(info))
            for name, info in tasks.items()
            if name not in self._ended
        ]
        try:
            while waiting := [link for link in links if link.name not in self._ended]:
                self._round(waiting)
        finally:
            for link in links:
                link.close()
        return {name: self._ended[name] for name in tasks}

    def close_learner(self, name: str) -> None:
        """It ends after the iteration that runs. For the chooser, too.

        It is in the journal before the learner is told, and before whatever the chooser decides or hears next. What a
        chooser closes when it is told something it has to close again when a new coordinator tells it: RuntimeError
        where it has no ``joined``, and so would not know that coordinator.
        """
        learner_name(name)
        if self._teller == threading.get_ident() and not hasattr(self._chooser, "joined"):
            raise RuntimeError(
                f"learner {name!r} was not closed: a chooser that closes learners when it is told something, in "
                "learnt() or handed_out(), has joined(coordinator), so that it can do so again when it is told the "
                "story after a restart; or it closes them in sample()"
            )
        self._closing.add(name)

    def close(self) -> None:
        """Learners wait for the next coordinator."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    # ── the loop ────────────────────────────────────────────────────────────────────────────────
    def _round(self, links: Sequence[Link]) -> None:
        poller, now = select.poll(), time.monotonic()
        connected: dict[int, Link] = {}
        for link in links:
            left = link.connect(now)
            if left is not None:
                self._take(link, left)
            if link.descriptor is not None:
                connected[link.descriptor] = link
                poller.register(link.descriptor, link.events())
        due = min((link.due for link in links if link.descriptor is None), default=now + LOOK_S)
        ready = dict(poller.poll(max(0.0, min(due - now, LOOK_S)) * 1000))
        waited_s = time.monotonic() - now
        for link in links:
            if link.descriptor in ready:
                for answer in link.attend(ready[link.descriptor]):
                    self._take(link, answer)
                    self._ask(link)
            elif link.was_silent(waited_s) > self._lost_after_s:
                raise LearnerLostError(
                    f"nobody has answered as learner {link.name!r} in {self._place} for {self._lost_after_s:g} s: "
                    "start it again, or leave it out"
                )

    def _take(self, link: Link, answer: Mapping[str, Any]) -> None:
        """What stands in an answer, or in the record of a learner that is gone."""
        with self._undisturbed():
            self._hear(link, answer)

    def _hear(self, link: Link, answer: Mapping[str, Any]) -> None:
        name = link.name
        for plain in answer.get("learnt", ()):
            info: LearnInfo = from_plain(LearnInfo, plain, where="learnt")
            if info.number > self._heard[name]:
                self._record({"kind": "learnt", "learner": name, "info": to_plain(info)})
        if answer.get("ended") is not None:
            ended: Ended = from_plain(Ended, answer["ended"], where="ended")
            self._record({"kind": "ended", "learner": name, "ended": to_plain(ended)})
        elif answer.get("demand") is not None:
            demand: Demand = from_plain(Demand, answer["demand"], where="demand")
            link.wants(demand, self._data_for(name, demand))

    def _ask(self, link: Link) -> None:
        if link.name in self._ended:
            return
        with self._undisturbed():
            self._note_closing()
        link.ask(after=self._heard[link.name], closing=link.name in self._closing)

    def _data_for(self, name: str, demand: Demand) -> list[Any] | None:
        decided, iteration = self._decided[name], demand.cur_learner_iter
        if iteration not in decided:
            if decided and iteration < max(decided):
                raise DemandForgottenError(
                    f"learner {name!r} wants the batch of iteration {iteration} again, and the last {DEMANDS_KEPT} are "
                    "kept: it should save checkpoints more often"
                )
            data = self._chooser.sample(name, demand)
            data = None if data is None else _listed(data, demand.batch_size)
            try:
                self._record({"kind": "demand", "learner": name, "demand": to_plain(demand), "data": data or None})
            except TypeError as error:
                raise TypeError(
                    f"what the chooser gave learner {name!r} for iteration {iteration} cannot be sent: {error}; "
                    "sample() returns JSON values, such as the names of files"
                ) from error
        return decided[iteration]

    # ── over an interruption ────────────────────────────────────────────────────────────────────
    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """After an interruption (Ctrl-C) in it nobody goes on with this coordinator: it may know half of the story."""
        self._require_whole()
        self._is_torn = True
        try:
            yield
        except Exception:  # of the chooser, or of the disk: then nothing has changed
            self._is_torn = False
            raise
        self._is_torn = False

    def _require_whole(self) -> None:
        self._journal.require_open()
        if self._is_torn:
            raise JournalError(
                f"this coordinator was interrupted while it wrote {self._journal.path} or asked its chooser; close it "
                "and make a new one, with a new chooser, to go on"
            )

    # ── the story ───────────────────────────────────────────────────────────────────────────────
    def _record(self, line: Mapping[str, Any]) -> None:
        self._note_closing()
        self._fold(self._journal.add(line))
        if self._journal.is_long and hasattr(self._chooser, "state_dict"):
            self._journal.replace(self._snapshot())

    def _note_closing(self) -> None:
        for name in sorted(self._closing - self._noted):
            self._fold(self._journal.add({"kind": "closing", "learner": name}))

    def _fold(self, line: Mapping[str, Any]) -> None:
        """The same from the disk as when it happened."""
        name = line.get("learner", "")
        match line.get("kind"):
            case "journal":
                self._id = line["id"]
            case "demand":
                demand: Demand = from_plain(Demand, line["demand"], where="demand")
                decided = self._decided.setdefault(name, {})
                decided[demand.cur_learner_iter] = line["data"]
                if len(decided) > DEMANDS_KEPT:
                    del decided[next(iter(decided))]
                self._tell("handed_out", name, demand, line["data"])
            case "learnt":
                info: LearnInfo = from_plain(LearnInfo, line["info"], where="learnt")
                self._heard[name] = info.number
                self._tell("learnt", name, info)
            case "closing":
                self._closing.add(name)
                self._noted.add(name)
            case "ended":
                self._ended[name] = from_plain(Ended, line["ended"], where="ended")
            case "snapshot":
                self._load(line)
            case other:
                raise JournalError(f"{self._journal.path} has a line of an unknown kind {other!r}")

    def _tell(self, what: str, *arguments: Any) -> None:
        """The chooser, if it wants to know."""
        if hasattr(self._chooser, what):
            self._teller = threading.get_ident()
            try:
                getattr(self._chooser, what)(*arguments)
            finally:
                self._teller = None

    def _snapshot(self) -> dict[str, Any]:
        return {
            "kind": "snapshot",
            "id": self._id,
            "decided": {name: list(found.items()) for name, found in self._decided.items()},
            "heard": self._heard,
            "ended": {name: to_plain(ended) for name, ended in self._ended.items()},
            "closing": sorted(self._closing),
            "chooser": self._chooser.state_dict(),  # type: ignore[attr-defined]  # the caller has looked
        }

    def _load(self, line: Mapping[str, Any]) -> None:
        self._id, self._heard = line["id"], dict(line["heard"])
        self._decided = {name: dict(found) for name, found in line["decided"].items()}
        self._ended = {name: from_plain(Ended, found, where="ended") for name, found in line["ended"].items()}
        self._closing.update(line.get("closing", ()))  # snapshots of earlier versions have none
        self._noted = set(line.get("closing", ()))
        self._chooser.load_state_dict(line["chooser"])  # type: ignore[attr-defined]  # it has a state


# ── what the caller and its chooser give ────────────────────────────────────────────────────────
def _require_chooser(chooser: Any) -> None:
    if isinstance(chooser, type) or not callable(getattr(chooser, "sample", None)):
        raise TypeError(f"chooser is an object with sample(learner, demand), not {chooser!r:.60}")
    if hasattr(chooser, "state_dict") != hasattr(chooser, "load_state_dict"):
        raise TypeError(
            f"the chooser, a {type(chooser).__name__}, has only one of state_dict and load_state_dict: with both the "
            "journal is shortened, and with neither it is not"
        )


def _checked(tasks: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(tasks, Mapping):
        raise TypeError(f"run takes a mapping of learners to infos, as {{'left': {{'lr': 0.1}}}}, not {tasks!r:.60}")
    return tasks


def _require_sendable(name: Any, info: Any) -> None:
    """The info of a task, as a frame can hold it. TypeError and ValueError name the learner."""
    if not isinstance(name, str):
        raise TypeError(f"a learner's name is text, not {name!r:.60}")
    learner_name(name)
    if not isinstance(info, Mapping):
        raise TypeError(f"learner {name!r}: its info is a mapping of JSON values, not {info!r:.60}")
    try:
        size = len(json.dumps(dict(info)))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"learner {name!r}: its info cannot be sent: {error}; it has JSON values only") from None
    if size > INFO_BYTES:
        raise ValueError(f"learner {name!r}: its info has {size} bytes, and {INFO_BYTES} at most can be sent")


def _listed(data: Any, wanted: int) -> list[Any]:
    """What the chooser gave, which may be a generator without an end."""
    if isinstance(data, (str, bytes, Mapping)) or not isinstance(data, Iterable):
        raise TypeError(f"the chooser gave a {type(data).__name__}: sample() returns a list of JSON values, or None")
    found = list(islice(data, wanted + 1))
    if len(found) > wanted:
        raise ValueError(f"the chooser gave more samples than the {wanted} that were wanted")
    return found
