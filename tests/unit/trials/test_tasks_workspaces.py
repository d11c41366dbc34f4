"""Workspaces of nodes: which outputs are whose."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from trials.tasks import set_output
from trials.tasks.workspaces import FOLDER_LIMIT_BYTES, Workspace, folder_of


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def kept(parent: Path, closing: ExitStack) -> Workspace:
    workspace = Workspace.kept(parent)
    closing.callback(workspace.close)
    return workspace


def give(monkeypatch: pytest.MonkeyPatch, workspace: Workspace, value: object) -> None:
    """As a task of that node's group."""
    of_task = {"TASK_NAME": "n/t", "TASK_NODE": "n", "TASK_WORKSPACE": str(workspace.path)}
    for name, text in {**of_task, "TASK_OUTPUTS": str(workspace.outputs)}.items():
        monkeypatch.setenv(name, text)
    set_output("accuracy", value)


def command_gives(workspace: Workspace, name: str, value: object, *, at_s: float | None = None) -> None:
    """As a command that knows only the workspace. ``at_s``: when; now, if it is not said."""
    file = workspace.path / "outputs" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(str(value))
    if at_s is not None:
        os.utime(file, (at_s, at_s))


def test_a_kept_workspace_has_none_of_the_outputs_of_groups_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Workspace.kept(tmp_path / "node")
    give(monkeypatch, first, 0.9)
    command_gives(first, "rank", 1)
    (first.path / "shards").write_text("1 2 3")
    first.close()

    second = Workspace.kept(tmp_path / "node")

    assert first.path == second.path
    assert (second.path / "shards").read_text() == "1 2 3"
    assert [path.name for path in second.path.iterdir()] == ["shards"]
    for name in ("accuracy", "rank"):
        with pytest.raises(FileNotFoundError):
            second.output(name)
    second.close()
    assert [path.name for path in (tmp_path / "node").iterdir()] == ["global"]


def test_a_private_workspace_is_removed(tmp_path: Path) -> None:
    one, other = Workspace.private(tmp_path / "node"), Workspace.private(tmp_path / "node")
    assert one.path != other.path
    one.close()
    assert list((tmp_path / "node").iterdir()) == [other.path]
    other.close()


def test_groups_that_use_a_kept_workspace_at_once_have_outputs_of_their_own(
    tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kept(tmp_path / "node", closing)
    give(monkeypatch, first, 0.9)
    second = kept(tmp_path / "node", closing)
    with pytest.raises(FileNotFoundError):
        second.output("accuracy")
    give(monkeypatch, second, 0.5)

    assert first.path == second.path
    assert (first.output("accuracy"), second.output("accuracy")) == (("json", b"0.9"), ("json", b"0.5"))
    second.close()
    assert first.output("accuracy") == ("json", b"0.9")


def test_a_command_that_knows_only_the_workspace_gives_outputs_also_beside_another_group(
    tmp_path: Path, closing: ExitStack
) -> None:
    first = kept(tmp_path / "node", closing)
    command_gives(first, "older", 1, at_s=1_000.0)
    second = kept(tmp_path / "node", closing)
    command_gives(second, "rank", 2)

    assert second.output("rank") == ("json", b"2")
    with pytest.raises(FileNotFoundError):
        second.output("older")


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0])
def test_what_a_command_gives_counts_also_where_the_clock_was_set_meanwhile(
    tmp_path: Path, closing: ExitStack, ahead_s: float
) -> None:
    first = kept(tmp_path / "node", closing)
    command_gives(first, "older", 1, at_s=time.time() + ahead_s)
    second = kept(tmp_path / "node", closing)
    command_gives(second, "rank", 2, at_s=time.time() + ahead_s)

    assert second.output("rank") == ("json", b"2")
    with pytest.raises(FileNotFoundError):
        second.output("older")
    command_gives(second, "older", 3, at_s=time.time() + ahead_s)
    assert second.output("older") == ("json", b"3")


def test_of_a_task_and_a_command_that_give_the_same_output_the_last_one_counts(
    tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = kept(tmp_path / "node", closing)
    later_s = time.time() + 100.0
    give(monkeypatch, workspace, 0.5)
    command_gives(workspace, "accuracy", 0.9, at_s=later_s)
    assert workspace.output("accuracy") == ("json", b"0.9")

    give(monkeypatch, workspace, 0.7)
    os.utime(workspace.outputs / "accuracy.json", (later_s + 1.0, later_s + 1.0))
    assert workspace.output("accuracy") == ("json", b"0.7")


def test_a_group_inside_of_a_task_has_the_outputs_of_that_task(
    tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path / "node", closing)
    outer = kept(tmp_path / "node", closing)
    monkeypatch.setenv("TASK_OUTPUTS", str(outer.outputs))

    inner = Workspace.of_outer_task(outer.path)

    assert (inner.path, inner.outputs) == (outer.path, outer.outputs)


def test_names_that_are_too_long_for_a_folder_have_one_each() -> None:
    names = ["n", "ü" * 100, "n" * 200 + "1", "n" * 200 + "2", "語" * 100]
    folders = [folder_of(name) for name in names]

    assert folders[:2] == names[:2]
    assert len(set(folders)) == len(names)
    assert all(len(folder.encode()) <= FOLDER_LIMIT_BYTES for folder in folders)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_folder_whose_file_system_knows_no_locks_will_do(
    number: int, tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    first = kept(tmp_path / "node", closing)
    command_gives(first, "older", 1, at_s=1_000.0)
    second = kept(tmp_path / "node", closing)
    give(monkeypatch, second, 0.5)

    assert second.output("accuracy") == ("json", b"0.5")
    with pytest.raises(FileNotFoundError):
        second.output("older")
    assert Workspace.private(tmp_path / "node").path.is_dir()
    assert first.outputs.is_dir()


def test_a_private_workspace_that_a_killed_runner_has_left_is_removed_by_the_next_one_of_its_machine(
    tmp_path: Path,
) -> None:
    running, killed = Workspace.private(tmp_path / "node"), Workspace.private(tmp_path / "node")
    assert killed._own is not None
    os.close(killed._own._held)
    elsewhere = tmp_path / "node" / "private-0123456789ab-x"
    elsewhere.mkdir()

    Workspace.private(tmp_path / "node").close()

    assert sorted((tmp_path / "node").iterdir()) == sorted([running.path, elsewhere])
    running.close()
