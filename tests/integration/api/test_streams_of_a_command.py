"""A command whose standard streams are closed or full, or whose folder is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TUNER = f"{sys.executable} -m tuner_service.cli.main"
SAID = {
    "version >&-": (1, "tuner: standard output: Bad file descriptor"),
    "version >/dev/full": (1, "tuner: standard output: No space left on device"),
    "--help >/dev/full": (1, "tuner: standard output: No space left on device"),
    "import x - --url http://127.0.0.1:1 <&-": (2, "tuner: standard input has no results: it is empty"),
    "show x --url nonsense 2>&-": (2, ""),
}


@pytest.mark.parametrize("line", SAID)
def test_a_stream_that_cannot_be_used_is_named(line: str, tmp_path: Path) -> None:
    done = _run(f"{TUNER} {line}", tmp_path)

    assert (done.returncode, done.stderr.strip(), done.stdout) == (*SAID[line], "")


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    done = _run(f"mkdir gone && cd gone && rmdir ../gone && {TUNER} db path", tmp_path)

    assert done.stderr == "tuner: the folder that this was started in is gone; go to another one first\n"


def _run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
