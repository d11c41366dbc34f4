"""One run of a group: between its progress, which decides, and its nodes, which do."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trials.tasks.instance import output_value
from trials.tasks.port import Event, Nodes
from trials.tasks.progress import Order, OuterWorld, Progress
from trials.tasks.task_group import TaskGroup, TaskOutput

EXIT_TIMEOUT_S = 60.0  # for the exit steps of a group that failed
STOP_SLACK_S = 15.0  # beyond the grace, for a node to say that nothing runs any more


class TaskFailedError(RuntimeError):
    """A task, a setup or exit step or a report step failed; everything else of its group was stopped.

    ``code`` is the exit code, a signal as its negative number, and None where nothing ran.
    """

    def __init__(self, what: str, node: str, why: str, *, code: int | None = None) -> None:
        super().__init__(f"{what} on node {node!r} failed: {why}; the other tasks of the group were stopped")
        self.what, self.node, self.why, self.code = what, node, why, code


class NodeStartError(RuntimeError):
    """Not all nodes of a group could be made ready, so none began."""

    @staticmethod
    def of(node: str, why: object) -> NodeStartError:
        return NodeStartError(f"node {node!r} cannot be made ready, so no node begins: {why}")


def failure_of(error: Exception) -> dict[str, Any]:
    """As those are told who wait for the group elsewhere."""
    fields = ("what", "node", "why", "code") if isinstance(error, TaskFailedError) else ()
    return {"error": type(error).__name__, "text": str(error), **{name: getattr(error, name) for name in fields}}


Given = Mapping[str, tuple[str, str]]  # by name: the form of an output, and its bytes as base64


class RunningGroup:
    """Of nodes that were told to begin."""

    def __init__(self, group: TaskGroup, nodes: Nodes, *, grace_s: float, grace: Callable[[], float]) -> None:
        """``grace``: asked when tasks are stopped."""
        self._group, self._nodes = group, nodes
        self._names = group.nodes()
        self._grace_s, self._grace = grace_s, grace
        self._lost: set[str] = set()
        self._ports: dict[str, Sequence[int]] = {}
        self._progress: Progress

    def wait_for_ready(self, timeout_s: float) -> None:
        """NodeStartError that names who is not."""
        deadline = time.monotonic() + timeout_s
        while waiting := [name for name in self._names if name not in self._ports]:
            for name, event in self._events(deadline):
                match event["event"]:
                    case "ready":
                        self._ports[name] = event["ports"]
                    case "refused" | "lost":
                        raise NodeStartError.of(name, event["why"])
            if time.monotonic() > deadline:
                raise NodeStartError(f"nodes {', '.join(waiting)} were not ready within {timeout_s:g} s")

    def run(self, deadline: float | None, *, outer: OuterWorld | None = None) -> None:
        """Until everything has ended well, or the first failure and what follows it."""
        addresses = {name: self._nodes.address(name) for name in self._names}
        self._progress = Progress(
            self._group, addresses=addresses, ports=self._ports, outer=outer, grace_s=self._grace_s
        )
        try:
            self._perform(self._progress.begin())
            while not self._progress.is_done():
                for name, event in self._events(deadline):
                    self._perform(self._take(name, event))
                self._require_time(deadline, self._progress.waits_for())
        except BaseException:
            self._stop()
            self._run_exit_steps()
            raise

    def outputs(self, deadline: float | None) -> list[Given]:
        """What was given for each output of the group, one after the other, as it is on the nodes."""
        outputs = self._group.all_outputs()
        asked = {
            name: sorted({n for each in outputs if each.node in {None, name} for n in each.names})
            for name in self._names
        }
        given: dict[str, dict[str, tuple[str, str]]] = {name: {} for name in self._names}
        waiting = {name for name, names in asked.items() if names}
        for name in waiting:
            self._nodes.order(name, {"do": "outputs", "names": asked[name]})
        while waiting:
            for name, event in self._events(deadline):
                match event["event"]:
                    case "output":
                        given[name][event["name"]] = (event["kind"], event["data"])
                    case "given":
                        waiting.discard(name)
                    case "lost":
                        raise TaskFailedError("the runner", name, event["why"])
            self._require_time(deadline, f"outputs of {', '.join(sorted(waiting))}")
        return [self._given(output, given) for output in outputs]

    def _given(self, output: TaskOutput, given: Mapping[str, Given]) -> Given:
        """By name, from the first node that has it."""
        places = [output.node] if output.node else self._names
        found: dict[str, tuple[str, str]] = {}
        for node in places:
            for name in output.names:
                if name in given.get(node, {}) and name not in found:
                    found[name] = given[node][name]
                    _value(name, found[name], node=node)
        return found

    def _take(self, node: str, event: Event) -> list[Order]:
        if event["event"] == "lost":
            raise TaskFailedError("the runner", node, event["why"])
        if event["event"] != "ended":
            return []
        failure = event["failure"]
        if failure is not None:
            what = self._progress.describe(event["job"], failure["instance"])
            raise TaskFailedError(what, node, failure["why"], code=failure["code"])
        return self._progress.ended(event["job"])

    def _stop(self) -> None:
        waiting, grace_s = set(self._names), self._grace()
        for name in self._names:
            self._nodes.order(name, {"do": "stop", "grace_s": grace_s})
        deadline = time.monotonic() + grace_s + STOP_SLACK_S
        while waiting - self._lost and time.monotonic() < deadline:
            for name, event in self._events(deadline):
                if event["event"] == "stopped":
                    waiting.discard(name)

    def _run_exit_steps(self) -> None:
        """Of what had been set up; a failure here is not told, because another one is."""
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        for orders in self._progress.exit_orders():
            waiting = {order["job"]: node for node, order in orders}
            self._perform(orders)
            while any(node not in self._lost for node in waiting.values()) and time.monotonic() < deadline:
                for _, event in self._events(deadline):
                    waiting.pop(event.get("job"), None)

    def _perform(self, orders: Sequence[Order]) -> None:
        for node, order in orders:
            self._nodes.order(node, order)

    def _events(self, deadline: float | None) -> list[tuple[str, Event]]:
        found = self._nodes.events(None if deadline is None else max(0.0, deadline - time.monotonic()))
        self._lost |= {name for name, event in found if event["event"] == "lost"}
        return found

    @staticmethod
    def _require_time(deadline: float | None, waits_for: str) -> None:
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"the group did not end in time; it waited for {waits_for}")


def set_outputs(group: TaskGroup, given: Sequence[Given]) -> None:
    """Let the group's outputs be fetched. OutputMissingError for the first that nobody gave."""
    for output, found in zip(group.all_outputs(), given, strict=True):
        output.set({name: _value(name, one, node=output.node or "") for name, one in found.items()})


def _value(name: str, given: tuple[str, str], *, node: str) -> Any:
    try:
        return output_value(given[0], base64.b64decode(given[1]))
    except ValueError as error:
        raise TaskFailedError(f"output {name!r}", node, f"it cannot be read: {error}") from error
