"""The blocking objects are the awaited ones without their awaiting; both are typed, quick to import, and no server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.test_repository import SERVER_ROOTS, SLOW_MACHINE
from tests.program_twin import TWINS, blocking

ROOT = Path(__file__).resolve().parents[3]
IMPORT_S = 0.15
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_blocking_objects_are_written_from_the_awaited_ones() -> None:
    for awaited, twin in TWINS.items():
        assert twin.read_text(encoding="utf-8") == blocking(awaited.read_text(encoding="utf-8")), twin


def test_importing_them_is_quick_and_imports_nothing_of_the_server() -> None:
    script = (
        "import json, sys, time\nbegun = time.process_time()\n"
        "from tuner_service import aio, quick_start, connect, resume_unfinished\n"
        "took = time.process_time() - begun\n"
        "print(json.dumps([took, sorted({name.partition('.')[0] for name in sys.modules})]))\n"
    )
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert time.perf_counter() > begun
        took, modules = json.loads(done.stdout)
        assert not set(modules) & (SERVER_ROOTS | {"pandas", "IPython"})
        seconds.append(took)
    assert min(seconds) <= IMPORT_S * SLOW_MACHINE


@pytest.mark.slow
@pytest.mark.parametrize("page", ["from-a-program", "from-a-notebook"])
def test_the_scripts_of_the_pages_are_typed(page: str, tmp_path: Path) -> None:
    pieces = FENCE.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    # The cells of a notebook are one program.
    scripts = ["\n".join(pieces)] if page == "from-a-notebook" else pieces
    files = []
    for place, text in enumerate(scripts):
        files.append(tmp_path / f"script_{place}.py")
        files[-1].write_text(text)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_wrong_types_are_wrong_for_a_type_checker_as_well(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(
        "from tuner_service import connect, quick_start\nquick_start(trials='5')\n"
        "connect().experiment(5).set(trial=1)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.findall(r"wrong.py:(\d+): error", done.stdout) == ["2", "3", "3"], done.stdout
