"""What nobody says counts as nothing."""

from __future__ import annotations

from tests.builders import a_spec, an_experiment
from tuner_service.domain.resources import Demand, Holding, Node


def test_a_trial_that_asks_for_nothing_wants_nothing() -> None:
    demand = Demand()

    assert (demand.cpus, demand.memory_bytes, demand.gpus, demand.gpu_memory_bytes, demand.nodes) == (0, 0, 0, 0, 1)
    assert demand.is_nothing is True
    assert demand.wants_gpu is False


def test_a_node_that_tells_nothing_has_nothing_and_a_holding_of_nothing_holds_nothing() -> None:
    node, holding = Node(agent_id="n"), Holding(agent_id="n")

    assert (node.cpus, node.memory_bytes, node.devices) == (0, 0, ())
    assert (holding.cpus, holding.memory_bytes, holding.gpu_memory_bytes, dict(holding.shares)) == (0, 0, 0, {})


def test_a_new_experiment_has_asked_for_nothing_and_failed_in_nothing() -> None:
    experiment = an_experiment()

    assert not experiment.exhausted
    assert not experiment.tuner_waits
    assert (experiment.failures, experiment.spared, experiment.same_errors, experiment.assessor_cursor) == (0, 0, 0, 0)
    assert a_spec().trial.heartbeat_s is None
