"""What `tuner ps --nodes` prints of the nodes of this machine, of those that were joined, and of a cluster's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tuner_service.cli.output.tables import format_rows
from tuner_service.cli.verbs import doctor
from tuner_service.cli.verbs.agent import NODE_COLUMNS as AGENT_COLUMNS
from tuner_service.cli.verbs.agent import what_keeps_away
from tuner_service.cli.verbs.ps import NODE_COLUMNS, node_rows
from tuner_service.service.nodes import node_views


class Service:
    """What of a client is asked."""

    url = "https://tuner.example"

    def __init__(self, agents: list[dict[str, Any]], executors: list[dict[str, Any]]) -> None:
        self._agents, self._executors = agents, executors

    def agents(self) -> list[dict[str, Any]]:
        return self._agents

    def readiness(self) -> dict[str, Any]:
        return {}

    def call(self, method: str, path: str) -> Any:
        assert (method, path) == ("GET", "/api/v1/executors")
        return SimpleNamespace(json=lambda: {"items": self._executors})


def test_nodes_of_every_origin_stand_in_one_table_with_their_states() -> None:
    agents = [
        {"id": "local", "cpus": 4, "host": "head", "state": "ready", "message": ""},
        {"id": "gpu-7", "cpus": 16, "host": "gpu7", "state": "in_trouble", "message": "12 MiB are free; make room"},
        {"id": "ray-1", "cpus": 8, "host": "r1", "state": "ready", "message": ""},
    ]
    ray = {
        "name": "ray",
        "state": "ok",
        "wanted": 3,
        "bundle": {"cpus": 8},
        "nodes": [{"agent": "ray-1", "cpus": 8, "host": "", "state": "ready", "reason": ""}],
        "lost": [{"agent": "ray-0", "reason": "its actor died"}],
    }

    rows = node_rows(Service(agents, [ray]))  # type: ignore[arg-type]  # of a client it has what is asked

    assert format_rows(rows, output="table", columns=NODE_COLUMNS).splitlines() == [
        "NODE    EXECUTOR  STATE       CPUS  HOST  REASON",
        "ray-1   ray       ready          8  r1",
        "2 more  ray       wanted         8        not asked for yet",
        "ray-0   ray       lost           8        its actor died",
        "local   local     ready          4  head",
        "gpu-7   joined    in_trouble    16  gpu7  12 MiB are free; make room",
    ]


def test_doctor_says_of_nodes_which_are_connected_and_what_is_wrong_with_the_others() -> None:
    local = {"id": "local", "host": "head", "pid": 7, "state": "ready", "message": ""}
    full = {"id": "gpu-8", "host": "gpu8", "pid": 9, "state": "in_trouble", "message": "12 MiB are free; make room"}
    away = node_views([], {"gpu-7": ["8f3k2/1"]})

    def found(agents: list[dict[str, Any]]) -> list[tuple[str, str]]:
        service: Any = Service(agents, [])
        findings = [finding for finding in doctor._parts(service) if finding.check == "agent"]
        return [(finding.state, finding.detail.partition(";")[0]) for finding in findings]

    assert "`tuner agent rm gpu-7 --force`" in away[0]["message"]
    assert found([local]) == [("ok", "local on head, process 7")]
    assert found([local, full, *away]) == [
        ("ok", "local on head, process 7, gpu-8 on gpu8, process 9"),
        ("warning", "gpu-8: 12 MiB are free"),
        ("warning", "gpu-7: it is not connected"),
    ]
    assert found(away) == [("warning", "none is connected"), ("warning", "gpu-7: it is not connected")]


def test_of_a_node_that_is_away_nobody_says_what_it_has() -> None:
    (away,) = node_views([], {"gpu-7": ["8f3k2/1"]})

    (seen,) = node_rows(Service([away], []))  # type: ignore[arg-type]  # likewise
    for columns, row, has in (
        (NODE_COLUMNS, seen, {"CPUS"}),
        (AGENT_COLUMNS, away, {"HOST", "CORES", "MEMORY", "GPUS"}),
    ):
        shown = {column.title: column.text(row) for column in columns}
        assert {title: shown[title] for title in has} == dict.fromkeys(has, "-")
        assert shown["STATE"] == "away"


def test_a_node_of_ray_that_is_away_and_that_its_executor_lists_no_more_is_still_one_of_ray() -> None:
    away = node_views([], {"gpu-7": ["8f3k2/1"], "ray-1f0c": ["8f3k2/2"]})

    rows = node_rows(Service(list(away), []))  # type: ignore[arg-type]  # likewise

    assert {row["id"]: (row["executor"], row["state"]) for row in rows} == {
        "gpu-7": ("joined", "away"),
        "ray-1f0c": ("ray", "away"),
    }


def test_an_executor_that_is_away_says_so_where_its_nodes_would_stand() -> None:
    ray = {"name": "ray", "state": "away", "wanted": 0, "bundle": {"cpus": 8}, "nodes": [], "lost": []}

    (row,) = node_rows(Service([], [ray]))  # type: ignore[arg-type]  # likewise

    assert (row["id"], row["state"], row["reason"]) == ("1 more", "wanted", "away")


@pytest.mark.parametrize(
    ("agent", "said"),
    [("local", "comes again at once"), ("ray-8f3k2a", "tuner ps --nodes"), ("gpu-7", "`tuner token rm gpu-7`")],
)
def test_what_keeps_a_forgotten_agent_away_can_be_done(agent: str, said: str) -> None:
    assert said in what_keeps_away(agent)
    assert ("tuner token rm" in what_keeps_away(agent)) == (agent == "gpu-7")
