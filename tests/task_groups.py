"""Groups of tasks without processes: what is ordered, one answer after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trials.tasks import TaskGroup
from trials.tasks.progress import Progress


def do_nothing() -> None:
    """A step."""


def progress(group: TaskGroup, folder: Path) -> Progress:
    group.use()
    nodes = group.nodes()
    return Progress(
        group,
        workspaces={node: folder / node for node in nodes},
        addresses=dict.fromkeys(nodes, "127.0.0.1"),
        plans=folder,
        free_port=lambda _: 4711,
    )


def jobs(orders: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [f"{order['do']} {order['job']}" for _, order in orders]
