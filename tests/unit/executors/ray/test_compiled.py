"""What is sent to nodes has byte code that is used there, whatever the times of its files."""

from __future__ import annotations

import importlib.util
import os
import py_compile
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from tuner_service.executors.ray.compiled import compiled


def a_package(folder: Path) -> Path:
    (folder / "own" / "inner").mkdir(parents=True)
    (folder / "own" / "__init__.py").write_text("VALUE = 1\n")
    (folder / "own" / "inner" / "deep.py").write_text("VALUE = 2\n")
    (folder / "own" / "py.typed").touch()
    return folder / "own"


def loaded(path: Path) -> int:
    """What the module says, without compiling anything: its source has another time, and other content."""
    path.write_text("VALUE = 99\n")
    os.utime(path, (5, 5))
    spec = importlib.util.spec_from_file_location("loaded", path)
    assert spec is not None
    assert isinstance(spec.loader, SourceFileLoader)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return int(module.VALUE)


@pytest.mark.parametrize("before", ["nothing", "byte code", "outdated byte code"])
def test_its_byte_code_is_that_of_its_source(before: str, tmp_path: Path) -> None:
    package = a_package(tmp_path / "from")
    if before != "nothing":
        py_compile.compile(str(package / "__init__.py"))
    if before == "outdated byte code":
        (package / "__init__.py").write_text("VALUE = 33\n")

    (copy,) = map(Path, compiled([str(package)], into=tmp_path / "into"))

    assert copy == tmp_path / "into" / "own"
    assert (copy / "py.typed").exists()
    assert loaded(copy / "__init__.py") == (33 if before == "outdated byte code" else 1)
    assert loaded(copy / "inner" / "deep.py") == 2


def test_it_is_made_anew_and_the_same_gives_the_same(tmp_path: Path) -> None:
    package = a_package(tmp_path / "from")
    py_compile.compile(str(package / "__init__.py"))
    (tmp_path / "into" / "own").mkdir(parents=True)
    (tmp_path / "into" / "own" / "old.py").touch()

    seen = []
    for _ in range(2):
        (copy,) = map(Path, compiled([str(package)], into=tmp_path / "into"))
        seen.append({path.relative_to(copy): path.read_bytes() for path in copy.rglob("*") if path.is_file()})

    assert seen[0] == seen[1]
    assert len(seen[0]) == 5
