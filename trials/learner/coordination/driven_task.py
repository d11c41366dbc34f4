"""The learner's side of a task: what it wants, what it has been given, what it has learnt. No sockets, no threads."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from trials.learner.coordination.frames import FRAME_BYTES
from trials.learner.coordination.messages import Close, Demand, GetData, Learn, LearnInfo, RefusedError, Start
from trials.wire.plain import ProtocolError, from_plain, to_plain

INFO_BYTES = 1 << 20  # of one iteration
LEARNT_BYTES = 16 << 20  # of what no coordinator has taken: then the learner waits
RECORD_BYTES = 4 * LEARNT_BYTES
ANSWER_BYTES = FRAME_BYTES - (1 << 16)  # of what was learnt, in one answer
_NOTHING: Any = object()


class DrivenTask:
    """One task at most, from its start to its end; started or ended once, it stays so. Used under its port's lock."""

    def __init__(self) -> None:
        self.task_id: str | None = None
        self.info: dict[str, Any] = {}
        self.step = 0
        self.is_closed = False  # it is to end
        self.is_ended = self.is_finished = False  # it has; it came to its own end
        self.demand: Demand | None = None
        self._data: Any = _NOTHING  # that of ``demand``, which the loader has not taken yet
        self.had_finished_at: int | None = None  # in an earlier life: iterations that were done then
        self._no_more_from: int | None = None  # the iteration for which there was no data, nor is there after it
        self._met: tuple[int, str] | None = None  # the demand that was met last, and its data as text
        self._learnt: deque[tuple[LearnInfo, int]] = deque()  # with their sizes
        self._learnt_bytes = 0

    # ── what a coordinator asks ─────────────────────────────────────────────────────────────────
    def start(self, request: Start) -> bool:
        """Whether it is new. RefusedError for another task, and for the same with other info."""
        if self.task_id is None:
            self.task_id, self.info = request.task_id, request.info
            return True
        self.require(request.task_id)
        names = sorted(k for k in {*self.info, *request.info} if _text(self.info.get(k)) != _text(request.info.get(k)))
        if names:
            raise RefusedError("other_info", f"task {self.task_id!r} was started with another {', '.join(names)[:300]}")
        return False

    def require(self, task_id: str) -> None:
        """RefusedError unless it is at this task."""
        if self.task_id is None:
            raise RefusedError("not_started", f"the learner has no task yet: send start for {task_id[:100]!r} first")
        if task_id != self.task_id:
            state = "has ended" if self.is_ended else "is at"
            raise RefusedError(
                "other_task",
                f"the learner {state} task {self.task_id!r}, not {task_id[:100]!r}; a learner has one task in its "
                "life: give the other one to a learner of another name",
            )

    def has_news(self, request: GetData) -> bool:
        """Whether there is anything to answer. What was learnt up to ``after`` is dropped."""
        self.require(request.task_id)
        while self._learnt and self._learnt[0][0].number <= request.after:
            self._learnt_bytes -= self._learnt.popleft()[1]
        return bool(self._learnt) or self.is_ended or self._open_demand() is not None

    def news(self) -> dict[str, Any]:
        infos: list[Any] = []
        size = 0
        for info, length in self._learnt:
            size += length
            if infos and size > ANSWER_BYTES:
                break
            infos.append(to_plain(info))
        # What is wanted, and how it ended, come with the last of what was learnt before: so both are told in order.
        is_all = len(infos) == len(self._learnt)
        demand = self._open_demand() if is_all else None
        return {
            "task_id": self.task_id,
            "step": self.step,
            "demand": None if demand is None else to_plain(demand),
            "learnt": infos,
            "ended": {"finished": self.is_finished, "step": self.step} if is_all and self.is_ended else None,
        }

    def learn(self, request: Learn) -> None:
        """The same data for the same demand is taken once and answered twice. RefusedError for anything else."""
        self.require(request.task_id)
        number, text = request.cur_learner_iter, _text(request.data)
        demand = self._open_demand()
        is_wanted = demand is not None and number == demand.cur_learner_iter
        if self._met is not None and number == self._met[0]:
            if text != self._met[1]:
                raise RefusedError("wrong_data", f"there was other data for iteration {number} already")
            if not is_wanted:
                return  # else the training has gone back to it
        if demand is None or not is_wanted:
            wanted = "wants none" if demand is None else f"wants that of iteration {demand.cur_learner_iter}"
            raise RefusedError(
                "no_such_demand", f"no data is wanted for iteration {number}: the learner {wanted} now; ask again"
            )
        if request.data is not None and not 0 < len(request.data) <= demand.batch_size:
            raise RefusedError(
                "wrong_data",
                f"{demand.batch_size} samples are wanted for iteration {number}, not {len(request.data)}: only the "
                "last batch may have fewer, and null says that there are no more",
            )
        self._data, self._met = request.data, (number, text)
        if request.data is None:
            self._no_more_from = number

    def forget(self) -> None:
        """It was not started after all."""
        self.task_id, self.info = None, {}

    def close(self, request: Close) -> bool:
        """Whether it is new; what has finished stays so."""
        self.require(request.task_id)
        is_new = not self.is_closed and not self.is_ended
        self.is_closed = self.is_closed or is_new
        return is_new

    def reopen(self) -> None:
        """It was not closed after all."""
        self.is_closed = False

    def _open_demand(self) -> Demand | None:
        return None if self._data is not _NOTHING or self.is_closed or self.is_ended else self.demand

    # ── what the training does ──────────────────────────────────────────────────────────────────
    def want(self, demand: Demand) -> None:
        self.demand, self._data = demand, _NOTHING

    def taken(self) -> tuple[bool, list[Any] | None]:
        """(True, data) once the demand is met, or there will be no more."""
        if self._data is _NOTHING and not self._is_past_the_end():
            return False, None
        data, self._data, self.demand = self._data, _NOTHING, None
        return True, None if data is _NOTHING else data

    def _is_past_the_end(self) -> bool:
        end = self._no_more_from
        return self.demand is not None and end is not None and self.demand.cur_learner_iter >= end

    def has_room(self) -> bool:
        return self._learnt_bytes < LEARNT_BYTES

    def end(self, *, finished: bool) -> None:
        self.is_ended, self.is_finished = True, finished

    def add(self, info: LearnInfo) -> None:
        """ValueError for one that is larger than INFO_BYTES; TypeError for samples that JSON cannot name."""
        size = len(json.dumps(to_plain(info), separators=(",", ":")))
        if size > INFO_BYTES:
            raise ValueError(
                f"what iteration {info.number} has learnt takes {size} bytes, and {INFO_BYTES} at most are told: "
                "report the priorities of fewer samples"
            )
        self._learnt.append((info, size))
        self._learnt_bytes += size
        self.step = info.number

    # ── over a restart ──────────────────────────────────────────────────────────────────────────
    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of it: what was learnt and not taken."""
        return {"task_id": self.task_id, "step": self.step, "learnt": [to_plain(info) for info, _ in self._learnt]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """ValueError for a checkpoint of another task."""
        if state["task_id"] != self.task_id:
            raise ValueError(
                f"the checkpoint is of task {state['task_id']!r}, and the learner is at {self.task_id!r}: "
                "begin another task in another folder"
            )
        self._learnt.clear()
        self._learnt_bytes = 0
        for plain in state["learnt"]:
            self.add(from_plain(LearnInfo, plain, where="learnt"))
        self.step = state["step"]

    def record(self) -> dict[str, Any]:
        """What is known of it where its process is gone."""
        return {
            **self.state_dict(),
            "info": self.info,
            "closed": self.is_closed,
            "ended": self.is_ended,
            "finished": self.is_finished,
        }

    def load_record(self, record: Mapping[str, Any]) -> None:
        """For a learner that begins anew, which has not ended until it says so once more. Where it had ended, its
        coordinator may be gone: there is no more data for it, or it is to end. ProtocolError for what is no record."""
        if not isinstance(record.get("task_id"), str) or not isinstance(record.get("info"), dict):
            raise ProtocolError("no task is in it")
        self.task_id, self.info = record["task_id"], record["info"]
        had_ended, had_finished = (record.get(name) is True for name in ("ended", "finished"))
        self.is_closed = record.get("closed") is True or (had_ended and not had_finished)
        if had_finished:
            self.had_finished_at = self._no_more_from = int(record.get("step", 0))


def _text(value: Any) -> str:
    """Values of JSON are the same where this is: NaN, too."""
    return json.dumps(value, sort_keys=True)
