"""The import graph of both packages, read from their source: no file imports itself through others.

Imports inside functions and under ``TYPE_CHECKING`` count: who reads one file of a circle has to read all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("trials", "tuner_service")
Graph = dict[str, set[str]]

# Circles that are still there, as the sorted names of their modules. A circle that is gone has to leave this list.
KNOWN_CIRCLES: list[list[str]] = []


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source: str, *, module: str, is_package: bool) -> Iterator[str]:
    """What the source imports: modules, and names that may be modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: None if not node.level else -(node.level - is_package) or None]
            base = ".".join([*above, *([node.module] if node.module else [])]) if node.level else node.module or ""
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def graph_of(sources: dict[str, tuple[str, bool]]) -> Graph:
    """``sources``: of each module its text, and whether it is a package.

    ``from package import module`` imports the module; the package itself only where a name is taken from its own file.
    """
    graph: Graph = {}
    for module, (source, is_package) in sources.items():
        names = list(imported_names(source, module=module, is_package=is_package))
        known = {name for name in names if name in sources and name != module}
        through = {name.rpartition(".")[0] for name in known if name.rpartition(".")[0] in names}
        taken = {base for base in known if any(n.rpartition(".")[0] == base and n not in sources for n in names)}
        graph[module] = {name for name in known if name not in through or name in taken}
    return graph


@cache
def import_graph() -> Graph:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return graph_of({module_name(path): (path.read_text(), path.name == "__init__.py") for path in paths})


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan 1972), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            place = stack.index(module)
            component = sorted(stack[place:])
            del stack[place:]
            if len(component) > 1:
                found.append(component)

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return sorted(found)


def test_no_file_imports_itself_through_others() -> None:
    graph = import_graph()
    found = [circle for circle in circles(graph) if circle not in KNOWN_CIRCLES]
    shown = [f"{module} imports {', '.join(sorted(graph[module] & set(c)))}" for c in found for module in c]

    assert not found, "move what these files share into a file below them:\n" + "\n".join(shown)


def test_the_list_of_known_circles_has_only_those_that_are_there() -> None:
    there = circles(import_graph())

    assert [circle for circle in KNOWN_CIRCLES if circle not in there] == []


# Each room imports only those after it. The pure rules of ``trials.data`` can be read and tested alone; of the agent's
# rooms, those that fork, move bytes and share data stand between what speaks to the service and what an attempt is.
ROOMS_OF_DATA = (
    "trials.data.sharing",
    "trials.data.async_data_loader",
    "trials.data.own_batches",
    "trials.data.loader",
    "trials.data.loader_state",
    "trials.data.loader_options",
    "trials.data.workers",
    "trials.data.core",
    "trials.data.errors",
)
ROOMS_OF_THE_AGENT = (
    "trials.agent.__main__",
    "trials.agent.ray_node",
    "trials.agent.held",
    "trials.agent.local",
    "trials.agent.joining",
    "trials.agent.channel",
    "trials.agent.patience",
    "trials.agent.conversation",
    "trials.agent.waiting",
    "trials.agent.answers",
    "trials.agent.agent",
    "trials.agent.causes",
    "trials.agent.parts",
    "trials.agent.removing",
    "trials.agent.launching",
    "trials.agent.sharing",
    "trials.agent.moving",
    "trials.agent.forks",
    "trials.agent.attempts",
    "trials.agent.spool",
    "trials.agent.log_chunks",
    "trials.agent.supervision",
    "trials.agent.devices",
    "trials.agent.node_facts",
    "trials.agent.ways",
    "trials.agent.home",
    "trials.agent.wake",
    "trials.agent.bounds",
    "trials.agent.threads",
    "trials.agent.rounds",
)


def room_of(module: str, rooms: Sequence[str]) -> int | None:
    return next((n for n, room in enumerate(rooms) if f"{module}.".startswith(f"{room}.")), None)


@pytest.mark.parametrize("rooms", [ROOMS_OF_DATA, ROOMS_OF_THE_AGENT], ids=["data loading", "the agent"])
def test_rooms_import_downward_only(rooms: Sequence[str]) -> None:
    upward = []
    for module, imported in import_graph().items():
        room = room_of(module, rooms)
        for other in sorted(imported):
            its = room_of(other, rooms)
            if room is not None and its is not None and its < room:
                upward.append(f"{module} imports {other}")

    assert upward == []


def test_every_file_of_the_agent_has_a_room() -> None:
    of_agent = [module for module in import_graph() if module.startswith("trials.agent.")]

    assert [module for module in of_agent if room_of(module, ROOMS_OF_THE_AGENT) is None] == []


def test_a_script_that_reports_imports_nothing_of_what_services_and_agents_say_to_each_other() -> None:
    """It would be a third of what the import of ``trials.session`` takes, in each trial that is started anew."""
    graph, found, pending = import_graph(), set[str](), ["trials.session"]
    while pending:
        module = pending.pop()
        if module not in found:
            found.add(module)
            pending += graph[module]

    assert "trials.wire.records" in found
    assert found.isdisjoint({"trials.wire.messages", "trials.wire.launch", "trials.wire.encoding"})


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"p.a": "import p.b", "p.b": "import p.c", "p.c": "from p import a"}, [["p.a", "p.b", "p.c"]]),
        ({"p.a": "import p.b", "p.b": "if TYPE_CHECKING:\n    from p.a import X"}, [["p.a", "p.b"]]),
        ({"p.a": "import p.b", "p.b": "def f():\n    from . import a"}, [["p.a", "p.b"]]),
        ({"p": "from p.a import x", "p.a": "from p import y"}, [["p", "p.a"]]),
        ({"p": "from p.a import x", "p.a": "from p import b", "p.b": ""}, []),
        ({"p.a": "import p.b", "p.b": "import os"}, []),
    ],
    ids=["three files", "for types", "in a function", "a package's own names", "modules of a package", "none"],
)
def test_a_circle_is_seen_however_it_is_closed(sources: dict[str, str], expected: list[list[str]]) -> None:
    graph = graph_of({name: (text, name == "p") for name, text in sources.items()})

    assert circles(graph) == expected
