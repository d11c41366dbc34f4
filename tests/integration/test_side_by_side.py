"""``tests.side_by_side`` as a whole: a run in forks says what one process would, and none can pass by ending early."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALIKE = """
import os
import sys
import tempfile
from pathlib import Path

import pytest

PARENT = os.getpid()


@pytest.fixture(scope="session", autouse=True)
def of_the_session():
    yield
    Path(__file__).with_suffix(".torn").touch()


def test_it_runs_in_a_fork_without_another_thread():
    assert os.getpid() != PARENT == os.getppid()
    assert len(os.listdir("/proc/self/task")) == 1


@pytest.mark.parametrize("number", range(20))
def test_folders_and_outputs_are_its_own(tmp_path, capfd, number):
    assert not list(tmp_path.iterdir())
    os.write(1, b"said by %d\\n" % number)
    assert capfd.readouterr().out == f"said by {number}\\n"


def test_one_is_left_out():
    pytest.skip("for a reason")
"""
FAILS = """
def test_it_fails():
    print("what was seen before")
    found = [1, 2]
    assert found == [1, 3]
"""
DIES = "import os\n\ndef test_it_dies():\n    os._exit(0)\n\ndef test_behind_it():\n    pass\n"
LEAVES_OPEN = """
def test_it_leaves_a_file_open():
    cycle = [open(__file__)]
    cycle.append(cycle)
"""


def run(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    fixed = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}", "-p", "no:cacheprovider", "-p", "no:randomly"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.side_by_side", "--forks=2", "--color=no", *fixed, *options, "."],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_all_tests_run_once_and_fixtures_of_the_session_end_in_each_fork(tmp_path: Path) -> None:
    done = run(tmp_path, "-rs", one=ALIKE, another=ALIKE, third=ALIKE)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "63 passed, 3 skipped in" in done.stdout
    assert "for a reason" in done.stdout
    assert "said by" not in done.stdout + done.stderr
    assert {path.stem for path in tmp_path.glob("*.torn")} == {"test_one", "test_another", "test_third"}


def test_a_failure_is_told_with_what_was_seen_and_said(tmp_path: Path) -> None:
    done = run(tmp_path, one=ALIKE, fails=FAILS)

    assert done.returncode == 1
    assert "assert [1, 2] == [1, 3]" in done.stdout
    assert "what was seen before" in done.stdout
    assert "FAILED test_fails.py::test_it_fails" in done.stdout
    assert "1 failed, 21 passed, 1 skipped in" in done.stdout


def test_a_fork_that_ends_before_its_last_test_fails_the_run_and_says_what_was_left_out(tmp_path: Path) -> None:
    done = run(tmp_path, dies=DIES, one=ALIKE)

    assert done.returncode == 1
    assert "its process ended in it, with code 0" in done.stdout
    assert "FAILED test_dies.py::test_it_dies" in done.stdout
    assert "test_dies.py::test_behind_it" in done.stdout


def test_what_the_last_test_left_open_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, leaves=LEAVES_OPEN, one=ALIKE)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "unclosed file" in done.stdout + done.stderr


def test_a_run_that_is_to_end_at_a_failure_begins_no_further_file(tmp_path: Path) -> None:
    many = {f"a_{number}": "def test_it():\n    assert 0\n" for number in range(9)}

    done = run(tmp_path, "-x", **many)

    assert done.returncode == 1
    assert "stopping after" in done.stdout
    assert done.stdout.count("FAILED test_a_") < 4
