"""A node of Ray's that nobody gives an order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from trials.agent import ray_node
from trials.agent.ray_node import RayNode


@pytest.fixture
def given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(ray_node, "_root", lambda: tmp_path)
    monkeypatch.setattr(RayNode, "_give_back", lambda node: found.append(node._name))
    monkeypatch.setattr(RayNode, "_hold", lambda node: found.append("held"))
    monkeypatch.setattr(RayNode, "_look_for_drains", lambda _: None)
    return found


ORDER: dict[str, Any] = {"token": "t", "url": "http://h:1", "pid": 1}


def test_it_goes_where_whoever_asked_for_it_is_gone(given_back: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_node, "UNORDERED_S", 0.0)
    node = RayNode("ray-a", "group", ["ray-a"])

    wait_until(lambda: given_back == ["ray-a"])
    assert node.phase() == "ended"
    monkeypatch.setattr(ray_node, "WATCH_S", 0.0)
    node.serve(ORDER)  # too late: it is on its way out
    assert given_back == ["ray-a"]


def test_it_stays_once_it_has_an_order(given_back: list[str]) -> None:
    node = RayNode("ray-a", "group", ["ray-a"])
    node.serve(ORDER)
    wait_until(lambda: given_back == ["held"])
    node._give_back_unordered()  # returns at once

    assert (given_back, node.phase()) == (["held"], "starting")
