"""Packages as they are sent to the nodes of a cluster: with their byte code, so that no node compiles them.

Ray unpacks files with the time of that moment, by which Python takes byte code that came along for outdated. What is
made here does not name the time of its source: Ray names a package by its content, so that both belong together.
"""

from __future__ import annotations

import importlib.util
import py_compile
import shutil
from collections.abc import Sequence
from pathlib import Path

UNCHECKED = (1).to_bytes(4, "little")  # the flags of byte code that is not compared with its source (PEP 552)
HEADER_BYTES = 16


def compiled(packages: Sequence[str], *, into: Path) -> list[str]:
    """Copies of these folders below ``into``, which is made anew."""
    shutil.rmtree(into, ignore_errors=True)
    found = []
    for package in map(Path, packages):
        target = into.resolve() / package.name
        shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__"))
        for source in sorted(target.rglob("*.py")):
            _compile(source, original=package / source.relative_to(target))
        found.append(str(target))
    return found


def _compile(source: Path, *, original: Path) -> None:
    cached = Path(importlib.util.cache_from_source(str(source), optimization=""))
    cached.parent.mkdir(exist_ok=True)
    code = _code_of(original)
    if code is None:
        py_compile.compile(str(source), str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    else:
        digest = importlib.util.source_hash(source.read_bytes())
        cached.write_bytes(importlib.util.MAGIC_NUMBER + UNCHECKED + digest + code)


def _code_of(original: Path) -> bytes | None:
    """As this interpreter has compiled it already, if what it has is of that very source."""
    try:
        data = Path(importlib.util.cache_from_source(str(original), optimization="")).read_bytes()
        found = original.stat()
    except (OSError, NotImplementedError):
        return None
    stamp = b"".join((int(n) & 0xFFFF_FFFF).to_bytes(4, "little") for n in (found.st_mtime, found.st_size))
    is_it = data[:HEADER_BYTES] == importlib.util.MAGIC_NUMBER + bytes(4) + stamp
    return data[HEADER_BYTES:] if is_it else None
