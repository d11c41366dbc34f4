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


@pytest.fixture
def home(make_home: Callable[..., Home]) -> Home:
    return make_home()
