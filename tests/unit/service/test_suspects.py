"""Whose command it was: counted, forgotten, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, START, a_spec
from tuner_service.dispatcher import commands as c
from tuner_service.service.suspects import (
    CAREFUL_S,
    CAUSES_LIMIT,
    ENOUGH,
    MANY,
    REFUSED_MOST_S,
    REFUSED_S,
    REMEMBERED_S,
    WHY_SHOWN,
    Suspects,
)

FAULT = KeyError("gone")


def died(experiment_id: str = EXPERIMENT_ID) -> c.WorkerDied:
    return c.WorkerDied(at=START, experiment_id=experiment_id, generation=1, detail="killed")


def created(experiment_id: str, **spec: Any) -> c.ExperimentCreated:
    return c.ExperimentCreated(at=START, experiment_id=experiment_id, spec=a_spec(**spec))


def blamed(command: c.Command | None, *, times: int = ENOUGH, apart_s: float = 0.0) -> Suspects:
    suspects = Suspects()
    for count in range(times):
        suspects.blame(command, FAULT, START + count * apart_s)
    return suspects


def test_what_one_of_several_has_done_is_nobodys_and_makes_careful() -> None:
    suspects = blamed(None, times=10)

    assert not suspects.aside
    assert [suspects.is_careful(START + passed) for passed in (0.0, CAREFUL_S - 1, CAREFUL_S, -1.0)] == [
        *(True, True),
        *(False, False),
    ]


def test_once_may_be_the_machines() -> None:
    assert not blamed(died(), times=ENOUGH - 1).aside
    assert list(blamed(died()).aside) == [EXPERIMENT_ID]


def test_failures_far_from_each_other_are_not_added_up() -> None:
    assert not blamed(died(), times=5, apart_s=REMEMBERED_S).aside
    assert blamed(died(), times=5, apart_s=REMEMBERED_S - 1).aside


@pytest.mark.parametrize(
    ("command", "same", "other"),
    [
        (created("a"), created("b"), died()),
        (created("a"), created("b"), created("c", name="of somebody else")),
        (c.AgentRetired(at=START, agent_id="a"), c.AgentRetired(at=START, agent_id="a"), died()),
        (
            c.AgentRetired(at=START, agent_id="a"),
            c.AgentRetired(at=START, agent_id="a"),
            c.AgentRetired(at=START, agent_id="b"),
        ),
        (
            c.ExperimentPaused(at=START, experiment_id="a"),
            c.ExperimentPaused(at=START, experiment_id="a"),
            c.ExperimentStopped(at=START, experiment_id="a"),
        ),
    ],
)
def test_what_is_no_experiments_is_refused_for_a_while_and_nothing_else(
    command: c.Command, same: c.Command, other: c.Command
) -> None:
    suspects = blamed(command)

    assert not suspects.aside
    assert "KeyError" in suspects.refusal(same, START)
    assert not suspects.refusal(other, START)
    assert not suspects.refusal(same, START + REFUSED_S)


def test_a_token_whose_requests_fail_under_ever_other_names_is_refused_that_kind_and_nobody_else_is() -> None:
    """Each costs all others some seconds."""
    suspects = Suspects()

    def asked(name: str, by: str) -> c.ExperimentCreated:
        return c.ExperimentCreated(at=START, experiment_id=name, spec=a_spec(name=name), by=by)

    def refused(by: str, at: float = START) -> bool:
        return bool(suspects.refusal(asked("another", by), at))

    for number in range(MANY):
        assert not refused("alice")
        suspects.blame(asked(f"n{number}", "alice"), FAULT, START)

    assert "of the same token have failed 6 times" in suspects.refusal(asked("another", "alice"), START)
    assert not refused("bob")
    assert not suspects.refusal(c.ExperimentStopped(at=START, experiment_id="a", by="alice"), START)
    assert [refused("alice", START + passed) for passed in (REFUSED_S - 1, REFUSED_S)] == [True, False]

    again = START + REFUSED_S
    suspects.blame(asked("again", "alice"), FAULT, again)
    assert [refused("alice", again + passed) for passed in (REFUSED_S, 2 * REFUSED_S)] == [True, False]
    for number in range(MANY):
        suspects.blame(asked(f"more{number}", "alice"), FAULT, again)
    assert [refused("alice", again + passed) for passed in (REFUSED_MOST_S - 1, REFUSED_MOST_S)] == [True, False]


def test_who_was_at_work_is_blamed_and_not_whoever_let_its_trials_start() -> None:
    suspects = Suspects()
    for command in (died("a"), c.AgentConnected(at=START, agent_id="n", cpus=1, memory_bytes=1, attempts=())):
        suspects.blame(command, FAULT, START, at_work="b")

    assert list(suspects.aside) == ["b"]
    assert not suspects.refusal(command, START)


def test_that_a_node_has_gone_is_never_refused() -> None:
    """It is said once, and what runs there would be waited for."""
    gone = c.AgentDisconnected(at=START, agent_id="a")

    assert not blamed(gone).refusal(gone, START)


def test_nobody_is_blamed_where_there_is_no_memory() -> None:
    suspects = Suspects()
    for _ in range(10):
        suspects.blame(died(), MemoryError(), START)

    assert (dict(suspects.aside), suspects.is_careful(START)) == ({}, True)


def test_time_is_never_refused_and_has_each_experiment_tried_until_one_is_found() -> None:
    tick = c.TimePassed(at=START)
    assert not blamed(tick, times=ENOUGH - 1).looks_at_each()
    suspects = blamed(tick)

    assert (suspects.looks_at_each(), suspects.refusal(tick, START)) == (True, "")
    suspects.set_aside(EXPERIMENT_ID, "KeyError")
    assert not suspects.looks_at_each()


def test_what_is_remembered_has_a_bound_and_goes_with_its_experiment() -> None:
    suspects = Suspects()
    for number in range(CAUSES_LIMIT + 10):
        suspects.blame(died(str(number)), FAULT, START)
    assert len(suspects._failures) == CAUSES_LIMIT
    suspects.blame(died("1000"), KeyError("x" * 10_000), START)
    assert len(suspects.aside["1000"]) < WHY_SHOWN + 400

    suspects.keep({"2"})
    assert not suspects.aside
