"""The setting ``executor``: names, tables, and what is wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tuner_service.cli.verbs.serve import with_ray
from tuner_service.config import Settings
from tuner_service.domain.errors import InputError
from tuner_service.domain.node_kinds import ExecutorRequest, NodeShape
from tuner_service.executor_options import ExecutorOptions, RayNodes, RayOptions, parse_executor, parse_request


def ray(value: Any) -> RayOptions:
    found = parse_executor(value).ray
    assert found is not None
    return found


def test_a_name_or_both_say_who_provides_agents() -> None:
    assert parse_executor("local") == ExecutorOptions()
    assert parse_executor({"name": "local"}) == ExecutorOptions()
    assert parse_executor("ray") == ExecutorOptions(has_local=False, ray=RayOptions(), text="ray")
    assert parse_executor(" local, ray ").has_local
    assert str(parse_executor("local,ray")) == "local,ray"


def test_a_table_says_what_a_bundle_has_and_how_many_there_may_be() -> None:
    agents = {"cpus": 8, "gpus": 1, "memory": "32GB", "min": 1, "max": 64, "idle": "5m"}

    found = ray({"name": "ray", "address": "ray://head:10001", "agents": agents, "service_lost": "10m"})

    shape = NodeShape(cpus=8, gpus=1, memory_bytes=32 * 10**9)
    assert found.nodes == RayNodes(shape=shape, least=1, most=64, idle_s=300.0)
    assert (found.address, found.service_lost_s) == ("ray://head:10001", 600.0)


def test_a_table_may_come_as_json_and_is_passed_on_as_it_was() -> None:
    found = parse_executor('{"name": "ray", "runtime_env": {"pip": ["numpy"]}, "python": "/opt/ray/bin/python"}')

    assert found.ray is not None
    assert found.ray.runtime_env == {"pip": ["numpy"]}
    assert found.ray.python == "/opt/ray/bin/python"
    assert parse_executor(found.text) == found
    assert "numpy" not in str(found)


@pytest.mark.parametrize("address", ["auto", "local", "10.0.0.7:6379", "[::1]:6379", "ray://head.example:10001"])
def test_an_address_is_one_that_ray_takes(address: str) -> None:
    assert ray({"name": "ray", "address": address}).address == address


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("slurm", "local or ray"),
        ("", "local or ray"),
        (7, "local or ray"),
        ("{", "no JSON"),
        ({}, "local or ray"),
        ({"name": "local", "address": "auto"}, "executor local: no field 'address'"),
        ({"name": "ray", "adress": "auto"}, "no field 'adress'; known: address"),
        ({"name": "ray", "address": "http://head:6379"}, "address: expected auto, local"),
        ({"name": "ray", "address": 6379}, "address: expected text"),
        ({"name": "ray", "agents": []}, "agents: expected a table"),
        ({"name": "ray", "agents": {"cpus": 0}}, "cpus: expected a whole number from 1"),
        ({"name": "ray", "agents": {"cpus": True}}, "cpus: expected a whole number"),
        ({"name": "ray", "agents": {"gpus": -1}}, "gpus: expected a whole number from 0"),
        ({"name": "ray", "agents": {"memory": "much"}}, "memory: expected a size"),
        ({"name": "ray", "agents": {"memory": True}}, "memory: expected a size"),
        ({"name": "ray", "agents": {"idle": "soon"}}, "idle: expected a time"),
        ({"name": "ray", "agents": {"idle": False}}, "idle: expected a time"),
        ({"name": "ray", "agents": {"min": 3, "max": 2}}, "min 3 is more than max 2"),
        ({"name": "ray", "runtime_env": "pip"}, "runtime_env: expected a table"),
        ({"name": "ray", "python": " "}, "python: expected text"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_taken(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_executor(value)


# ── what an experiment says ─────────────────────────────────────────────────────────────────────
def test_an_experiment_names_executors_and_describes_nodes_of_ray() -> None:
    assert parse_request(None) == ExecutorRequest()
    assert parse_request("local, joined").names == ("local", "joined")
    table = {"name": "ray", "agents": {"gpus": 2, "memory": "4GiB"}, "runtime_env": {"pip": ["a"]}}
    found = parse_request(table)
    assert found.agents == NodeShape(cpus=1, gpus=2, memory_bytes=4 << 30)
    assert (found.names, found.runtime_env) == (("ray",), {"pip": ["a"]})


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("slurm", "one of local, joined, ray"),
        ({"agents": {"cpus": 1}}, "one of local, joined, ray"),
        ({"name": "ray", "address": "auto"}, "address belongs to the setting of the service"),
        ({"name": "ray", "agents": {"max": 2}}, "max belongs to the setting of the service"),
        ({"name": "local,ray", "runtime_env": {"pip": []}}, "name ray alone"),
        ({"name": "ray", "runtime_env": {"py_modules": ["x"]}}, "py_modules is the service's"),
        ({"name": "ray", "runtime_env": {"pip": {1, 2}}}, "plain values"),
        ({"name": "ray", "agents": {"cpus": "many"}}, "whole number"),
        ({"name": "ray", "nodes": 2}, "no field 'nodes'"),
    ],
)
def test_what_an_experiment_may_not_say_is_refused_with_why(said: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_request(said)


def test_serving_with_ray_where_there_is_none_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    own = Settings(home=tmp_path, db="", executor=parse_executor("ray"))
    with pytest.raises(InputError, match=r"pip install 'tuner-service\[ray\]'"):
        with_ray(own, is_local=False)
    elsewhere = Settings(
        home=tmp_path, db="", executor=parse_executor({"name": "ray", "python": "/opt/ray/bin/python"})
    )
    assert with_ray(elsewhere, is_local=False) is not None
    with pytest.raises(InputError, match="'tuner-service"):
        with_ray(elsewhere, is_local=True)  # a cluster of its own is started by this interpreter
