from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.dispatcher.harness import Harness


@pytest.fixture
def h() -> Iterator[Harness]:
    """Whatever the test did, the invariants hold at its end."""
    harness = Harness()
    yield harness
    harness.check()
