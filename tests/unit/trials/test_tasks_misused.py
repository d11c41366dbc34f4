"""Task groups, as somebody writes them who has misread the page: each mistake is said where it is made."""

from __future__ import annotations

import builtins
import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.task_groups import do_nothing, progress
from trials import tasks
from trials.tasks import (
    GroupUsedError,
    LocalSession,
    Node,
    NotGuardedError,
    SetupSteps,
    Task,
    TaskGroup,
    TrialSession,
    distributed,
    set_output,
)
from trials.tasks.__main__ import main
from trials.tasks.session import importing_the_program
from trials.tasks.steps import plan_of

OF_ITS_PROCESSES = {"OutputTooLargeError"}  # which say it to the session


async def awaited() -> None:
    """Nobody awaits it."""


def yielding() -> Iterator[int]:
    yield 1


class Awaited:
    async def __call__(self) -> None:
        """Nobody awaits it either."""


def of_no_file() -> None:
    """As a prompt defines one."""


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"num_instances": "4"}, TypeError, "num_instances is a whole number, not '4'"),
        ({"num_instances": 2.0}, TypeError, "num_instances is a whole number"),
        ({"num_instances": math.nan}, TypeError, "num_instances is a whole number"),
        ({"num_instances": True}, TypeError, "num_instances is a whole number"),
        ({"num_instances": 10**9}, ValueError, "num_instances is at most 1000, not 1000000000"),
        ({"name": 5}, TypeError, "a task's name is text, not 5"),
        ({"name": "a\0b"}, ValueError, "a task's name has a NUL character"),
        ({"after": ["prepare"]}, TypeError, r"task 'true': after has tasks, as Task\(…\) returns them, not 'prepare'"),
        ({"after": "prepare"}, TypeError, "after has tasks"),
        ({"after": 5}, TypeError, "after has tasks"),
        ({"node": 5}, TypeError, "a node's name is text, not 5"),
        ({"outputs": [5]}, TypeError, "outputs are a name, a list of names or a mapping to names, not 5"),
        ({"outputs": [[5]]}, ValueError, "an output's name is of letters"),
    ],
)
def test_a_wrong_argument_of_a_task_is_named(arguments: Any, error: type[Exception], said: str) -> None:
    with TaskGroup(), pytest.raises(error, match=said):
        Task("true", **arguments)


def test_one_output_and_one_task_before_it_need_no_list() -> None:
    with TaskGroup():
        first = Task("true")
        second = Task("true", after=first, outputs="accuracy")

    assert second.after == (first,)
    assert [output.names for output in second.outputs] == [["accuracy"]]


@pytest.mark.parametrize(
    ("step", "error", "said"),
    [
        (awaited, TypeError, "is async, and nobody awaits it"),
        (partial(awaited), TypeError, "is async"),
        (Awaited(), TypeError, "is async"),
        (yielding, TypeError, "is a generator, of which a call runs nothing"),
        ("sh -c 'echo", ValueError, r"the command .* cannot be split into words: No closing quotation"),
        (["echo", "a\0b"], ValueError, "a word of the command has a NUL character"),
        (Path("train.py"), TypeError, "a step is a command, a function or a group"),
    ],
)
def test_a_step_that_would_do_nothing_or_cannot_be_started_is_refused(
    step: Any, error: type[Exception], said: str
) -> None:
    with TaskGroup(), pytest.raises(error, match=f"task 'mine': .*{said}"):
        Task(step, name="mine")


def test_a_function_of_a_program_without_a_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:

    main = ModuleType("__main__")
    main.of_no_file = of_no_file  # type: ignore[attr-defined]  # a module holds anything
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(of_no_file, "__module__", "__main__")
    with TaskGroup(), pytest.raises(TypeError, match="defined in a program that has no file"):
        Task(of_no_file)


# ── groups ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("interval_ms", [math.nan, 0.5, "1000", None])
def test_an_interval_is_a_whole_number(interval_ms: Any) -> None:
    with TaskGroup() as group, pytest.raises(TypeError, match="interval_ms is a whole number"):
        group.report_step("true", interval_ms=interval_ms)
    with TaskGroup() as group, pytest.raises(ValueError, match="interval_ms is at most 86400000"):
        group.report_step("true", interval_ms=10**12)


@pytest.mark.parametrize(
    "names",
    [
        lambda group: group.remote_step("true", nodes="ab"),
        lambda _: distributed("true", nodes="ab", processes_per_node=1),
    ],
)
def test_a_name_in_the_place_of_names_is_not_taken_letter_by_letter(names: Callable[[TaskGroup], object]) -> None:
    with TaskGroup() as group, pytest.raises(TypeError, match=r"nodes is a list of names, as \['a', 'b'\], not 'ab'"):
        names(group)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (lambda group: group.report_step("true", node="nod0"), "a report step is for node 'nod0'"),
        (lambda group: group.node_setup(SetupSteps(before=["true"]), node="nod0"), "a setup step is for node 'nod0'"),
        (lambda group: group.remote_step("true", nodes=["node0", "nod0"]), "a setup step is for node 'nod0'"),
    ],
)
def test_what_is_for_a_node_without_a_task_is_refused_before_anything_begins(
    wanted: Callable[[TaskGroup], object], said: str
) -> None:
    with TaskGroup() as group:
        Task(do_nothing, node="node0")
        wanted(group)
    with pytest.raises(ValueError, match=f"{said}, on which the group has no task; it has tasks on 'node0'"):
        LocalSession().run(group)


