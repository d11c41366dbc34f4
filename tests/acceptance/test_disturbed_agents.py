"""Three agents, each with a home and an address of its own: one dies, one is cut off, one is drained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.harness import Home
from tests.disturbed_agents import LOST_TIMEOUT_S, STEPS, Nodes, begin, completed, cut_off, three_nodes
from tests.joined_agents import service_without_own_agent
from tests.network_proxy import Network
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def nodes(home: Home) -> Iterator[Nodes]:
    home.environment["TUNER_SERVICE_LOST_TIMEOUT"] = f"{LOST_TIMEOUT_S:g}s"
    with service_without_own_agent(home), three_nodes(home) as found:
        yield found


def all_run(nodes: Nodes) -> None:
    """Each node has a trial, and all three of them wait before their step 4."""
    nodes.home.running(3, step=3)
    wait_until(lambda: len(nodes.busy()) == 3)


def one_dies_one_is_cut_off_and_one_is_drained(nodes: Nodes) -> None:
    all_run(nodes)
    nodes["n1"].die()
    nodes["n2"].network.become(Network.CUT)
    nodes.home.open_gate()
    cut_off(nodes, "n2", Network.CUT)
    nodes.wait_until_given_up("n1")
    nodes.home.tuner("agent", "drain", "n3")
    wait_until(lambda: nodes.seen()["n3"]["state"] == "drained")
    nodes["n1"].agent.start()
    nodes.wait_until_ready("n1")
    nodes.home.tuner("agent", "drain", "n3", "--cancel")


def test_the_rows_of_a_deterministic_search_are_those_of_an_undisturbed_one(home: Home, nodes: Nodes) -> None:
    home.open_gate()
    begin(home, trials=9, deterministic=True, is_assessed=True, HELD="yes")
    completed(home)
    undisturbed = home.rows()
    assert all(len(trial["metrics"]) > 4 for trial in undisturbed[:3])  # not stopped before they wait

    home.gate.unlink()
    begin(home, trials=9, deterministic=True, is_assessed=True, HELD="yes")
    one_dies_one_is_cut_off_and_one_is_drained(nodes)
    completed(home)

    assert home.rows() == undisturbed
    assert {trial["status"] for trial in home.trials()} <= {"succeeded", "early_stopped"}  # of one attempt each
    assert sum(trial["attempts"] for trial in home.trials()) > len(undisturbed)  # it was disturbed


def reports_of(home: Home) -> dict[tuple[int, int], list[int]]:
    """The steps that are stored, by trial and attempt; each once."""
    assert home.reports()
    found: dict[tuple[int, int], list[int]] = {}
    for trial in home.trials():
        for report in trial["metrics"]:
            assert report["values"].get("attempt", report["attempt"]) == report["attempt"]
            if report["step"] is not None:
                found.setdefault((trial["number"], report["attempt"]), []).append(report["step"])
    return found


def test_nothing_acknowledged_is_lost_nothing_is_there_twice_and_late_reports_are_refused(
    home: Home, nodes: Nodes
) -> None:
    begin(home, trials=6, deterministic=False, TELLS_ATTEMPT="1", HELD="yes")
    all_run(nodes)
    (cut,) = nodes.seen()["n2"]["trials"]
    number = int(cut.rpartition("/")[2])
    (first,) = [one["attempt"] for one in home.show()["running"] if one["number"] == number]
    nodes["n2"].network.become(Network.CUT)
    home.open_gate()
    wait_until(lambda: nodes.seen().get("n2", {"state": "away"})["state"] == "away")  # or given up already
    before = reports_of(home)
    nodes.wait_until_given_up("n2")
    late = spooled_steps(nodes, number, first)
    nodes["n2"].network.become(Network.WHOLE)
    nodes.wait_until_ready("n2")
    nodes.home.tuner("agent", "drain", "n3")
    nodes["n1"].die()
    wait_until(lambda: nodes.seen()["n3"]["state"] == "drained")
    nodes.home.tuner("agent", "drain", "n3", "--cancel")
    completed(home)

    after = reports_of(home)
    assert all(set(steps) <= set(after[key]) for key, steps in before.items())
    assert after[number, first] == before[number, first]
    assert set(late) > set(after[number, first]), "the attempt that was cut off had nothing more to report"
    for trial in home.trials():
        told = [step for (of, _), steps in after.items() if of == trial["number"] for step in steps]
        assert (trial["status"], sorted(set(told))) == ("succeeded", list(range(STEPS)))
        assert [report["step"] for report in trial["metrics"]].count(None) == 1


def spooled_steps(nodes: Nodes, number: int, attempt: int) -> list[int]:
    """What the attempt has written, whoever was told."""
    (spool,) = nodes["n2"].agent.home.glob(f"attempts/{nodes.home.id}/{number}/{attempt}-*/reports.jsonl")
    lines: list[dict[str, Any]] = [json.loads(line) for line in spool.read_text().splitlines()]
    return [line["step"] for line in lines if line["kind"] == "metric" and line["step"] is not None]
