"""A cluster as the bridge sees it, without Ray: groups and actors outlive who made them, on machines that may go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner_service.executors.ray.cluster import NewNode, NodeAwayError, NodeGoneError


class BridgeKilled(BaseException):
    """Instead of going on."""


@dataclass(kw_only=True)
class Group:
    bundles: list[dict[str, float]]
    machines: list[str]  # of its bundles; "" where one has no place
    state: str = "PENDING"

    @property
    def holds(self) -> bool:
        return self.state != "REMOVED"


@dataclass(kw_only=True)
class Actor:
    """``RayNode`` in as few words as possible."""

    new: NewNode
    cluster: FakeRay
    is_dead: bool = False
    phase: str = "starting"
    revision: int = 0
    orders: list[dict[str, Any]] = field(default_factory=list)
    graces: list[float] = field(default_factory=list)

    @property
    def is_up(self) -> bool:
        return not self.is_dead and self.cluster.tables[self.new.group].state == "CREATED"

    def put(self, phase: str) -> None:
        self.phase, self.revision = phase, self.revision + 1

    def take(self, what: str, *arguments: Any) -> None:
        if what == "serve":
            self.orders.append(*arguments)
            if self.phase == "starting":
                self.put("running")
        elif what == "end":
            self.graces.append(*arguments)
            if self.phase in {"starting", "running"}:
                self.put("ending")

    def give_back(self) -> None:
        """As it does in the end by itself, whether there is a bridge or not."""
        self.put("ended")
        others = [self.cluster.actors.get(name) for name in self.new.members if name != self.new.agent_id]
        if not any(other is not None and not other.is_dead and other.phase != "ended" for other in others):
            self.cluster.take_away(self.new.group)


@dataclass(kw_only=True)
class Question:
    actor: Actor
    what: str
    arguments: tuple[Any, ...]
    is_taken: bool = False


@dataclass(kw_only=True)
class FakeRay:
    """``machines``: free places. ``calls_left``: the bridge is killed in place of the call after so many.

    ``is_slow``: actors take what they are told, and their answers have not come. ``loses``: what does not reach them.
    """

    machines: dict[str, int]
    tables: dict[str, Group] = field(default_factory=dict)
    actors: dict[str, Actor] = field(default_factory=dict)
    calls_left: int | None = None
    is_slow: bool = False
    loses: str = ""
    calls: list[str] = field(default_factory=list)

    # ── what happens to it ──────────────────────────────────────────────────────────────────────
    def lose(self, machine: str, *, is_moved: bool = True) -> None:
        """Ray moves its groups to others where there is room; the actors are dead. Else they wait for that."""
        del self.machines[machine]
        for name, table in self.tables.items():
            if machine in table.machines and table.holds:
                for actor in self.of(name):
                    if table.machines[actor.new.place] == machine:
                        actor.is_dead = True
                table.machines = ["" if at == machine else at for at in table.machines]
                table.state = "RESCHEDULING"
        if is_moved:
            self.place()

    def place(self) -> None:
        """As much as there is room for; the bundles of one group on different machines."""
        for table in filter(lambda table: table.holds, self.tables.values()):
            for bundle, at in enumerate(table.machines):
                fitting = [name for name, free in self.machines.items() if free and name not in table.machines]
                if not at and fitting:
                    table.machines[bundle] = fitting[0]
                    self.machines[fitting[0]] -= 1
            if all(table.machines):
                table.state = "CREATED"

    def take_away(self, name: str) -> None:
        table = self.tables.get(name)
        if table is None or not table.holds:
            return
        table.state = "REMOVED"
        for at in filter(self.machines.__contains__, table.machines):
            self.machines[at] += 1
        for actor in self.of(name):
            actor.is_dead = True
        self.place()

    # ── what a test looks at ────────────────────────────────────────────────────────────────────
    def of(self, group: str) -> list[Actor]:
        return [actor for actor in self.actors.values() if actor.new.group == group]

    @property
    def left(self) -> list[str]:
        """Groups that hold something."""
        return [name for name, table in self.tables.items() if table.holds]

    @property
    def living(self) -> list[Actor]:
        return [actor for actor in self.actors.values() if not actor.is_dead]

    # ── for the bridge ──────────────────────────────────────────────────────────────────────────
    def _called(self, what: str) -> None:
        if self.calls_left is not None:
            if self.calls_left == 0:
                raise BridgeKilled
            self.calls_left -= 1
        self.calls.append(what)

    def groups(self) -> list[Mapping[str, Any]]:
        self._called("groups")
        return [
            {
                "name": name,
                "state": table.state,
                "bundles": dict(enumerate(table.bundles)),
                "bundles_to_node_id": dict(enumerate(table.machines)),
                "stats": {"scheduling_state": "NO_RESOURCES"},
            }
            for name, table in self.tables.items()
        ]

    def make_group(self, name: str, bundles: Sequence[Mapping[str, float]], *, is_apart: bool) -> str:
        self._called("make_group")
        assert is_apart == (len(bundles) > 1)
        self.tables[name] = Group(bundles=[dict(one) for one in bundles], machines=[""] * len(bundles))
        self.place()
        return name

    def remove_group(self, name: str) -> None:
        self._called("remove_group")
        self.take_away(name)

    def make_node(self, node: NewNode, group: str) -> Actor:
        self._called("make_node")
        assert group == node.group
        assert node.agent_id not in self.actors
        self.actors[node.agent_id] = Actor(new=node, cluster=self)
        return self.actors[node.agent_id]

    def find_node(self, agent_id: str) -> Actor | None:
        self._called("find_node")
        found = self.actors.get(agent_id)
        return None if found is None or found.is_dead else found

    def end_node(self, node: Actor) -> None:
        self._called("end_node")
        node.is_dead = True

    def ask(self, node: Actor, what: str, *arguments: Any) -> Question:
        self._called(f"ask {what}")
        question = Question(actor=node, what=what, arguments=arguments)
        self._hand_over(question)
        return question

    def _hand_over(self, question: Question) -> None:
        actor = question.actor
        if actor.is_up and question.what != self.loses and not question.is_taken:
            question.is_taken = True
            actor.take(question.what, *question.arguments)

    def has_answered(self, question: Question) -> bool:
        actor = question.actor
        self._called("has_answered")
        if actor.is_dead or question.what == self.loses:
            return True
        self._hand_over(question)
        if not question.is_taken or self.is_slow:
            return False
        return question.what != "watch" or question.arguments[0] != actor.revision

    def answer(self, question: Question) -> dict[str, Any] | None:
        actor = question.actor
        self._called("answer")
        if actor.is_dead:
            raise NodeGoneError("the actor is dead")
        if question.what == self.loses:
            raise NodeAwayError("the actor is not available")
        state = {"phase": actor.phase, "revision": actor.revision, "draining": 0.0, "host": "h"}
        return None if question.what == "end" else state

    def facts(self) -> dict[str, Any]:
        self._called("facts")
        return {"address": "", "resources": {}}
