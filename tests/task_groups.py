"""Groups of tasks without processes: what is ordered, one answer after the other."""

from __future__ import annotations

from typing import Any

from trials.tasks import TaskGroup
from trials.tasks.progress import Progress, ports_wanted


def do_nothing() -> None:
    """A step."""


def progress(group: TaskGroup) -> Progress:
    group.use()
    wanted = ports_wanted(group)
    return Progress(
        group,
        addresses=dict.fromkeys(group.nodes(), "127.0.0.1"),
        ports={node: [4711 + number for number in range(count)] for node, count in wanted.items()},
    )


def jobs(orders: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [f"{order['do']} {order['job']}" for _, order in orders]
