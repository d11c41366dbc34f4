"""A trial may make folders thousands of levels deep, which shutil.rmtree() does not come to the end of."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.deep_folders import DEEP, deepen
from trials.agent.home import Home, remove_whatever, tidy
from trials.agent.sharing.servers import FOLDER_DATA, DataServers
from trials.files import remove_tree
from trials.processes.control_groups import ControlGroup
from trials.wire.files import FOLDER_RESTORE, FOLDER_WORK

NOBODY = 65_534


@contextmanager
def few_descriptors(spare: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("ignore_errors", "levels"), [(False, 2_100), (True, 1_000)])
def test_a_folder_is_removed_however_deep_it_is(ignore_errors: bool, levels: int, tmp_path: Path) -> None:
    """Also where it is deeper than a path has room for."""
    deepen(tmp_path / "f", levels)

    remove_tree(tmp_path / "f", ignore_errors=ignore_errors)

    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("ignore_errors", [False, True])
def test_a_folder_that_is_deeper_than_there_are_descriptors_is_removed(ignore_errors: bool, tmp_path: Path) -> None:
    deepen(tmp_path / "f", 100)

    with few_descriptors(50):
        remove_tree(tmp_path / "f", ignore_errors=ignore_errors)

    assert not (tmp_path / "f").exists()


def test_what_a_link_in_a_deep_folder_names_stays(tmp_path: Path) -> None:
    (tmp_path / "other" / "folder").mkdir(parents=True)
    deepen(tmp_path / "f" / "g")
    (tmp_path / "f" / "link").symlink_to(tmp_path / "other")

    remove_tree(tmp_path / "f")

    assert not (tmp_path / "f").exists()
    assert (tmp_path / "other" / "folder").is_dir()


def test_what_cannot_be_removed_is_said_as_by_rmtree(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for remove in (remove_tree, shutil.rmtree):
        with pytest.raises(FileNotFoundError):
            remove(tmp_path / "f")
        with pytest.raises(NotADirectoryError):
            remove(tmp_path / "file")
    remove_tree(tmp_path / "f", ignore_errors=True)
    remove_tree(tmp_path / "file", ignore_errors=True)
    assert (tmp_path / "file").exists()


def test_a_deep_folder_that_nobody_may_write_into_is_removed(tmp_path: Path) -> None:
    deepen(tmp_path / "f")
    (tmp_path / "f" / "d" / "d").chmod(0o500)

    remove_whatever(tmp_path / "f")

    assert not (tmp_path / "f").exists()


@contextmanager
def without_roots_rights() -> Iterator[None]:
    """This thread may not do with files what their modes forbid, also where root runs the tests."""
    libc = ctypes.CDLL(None)
    libc.setfsuid(NOBODY if os.geteuid() == 0 else os.geteuid())
    try:
        yield
    finally:
        libc.setfsuid(os.geteuid())


@pytest.mark.parametrize("levels", [10, 20, 300])
def test_folders_that_nobody_may_write_into_are_removed_where_a_path_has_no_room_for_their_names(
    levels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.chdir(tmp_path)
    with without_roots_rights():
        deepen(Path("f"), levels, level_name="d" * 250)
        here = os.open("f", os.O_RDONLY)
        for _ in range(levels):
            here, above = os.open("d" * 250, os.O_RDONLY, dir_fd=here), here
            os.close(above)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.fchmod(here, 0o500)
        os.close(here)

        remove_whatever(Path("f"))

    assert not Path("f").exists()


def test_an_attempt_that_has_deep_folders_is_tidied_and_its_experiment_removed(tmp_path: Path) -> None:
    """What it raised there ended the agent, and left the folders of a deleted experiment for ever."""
    home = Home(tmp_path)
    folder = home.attempts / "e" / "1" / "1-n"
    deepen(folder / FOLDER_RESTORE)
    deepen(folder / FOLDER_WORK)

    tidy(folder)
    assert not (folder / FOLDER_RESTORE).exists()

    home.remove_experiment("e")
    assert not (home.attempts / "e").exists()


@pytest.mark.parametrize("levels", [DEEP, 2_100], ids=["than calls", "than a path"])
def test_what_lives_in_a_group_that_is_nested_deeper_is_found_and_the_groups_are_removed(
    tmp_path: Path, levels: int, request: pytest.FixtureRequest
) -> None:
    """A trial may nest the control groups that it is given."""
    for name in ("tuner-n", "tuner-m"):  # pytest does not come to the end of them
        request.addfinalizer(partial(remove_tree, tmp_path / name, ignore_errors=True))
    group = ControlGroup(str(tmp_path / "tuner-n"))
    (tmp_path / "tuner-n" / "beside" / "below").mkdir(parents=True)
    deepen(tmp_path / "tuner-n" / "deep", levels, name="cgroup.procs", text=b"17\n0\n")
    (tmp_path / "tuner-n" / "beside" / "below" / "cgroup.procs").write_text("1\n2\n")

    with few_descriptors(20):
        assert group.pids() == {1, 2, 17}

    empty = ControlGroup(str(tmp_path / "tuner-m"))
    (tmp_path / "tuner-m" / "beside").mkdir(parents=True)
    deepen(tmp_path / "tuner-m" / "deep", levels, name=None)
    with few_descriptors(20):
        empty.remove()
    assert not (tmp_path / "tuner-m").exists()
    assert ControlGroup(str(tmp_path / "none")).pids() == set()


def test_an_agent_starts_where_a_producer_of_data_left_deep_folders(tmp_path: Path) -> None:
    home = Home(tmp_path)
    left = home.agent / FOLDER_DATA / "key"
    deepen(left / FOLDER_WORK)

    async def scene() -> None:
        servers = DataServers(home, lambda _: home.path)
        servers.open()
        await servers.close()

    asyncio.run(scene())
    assert not left.exists()
