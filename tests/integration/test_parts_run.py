"""``tests.parts`` as a whole: each part is what a pytest of its own would be, and none can pass by ending early."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OF_ITS_OWN = """
import __main__, atexit, os, sys
from pathlib import Path

atexit.register(Path(__file__).with_suffix(".ended").touch)


def test_it_is_a_pytest():
    assert Path(__main__.__file__).parts[-2:] == ("pytest", "__main__.py")
    assert sys.argv[-1] == f"files/{Path(__file__).name}"
    assert os.path.samefile("/proc/self/fd/0", os.devnull)


def test_it_has_no_thread_but_its_own():
    assert len(os.listdir("/proc/self/task")) == 1
"""
FAILS_AT_FIRST = """
from pathlib import Path


def test_it_passes_alone():
    place = Path(__file__).with_suffix(".failed")
    if not place.exists():
        place.touch()
        found = [1, 2]
        assert found == [1, 3]
"""
DIES = "import os\ndef test_it_dies():\n    os._exit(0)\n"


def run(folder: Path, **files: str) -> subprocess.CompletedProcess[str]:
    tests, temporary = folder / "files", folder / "temporary"
    tests.mkdir()
    temporary.mkdir()
    for name, text in files.items():
        (tests / f"test_{name}.py").write_text(text)
    options = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.parts", "files", *options],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not list(temporary.iterdir())
    return done


def test_each_part_is_a_pytest_of_its_own_to_its_end(tmp_path: Path) -> None:
    done = run(tmp_path, one=OF_ITS_OWN, another=OF_ITS_OWN)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 files in 2 parts" in done.stdout
    assert "4 passed in" in done.stdout
    assert {path.stem for path in (tmp_path / "files").glob("*.ended")} == {"test_one", "test_another"}


def test_what_fails_beside_others_and_passes_alone_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, one=OF_ITS_OWN, unsteady=FAILS_AT_FIRST)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "assert [1, 2] == [1, 3]" in done.stdout  # as pytest explains it
    assert "test_unsteady.py::test_it_passes_alone failed beside others and passed alone" in done.stdout


def test_a_part_that_ends_before_its_last_test_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, one=OF_ITS_OWN, dies=DIES)

    assert done.returncode == 1
    assert "1 of 2 parts failed" in done.stdout