def test_labels_of_a_node_are_a_mapping() -> None:
    with pytest.raises(TypeError, match="node 'n': labels are a mapping of texts"):
        Node("n", labels=["zone"])  # type: ignore[arg-type]  # what is tested


# ── sessions ────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"grace_s": math.nan}, ValueError, "grace_s, in seconds, is a number, not NaN"),
        ({"grace_s": -1}, ValueError, "grace_s is at least 0"),
        ({"grace_s": "10"}, TypeError, "grace_s, in seconds, is a number"),
        ({"environment": {"A": 1}}, TypeError, "environment: variable 'A' is text, not 1"),
        ({"environment": {"A=B": "1"}}, ValueError, "the name of a variable is text without '='"),
        ({"environment": {"A": "\0"}}, ValueError, "environment: variable 'A' has a NUL character"),
    ],
)
@pytest.mark.parametrize("session", [LocalSession, TrialSession])
def test_a_wrong_argument_of_a_session_is_named(
    session: Any, arguments: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        session(**arguments)


@pytest.mark.parametrize(
    ("timeout_s", "error"), [(math.nan, ValueError), (math.inf, ValueError), (-1, ValueError), ("5", TypeError)]
)
def test_a_limit_that_is_none_would_never_be_reached(timeout_s: Any, error: type[Exception]) -> None:
    with TaskGroup() as group:
        Task(do_nothing)
    with pytest.raises(error, match="timeout_s"):
        LocalSession().run(group, timeout_s=timeout_s)
    group.use()  # it was not used
    with pytest.raises(GroupUsedError):
        group.use()


@pytest.mark.parametrize("group", [None, "python train.py", do_nothing, [Task]])
def test_a_session_runs_groups_and_tasks_only(group: Any) -> None:
    with pytest.raises(TypeError, match="a session runs a TaskGroup, or a Task alone, not"):
        LocalSession().run(group)


def test_what_a_group_waits_for_is_said_in_words() -> None:
    with TaskGroup() as group:
        Task(do_nothing, node="a", num_instances=2)
        group.report_step("true", node="a")
        group.node_setup(SetupSteps(before=["true"]))
    running = progress(group)
    running.begin()
    assert running.waits_for() == "a setup step on node 'a'"
    running.ended("node_setup:a")
    assert running.waits_for() == "a report step on node 'a', task 'a/do_nothing'"


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────
def test_an_output_that_holds_itself_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TASK_NAME": "n/t", "TASK_NODE": "n", "TASK_WORKSPACE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="output 'x' holds itself, or is nested too deeply"):
        set_output("x", loop)


# ── python -m trials.tasks ──────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--instances", "0"], "argument --instances: from 1 to 1000, not 0"),
        (["--instances", "100000"], "argument --instances: from 1 to 1000"),
        (["--instances", "two"], "argument --instances: invalid int value: 'two'"),
        (
            ["--instances", "1", "--nodes", "2", "--node", "2"],
            r"argument --node: from 0 to one less than --nodes \(2\)",
        ),
        (["--instances", "1", "--nodes", "0"], "argument --node"),
        (["--instances", "1", "--keep-output"], "TUNER_ATTEMPT_DIR says where to keep it, and is not set"),
    ],
)
def test_a_wrong_option_is_told_by_its_name(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUNER_ATTEMPT_DIR", raising=False)
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--", "true"])
    assert ended.value.code == 2
    assert re.search(said, capsys.readouterr().err)


def test_a_program_that_a_task_imports_runs_no_group_meanwhile() -> None:
    with TaskGroup() as group:
        Task(do_nothing)
    with importing_the_program(), pytest.raises(NotGuardedError, match='below `if __name__ == "__main__":`'):
        LocalSession().run(group)
    group.use()  # it was not used


@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_functions_of_the_program_bring_it_along_also_from_the_process_of_a_task(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ModuleType(name)  # as multiprocessing calls it where it was imported to find a function
    program.__file__ = str(tmp_path / "program.py")
    program.of_no_file = of_no_file  # type: ignore[attr-defined]  # a module holds anything
    for each in ("__main__", "__mp_main__"):
        monkeypatch.setitem(sys.modules, each, program)
    monkeypatch.setattr(of_no_file, "__module__", name)

    assert plan_of([of_no_file], what="a task").prepare["init_main_from_path"] == program.__file__
    assert "init_main_from_path" not in plan_of([do_nothing], what="a task").prepare


# ── errors ──────────────────────────────────────────────────────────────────────────────────────
def test_each_error_of_the_package_is_in_its_page_and_each_of_the_page_can_be_caught() -> None:
    page = (Path(__file__).parents[3] / "docs" / "task-groups.md").read_text()
    table = page.partition("## What the errors mean")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    said = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    of_modules = {
        name
        for public in tasks.__all__
        for name, found in vars(sys.modules[getattr(tasks, public).__module__]).items()
        if isinstance(found, type) and issubclass(found, Exception) and found.__module__.startswith("trials.tasks")
    }

    assert said - vars(builtins).keys() == set(filter(lambda name: name.endswith("Error"), tasks.__all__))
    assert of_modules - said == OF_ITS_PROCESSES
