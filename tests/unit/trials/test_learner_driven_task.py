"""A learner's task: started once, each batch given once, what was learnt told in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trials.learner.coordination.driven_task import INFO_BYTES, LEARNT_BYTES, DrivenTask
from trials.learner.coordination.frames import FRAME_BYTES, Frames, encode, learner_name
from trials.learner.coordination.messages import (
    TASKS,
    Close,
    Demand,
    GetData,
    Learn,
    LearnInfo,
    RefusedError,
    Start,
    read_request,
)
from trials.wire.plain import ProtocolError

TASK = "a1/left"


def a_task(**info: Any) -> DrivenTask:
    task = DrivenTask()
    task.start(Start(task_id=TASK, info=info))
    return task


def asked(after: int = 0) -> GetData:
    return GetData(task_id=TASK, after=after)


def data_of(iteration: int, data: list[Any] | None) -> Learn:
    return Learn(task_id=TASK, cur_learner_iter=iteration, data=data)


def an_info(number: int, *, samples: tuple[Any, ...] = ()) -> LearnInfo:
    return LearnInfo(number=number, metrics={"loss": 0.5}, samples=list(samples), priorities=[1.0] * len(samples))


def refused(kind: str) -> Any:
    return pytest.raises(RefusedError, check=lambda error: error.kind == kind)


# ── starting and closing ────────────────────────────────────────────────────────────────────────
def test_the_same_start_is_new_once() -> None:
    task = DrivenTask()

    infos = [{"lr": 0.1, "best": float("nan")}, {"best": float("nan"), "lr": 0.1}]
    assert [task.start(Start(task_id=TASK, info=info)) for info in infos] == [True, False]
    assert task.info["lr"] == 0.1


def test_another_task_or_other_info_is_refused_by_name() -> None:
    task = a_task(lr=0.1, seed=1)

    with refused("other_task"):
        task.start(Start(task_id="b2/left", info={}))
    with pytest.raises(RefusedError, match=r"another lr$"):
        task.start(Start(task_id=TASK, info={"lr": 0.2, "seed": 1}))
    assert task.info == {"lr": 0.1, "seed": 1}


def test_before_its_start_a_learner_takes_no_other_request() -> None:
    task = DrivenTask()
    for request in (asked(), data_of(0, [1]), Close(task_id=TASK)):
        with refused("not_started"):
            {GetData: task.has_news, Learn: task.learn, Close: task.close}[type(request)](request)


def test_closing_is_new_once_and_wants_no_more_data() -> None:
    task = a_task()
    task.want(Demand(batch_size=2, cur_learner_iter=0))

    assert [task.close(Close(task_id=TASK)) for _ in range(2)] == [True, False]
    assert task.is_closed
    assert task.news()["demand"] is None
    with refused("no_such_demand"):
        task.learn(data_of(0, [1, 2]))


# ── data ────────────────────────────────────────────────────────────────────────────────────────
def test_the_data_of_a_demand_is_taken_once_and_may_be_said_again() -> None:
    task = a_task()
    task.want(Demand(batch_size=2, cur_learner_iter=3))
    assert task.has_news(asked())
    assert task.news()["demand"] == {"batch_size": 2, "cur_learner_iter": 3}

    task.learn(data_of(3, ["a", "b"]))
    task.learn(data_of(3, ["a", "b"]))

    assert not task.has_news(asked())
    assert task.taken() == (True, ["a", "b"])
    assert task.taken() == (False, None)
    task.learn(data_of(3, ["a", "b"]))
    assert task.taken() == (False, None)
    with refused("wrong_data"):
        task.learn(data_of(3, ["a", "c"]))


@pytest.mark.parametrize(("data", "kind"), [([], "wrong_data"), ([1, 2, 3], "wrong_data")])
def test_as_many_samples_as_are_wanted(data: list[int], kind: str) -> None:
    task = a_task()
    task.want(Demand(batch_size=2, cur_learner_iter=0))
    with refused(kind):
        task.learn(data_of(0, data))
    task.learn(data_of(0, [1]))
    assert task.taken() == (True, [1])


def test_data_that_nobody_asked_for_is_refused_and_says_what_is_wanted() -> None:
    task = a_task()
    with pytest.raises(RefusedError, match="wants none now"):
        task.learn(data_of(0, [1]))
    task.want(Demand(batch_size=1, cur_learner_iter=5))
    with pytest.raises(RefusedError, match="that of iteration 5 now"):
        task.learn(data_of(6, [1]))


def test_after_the_end_of_the_data_every_demand_is_met_by_the_end() -> None:
    task = a_task()
    task.want(Demand(batch_size=2, cur_learner_iter=0))
    task.learn(data_of(0, None))
    assert task.taken() == (True, None)
    task.want(Demand(batch_size=2, cur_learner_iter=0))
    assert task.taken() == (True, None)


def test_a_training_that_goes_back_to_the_batch_before_is_given_it_again() -> None:
    task = a_task()
    for _ in range(2):
        task.want(Demand(batch_size=2, cur_learner_iter=3))
        assert task.taken() == (False, None)
        task.learn(data_of(3, ["a", "b"]))
        assert task.taken() == (True, ["a", "b"])


def test_a_training_that_goes_back_from_the_end_of_the_data_is_given_what_stands_before_it() -> None:
    task = a_task()
    task.want(Demand(batch_size=2, cur_learner_iter=3))
    task.learn(data_of(3, None))
    assert task.taken() == (True, None)

    task.want(Demand(batch_size=2, cur_learner_iter=2))
    assert task.taken() == (False, None)
    task.learn(data_of(2, ["a", "b"]))
    assert task.taken() == (True, ["a", "b"])
    task.want(Demand(batch_size=2, cur_learner_iter=3))
    assert task.taken() == (True, None)


# ── what was learnt ─────────────────────────────────────────────────────────────────────────────
def test_what_was_learnt_is_told_until_it_was_taken() -> None:
    task = a_task()
    for number in (1, 2, 3):
        task.add(an_info(number))

    assert task.has_news(asked(after=1))
    assert [info["number"] for info in task.news()["learnt"]] == [2, 3]
    assert [info["number"] for info in task.news()["learnt"]] == [2, 3]
    assert not task.has_news(asked(after=3))


def test_what_is_wanted_and_the_end_come_with_the_last_of_what_was_learnt() -> None:
    task = a_task()
    task.want(Demand(batch_size=1, cur_learner_iter=9))
    samples = tuple("x" * 1000 for _ in range(INFO_BYTES // 1100))
    for number in range(1, 10):
        task.add(an_info(number, samples=samples))
    task.end(finished=True)
    seen: list[int] = []

    while not seen or seen[-1] < 9:
        assert task.has_news(asked(after=seen[-1] if seen else 0))
        news = task.news()
        assert len(encode({"ok": news})) <= FRAME_BYTES
        seen += [info["number"] for info in news["learnt"]]
        assert (news["ended"] is not None) == (seen[-1] == 9)
    assert seen == list(range(1, 10))
    assert news["ended"] == {"finished": True, "step": 9}


def test_a_learner_has_room_until_sixteen_mebibytes_were_not_taken() -> None:
    task, number = a_task(), 0
    samples = tuple("x" * 1000 for _ in range(INFO_BYTES // 1100))
    while task.has_room():
        number += 1
        task.add(an_info(number, samples=samples))
    assert LEARNT_BYTES / INFO_BYTES <= number <= 2 * LEARNT_BYTES / INFO_BYTES

    task.has_news(asked(after=number))
    assert task.has_room()


def test_too_much_of_one_iteration_is_refused_and_nothing_is_kept() -> None:
    task = a_task()
    with pytest.raises(ValueError, match="fewer samples"):
        task.add(an_info(1, samples=("x" * INFO_BYTES,)))
    assert task.news()["learnt"] == []


# ── over a restart ──────────────────────────────────────────────────────────────────────────────
def test_a_checkpoint_holds_what_was_not_taken() -> None:
    task = a_task()
    for number in (1, 2):
        task.add(an_info(number, samples=("a",)))
    task.has_news(asked(after=1))
    state = json.loads(json.dumps(task.state_dict()))
    again = a_task()
    again.load_state_dict(state)

    assert again.news() == task.news()
    assert again.step == 2


def test_a_checkpoint_of_another_task_is_refused() -> None:
    other = DrivenTask()
    other.start(Start(task_id="b2/left", info={}))
    with pytest.raises(ValueError, match=r"of task 'a1/left', and the learner is at 'b2/left'"):
        other.load_state_dict(a_task().state_dict())


def test_a_learner_that_begins_anew_has_its_task_and_knows_that_it_was_closed() -> None:
    task = a_task(lr=0.1)
    task.close(Close(task_id=TASK))
    task.end(finished=False)
    again = DrivenTask()
    again.load_record(json.loads(json.dumps(task.record())))

    assert (again.task_id, again.info, again.is_closed, again.is_ended) == (TASK, {"lr": 0.1}, True, False)
    with pytest.raises(ProtocolError):
        DrivenTask().load_record({"task_id": 3})


def test_a_learner_that_had_finished_and_begins_anew_waits_for_no_data_of_its_coordinator() -> None:
    task = a_task()
    task.add(an_info(1))
    task.add(an_info(2))
    task.end(finished=True)
    again = DrivenTask()
    again.load_record(json.loads(json.dumps(task.record())))

    again.want(Demand(batch_size=2, cur_learner_iter=1))  # from the checkpoint before
    assert again.taken() == (False, None)
    again.want(Demand(batch_size=2, cur_learner_iter=2))
    assert again.taken() == (True, None)
    assert not again.is_closed


def test_a_learner_that_had_stopped_for_good_and_begins_anew_is_to_end() -> None:
    task = a_task()
    task.end(finished=False)
    again = DrivenTask()
    again.load_record(json.loads(json.dumps(task.record())))

    assert again.is_closed


# ── messages and frames ─────────────────────────────────────────────────────────────────────────
def test_a_task_that_there_is_none_of_is_answered_by_name() -> None:
    with pytest.raises(RefusedError, match="no task 'lern'; a learner knows resource, start, get_data, learn, close"):
        read_request({"task": "lern"})


@pytest.mark.parametrize(
    "message",
    [
        {"task": None},
        {"task": ["learn"]},
        {"task": "start", "task_id": 1, "info": {}},
        {"task": "start", "task_id": "a", "info": []},
        {"task": "get_data", "task_id": "a"},
        {"task": "learn", "task_id": "a", "cur_learner_iter": 1.5, "data": []},
        {"task": "learn", "task_id": "a", "cur_learner_iter": 1, "data": "abc"},
    ],
    ids=str,
)
def test_a_request_that_is_wrong_says_what(message: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, check=lambda error: error.kind in {"malformed", "unknown_task"}):
        read_request(message)


def test_every_task_of_the_table_is_read() -> None:
    given = {"task_id": "a", "info": {}, "after": 0, "cur_learner_iter": 0, "data": None}
    for name, kind in TASKS.items():
        assert isinstance(read_request({"task": name, **given}), kind)


def test_frames_are_found_however_they_are_cut() -> None:
    messages = [{"task": "resource"}, {"text": "ü" * 50}, {}]
    data = b"".join(map(encode, messages))
    for size in (1, 3, 7, len(data)):
        frames, found = Frames(), []
        for begin in range(0, len(data), size):
            frames.add(data[begin : begin + size])
            while (message := frames.next()) is not None:
                found.append(message)
        assert found == messages


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", b"\0\0\0\x02[]", b"\0\0\0\x03abc", b"\0\0\0\x02\xff\xfe", b"\0\x01\x86\xa0" + b"[" * 100_000],
    ids=["too long", "a list", "no JSON", "no text", "deep"],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    frames = Frames()
    frames.add(data)
    with pytest.raises(ProtocolError):
        frames.next()


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 65, "a\n"])
def test_a_name_is_that_of_a_file(name: str) -> None:
    with pytest.raises(ValueError, match="a learner's name"):
        learner_name(name)
