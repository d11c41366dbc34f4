"""When the Ray executor ends a bridge."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tuner_service.executor_options import OWN_CLUSTER, RayOptions
from tuner_service.executors.ray.executor import RayExecutor


class Bridge:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.kills = 0

    def send(self, frame: dict[str, Any]) -> None:
        self.told.append(frame["address"])

    def kill(self) -> None:
        self.kills += 1


class OwnCluster:
    """``at``: where it is; "" while there is none."""

    def __init__(self) -> None:
        self.at = ""

    def see_to_it(self) -> None:
        """Somebody does."""

    def address(self) -> str:
        return self.at


def test_a_bridge_to_a_cluster_of_ours_that_is_gone_ends_as_soon_as_there_is_another_one() -> None:
    bridge, cluster = Bridge(), OwnCluster()
    options = RayOptions(address=OWN_CLUSTER)
    executor = RayExecutor(
        folder=Path(), options=options, lineage="l", key=str, submit=lambda _: Future(), now=lambda: 1.0
    )
    executor._cluster, executor._bridge = cluster, bridge  # type: ignore[assignment]  # neither has processes
    for at in ("", "h:1", "h:1", "", "h:1"):
        cluster.at = at
        executor._see_to_bridge(0.0)
    assert (bridge.told, bridge.kills) == (["h:1"], 0)

    cluster.at = "h:2"
    executor._see_to_bridge(0.0)

    assert (bridge.told, bridge.kills) == (["h:1"], 1)
