from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import CommandLine, command_line, in_shared_home


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a home that the tests of a file share."""
    with command_line(tmp_path_factory.mktemp("shared")) as line:
        line.begin_service()
        yield line.home


@pytest.fixture
def shared(tmp_path: Path, shared_place: Path) -> Iterator[CommandLine]:
    with in_shared_home(shared_place, tmp_path) as line:
        yield line


@pytest.fixture
def own(tmp_path: Path) -> Iterator[CommandLine]:
    """With a home of its own, for what others must not see, or would disturb."""
    with command_line(tmp_path) as line:
        yield line
