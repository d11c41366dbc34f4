"""Trials of two nodes, each an agent of a home of its own: launched together, ended together, whatever is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Home, values
from tests.gangs_campaign import IMPORTS, run
from tests.integration.test_documented_scripts import training_scripts
from tests.joined_agents import JoinedAgent, joined, service_without_own_agent
from tests.process_table import processes
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# Two processes that are no use alone: a gradient is the sum of both.
TRAIN = """
import os, pathlib, time

import torch
import torch.distributed as dist

import trials

dist.init_process_group("gloo")
rank = dist.get_rank()
gate = pathlib.Path(os.environ["GATE"])
with trials.init() as trial:
    torch.manual_seed(trial.seed)
    weight = torch.randn(4, 8)
    state = {"weight": weight, "step": torch.tensor(-1)}
    trial.restore(into=state)
    for step in range(int(state["step"]) + 1, 12):
        batch = torch.full((8,), (step + 1) * (rank + 1) * trial.parameters["x"] / 100)
        gradient = torch.outer(weight @ batch, batch)
        dist.all_reduce(gradient)
        weight -= 0.01 * gradient
        trial.report(step=step, loss=float(weight.double().square().sum()))
        if step % 3 == 2:
            state["step"].fill_(step)
            trial.save_checkpoint(state, step=step, sharded=True)
        pathlib.Path("pid").write_text(str(os.getpid()))
        while step == 6 and not gate.exists():
            time.sleep(0.02)
    trial.report_final(loss=float(weight.double().square().sum()))
    print("rank", rank, "of", dist.get_world_size(), "is done")
dist.destroy_process_group()
"""


@pytest.fixture
def nodes(home: Home) -> Iterator[tuple[JoinedAgent, JoinedAgent]]:
    with ExitStack() as stack:
        stack.enter_context(service_without_own_agent(home))
        made = [stack.enter_context(joined(home, name)) for name in ("near", "far")]
        with home.service() as service:
            wait_until(lambda: len(service.agents()) == 2)
        yield made[0], made[1]


def begin(home: Home, **trial: Any) -> None:
    given = {"nodes": 2, "stop_grace": "10s", "preload": IMPORTS} | trial
    home.begin(TRAIN, trial=given, budget={"trials": 1, "parallel": 1})


def trial_processes(node: JoinedAgent, attempt: int = 1) -> list[int]:
    """Of the attempt, by what its script has written down."""
    found = [path.read_text() for path in Path(node.home).glob(f"attempts/*/1/{attempt}-*/work/pid")]
    alive = {pid for pid, _ in processes()}
    return [int(text) for text in found if text and int(text) in alive]


def both(home: Home, nodes: tuple[JoinedAgent, JoinedAgent]) -> list[int]:
    """Both processes, which wait at step 6 after a checkpoint at step 5."""
    home.running(1, step=6)
    return wait_until(lambda: pids if len(pids := [*map(trial_processes, nodes)]) == 2 and all(pids) else [])


def losses(home: Home) -> dict[int, float]:
    (trial,) = home.trials()
    found: dict[int, float] = {}
    for report in trial["metrics"]:
        step, loss = -1 if report["step"] is None else report["step"], report["values"]["loss"]
        assert found.setdefault(step, loss) == loss, f"step {step} has two values: {trial['metrics']}"
    return found


def test_a_trial_of_two_nodes_trains_in_one_world_and_goes_on_to_the_same_weights_when_a_part_is_killed(
    home: Home, nodes: tuple[JoinedAgent, JoinedAgent]
) -> None:
    home.open_gate()
    begin(home)
    home.completed()
    untouched = losses(home)
    (trial,) = home.trials()
    assert (trial["status"], len(values(trial))) == ("succeeded", 13)
    for node in (0, 1):
        assert f"rank {node} of 2 is done" in home.tuner("logs", f"{home.id}/1", "--node", str(node))
    shown = home.trial(1)["attempt_details"][0]["nodes"]
    assert {node["agent"] for node in shown} == {"near", "far"}
    assert {(node["state"], node["exit"]["code"]) for node in shown} == {("ended", 0)}

    home.gate.unlink()
    begin(home)
    pids = wait_until(lambda: both(home, nodes))
    os.kill(pids[1][0], signal.SIGKILL)  # type: ignore[index]  # a list for each node
    home.open_gate()
    home.completed()

    assert losses(home) == untouched
    first, second = home.trial(1)["attempt_details"]
    assert (first["exit"]["cause"], home.trial(1)["status"]) == ("signaled", "succeeded")
    assert second["restored_step"] == 5


def test_a_service_killed_while_nodes_prepare_changes_no_weight() -> None:
    """One kill of the campaign: `make gangs-campaign` has all of them."""
    done, _ = run(rounds=1, trials=1, cases=[("preparing", "service")], seed=1)

    assert done == {"service while preparing": 1}


GROUP = """
import os, sys
from functools import partial
from trials.tasks import Node, Task, TaskGroup, TrialSession, current_instance, final_output, set_output
import trials

def learn(x):
    set_output(f"of {current_instance().node}".replace(" ", "-"), [x, os.getcwd(), os.environ["RANK"]])

if __name__ == "__main__":
    with trials.init() as trial:
        with TaskGroup() as group:
            for name in ("a", "b"):
                with Node(name):
                    Task(partial(learn, trial.parameters["x"]), num_instances=1)
            found = final_output(["of-a", "of-b"])
        TrialSession().run(group)
        (x, here, rank), (y, there, other) = found.fetch()
        assert x == y == trial.parameters["x"] and here != there and (rank, other) == ("0", "0")
        trial.report_final(loss=x)
"""


def test_a_task_group_runs_over_the_nodes_of_its_trial(home: Home, nodes: tuple[JoinedAgent, JoinedAgent]) -> None:
    home.begin(GROUP, trial={"nodes": 2}, budget={"trials": 1, "parallel": 1})
    home.completed()

    (trial,) = home.trials()
    assert (trial["status"], trial["attempts"]) == ("succeeded", 1)
    assert len(values(trial)) == 1


def test_the_script_of_the_page_trains_on_two_nodes(home: Home, nodes: tuple[JoinedAgent, JoinedAgent]) -> None:
    text = training_scripts()["docs/from-one-machine-to-many.md 1"]
    space = {"lr": {"_type": "loguniform", "_value": [0.001, 0.3]}}
    home.begin(text, search_space=space, trial={"nodes": 2}, budget={"trials": 1, "parallel": 1})
    home.completed()

    (trial,) = home.trials()
    assert (trial["status"], len(values(trial))) == ("succeeded", 31)
