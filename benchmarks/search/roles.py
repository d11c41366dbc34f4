"""What part each task had when the rules of our own algorithms were chosen.

Whoever compares methods may want to look at those tasks alone on which nothing was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CHOSEN, BOUND, FREE = "rules were chosen on it", "one bound was chosen on it", ""
# By the beginning of a task's name; `two_` tasks are the same tables with a second objective.
ROLES = {
    "hpobench_": CHOSEN,
    "hpolib_": CHOSEN,
    "nasbench201_": CHOSEN,
    "two_": CHOSEN,
    "mlp_": BOUND,
    "linear_": BOUND,
    "net_": FREE,
    "trees_": FREE,
}
# Tasks with trials that fail, by their names.
FAILING_CHOSEN = frozenset({"batch_border", "memory_border", "branch_border", "branch_inside", "flaky"})


def role_of(task: str) -> str:
    """Of a task of the project's own; a task of another file has none."""
    return next((role for begin, role in ROLES.items() if task.startswith(begin)), FREE)


def free_loss(tasks: Mapping[str, Any], method: str) -> float | None:
    """The mean loss of ``method`` at the end over the tasks on which nothing was chosen; None where there is none."""
    found = [ends[method]["loss_at"]["100"] for task, ends in tasks.items() if role_of(task) == FREE and method in ends]
    return sum(found) / len(found) if found else None
