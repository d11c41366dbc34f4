"""The code of docs/learner.md and docs/task-groups.md runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("page", "name", "last"),
    [
        ("learner.md", "train.py", r"checkpoint of step 250: .*|final: loss=.*"),
        ("learner.md", "follow.py", r"7 \{'w': \[0\.5, 1\.5\]\}"),
        ("task-groups.md", "group.py", "accuracy 0.75"),
    ],
)
def test_the_code_of_a_page_runs(tmp_path: Path, page: str, name: str, last: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    code = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL))[name]
    (tmp_path / name).write_text(code)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TUNER_") and k != "RANK"}
    done = subprocess.run(
        [sys.executable, name],
        cwd=tmp_path,
        env=kept | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(last, done.stdout.splitlines()[-1]), done.stdout
    if name == "group.py":
        assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == [
            f"rank {rank} of 4" for rank in range(4)
        ]
