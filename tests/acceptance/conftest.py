from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Home


@pytest.fixture
def make_home(tmp_path: Path) -> Iterator[Callable[..., Home]]:
    """Homes in one folder, ended with the test; nothing of them may be left running."""
    homes: list[Home] = []

    def make(**fields: Any) -> Home:
        homes.append(Home(folder=tmp_path, **fields))
        return homes[-1]

    yield make
    for made in homes:
        made.end()
    left = [words for made in homes for words in made.left()]
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a home that the tests of a file share."""
    folder = tmp_path_factory.mktemp("shared")
    yield folder / "home"
    home = Home(folder=folder, place=folder / "home")
    home.end()
    assert not home.left(), f"left behind: {home.left()}"


@pytest.fixture
def shared_home(tmp_path: Path, shared_place: Path) -> Iterator[Home]:
    """With a folder of its own, in a home where searches of other tests have ended: the service need not start anew."""
    home = Home(folder=tmp_path, place=shared_place)
    yield home
    home.open_gate()
    home.stop_searches()


@pytest.fixture
def home(make_home: Callable[..., Home]) -> Home:
    return make_home()
