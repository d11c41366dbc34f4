"""Nodes over REST: those that nobody knows, those that are away, and those on which no trial can be started."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.api_service import ApiService, an_api_service
from tests.builders import a_trial, an_attempt
from tests.waiting import wait_until
from trials.wire.messages import Hello, NodeResources
from trials.wire.nodes import NodeFacts
from tuner_service.cli.output.descriptions import experiment_text
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.resources import Holding


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def a_hello(name: str, node: NodeFacts | None = None) -> Hello:
    resources = NodeResources(cpus=4, memory_bytes=8 << 30)
    return Hello(version=8, agent_id=name, boot_id="b", host="n1", pid=1, resources=resources, node=node or NodeFacts())


def test_an_experiment_whose_trials_no_node_takes_says_why_of_each(api: ApiService) -> None:
    experiment_id = api.create()
    path = f"/api/v1/experiments/{experiment_id}"
    experiment = api.queries.experiment(experiment_id)
    assert experiment is not None
    assert api.client.get(path).json()["no_node"] is None, "nothing waits"
    api.store.commit(Changes(experiments={experiment_id: replace(experiment, counts={"waiting": 2})}))
    shown = api.client.get(path).json()
    assert shown["no_node"] == "no agent is connected"
    assert "waiting for  a node: no agent is connected (`tuner agent ls`)" in experiment_text(shown)

    full, drained = NodeFacts(trouble="the disk is full; make room there"), NodeFacts(drained=True)
    api.hub.hellos = [a_hello(f"n{n}", drained if n > 1 else full) for n in range(1, 6)]
    expected = "n1: the disk is full; make room there; n2 is drained; n3 is drained; and 2 more"
    wait_until(lambda: api.client.get(path).json()["no_node"] == expected)  # an answer may be 0.1 s old

    api.hub.hellos.append(a_hello("n9"))
    wait_until(lambda: api.client.get(path).json()["no_node"] is None)  # one of them takes it


@pytest.mark.parametrize("verb", ["post", "delete"])
def test_an_agent_nobody_knows_is_not_found_and_one_that_is_away_is_not_reached(api: ApiService, verb: str) -> None:
    unknown = getattr(api.client, verb)("/api/v1/agents/n1/drain")
    assert unknown.status_code == 404
    assert "tuner agent ls" in unknown.json()["detail"]
    assert api.client.delete("/api/v1/agents/n1").status_code == 404

    trial = a_trial(experiment_id=api.create())
    attempt = an_attempt(experiment_id=trial.experiment_id, agent_id="n1", holdings=(Holding(agent_id="n1"),))
    api.store.commit(Changes(trials={(trial.experiment_id, 1): trial}, attempts={attempt.key: attempt}))
    assert getattr(api.client, verb)("/api/v1/agents/n1/drain").status_code == 503, "its trials may run there"
