"""What the schema of the API promises. A short run with one seed; ``make schema-campaign`` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schema_campaign import schemathesis

EXAMPLES = 3  # of each operation, beside those that the schema's own bounds give


@pytest.mark.slow
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    done = schemathesis(tmp_path, examples=EXAMPLES, seed=1)

    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
