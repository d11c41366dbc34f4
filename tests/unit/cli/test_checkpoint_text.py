"""How `tuner show TRIAL` prints checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from tuner_service.cli.output.descriptions import checkpoint_text

CHECKPOINT = {
    "step": 40, "size": 200_000_000, "inline": False, "location": "s3://weights/x.ckpt", "value": 0.25,
    "stall_s": 0.0214, "write_s": 0.3, "damaged": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {},
            "step 40, 200.0 MB s3://weights/x.ckpt, value 0.25, the script waited 21 ms, written in 0.30 s",
        ),
        ({"inline": True, "location": None, "value": None, "stall_s": None}, "step 40, 200.0 MB in the database"),
        (
            {"location": None, "value": None, "stall_s": None, "damaged": True},
            "step 40, 200.0 MB on the node of its attempt, damaged",
        ),
    ],
)
def test_a_checkpoint_is_one_line(fields: dict[str, Any], line: str) -> None:
    assert checkpoint_text({**CHECKPOINT, **fields}) == f"  {line}\n"
