"""`tuner doctor --digests` names every file that is not what was added or saved, and what to do about it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import CommandLine, command_line

SCRIPT = """\
import pathlib, trials
with trials.init() as trial:
    (pathlib.Path(trial.parameters["data"]) / "a.txt").read_text()
    trial.save_checkpoint({"weights": [1.0]}, step=1)
    trial.report_final(accuracy=0.5)
"""
# Eight bytes like the others, so that nothing but the digest tells them apart.
GOOD, BAD = b"original", b"damaged!"


@pytest.fixture(scope="module")
def tuner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A home after a search, whole; every test leaves it so."""
    with command_line(tmp_path_factory.mktemp("digests")) as line:
        line.begin_service()
        (line.folder / "data").mkdir()
        (line.folder / "data" / "a.txt").write_bytes(GOOD)
        (line.folder / "data" / "b.txt").write_bytes(b"another one")
        file = line.experiment_file(
            trial={"code": "code", "command": "python train.py", "datasets": {"data": "./data"}}, budget={"trials": 1}
        )
        (line.folder / "code" / "train.py").write_text(SCRIPT)
        line.run("run", file, code=0)
        yield line


def findings(tuner: CommandLine, *, code: int) -> list[str]:
    rows = json.loads(tuner.run("doctor", "--digests", "-o", "json", code=code))
    return [row["detail"] for row in rows if row["id"] == "assets"]


def damage(path: Path, content: bytes = BAD) -> None:
    """Bytes of another content, of the same size, at the same time, in the same place."""
    status = path.stat()
    path.chmod(0o600)
    path.write_bytes(content)
    path.chmod(status.st_mode & 0o777)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def one_with(folder: Path, content: bytes) -> Path:
    (found,) = (path for path in folder.rglob("*") if path.is_file() and path.read_bytes() == content)
    return found


def test_what_is_as_it_was_is_said_to_be(tuner: CommandLine) -> None:
    (found,) = findings(tuner, code=0)
    assert "is as it was" in found


def test_a_damaged_file_of_the_store_is_named_and_mended_by_what_the_message_says(tuner: CommandLine) -> None:
    place = one_with(tuner.home / "assets/files", GOOD)
    damage(place)

    (found,) = findings(tuner, code=1)
    assert "a.txt of asset" in found
    assert place.name in found
    assert "remove it from the store and add the asset again" in found

    place.unlink()
    tuner.run("asset", "add", str(tuner.folder / "data"), code=0)
    assert "is as it was" in findings(tuner, code=0)[0]


def test_a_damaged_tree_of_the_node_is_named_and_mended_by_what_the_message_says(tuner: CommandLine) -> None:
    file = one_with(tuner.home / "agent/assets", GOOD)
    damage(file)

    (found,) = findings(tuner, code=1)
    damage(file, GOOD)
    assert str(tuner.home / "agent/assets") in found
    assert ": a.txt;" in found
    assert "b.txt" not in found


def test_what_lies_in_a_tree_besides_is_damage(tuner: CommandLine) -> None:
    tree = one_with(tuner.home / "agent/assets", GOOD).parent
    tree.chmod(0o700)
    (tree / "more").write_bytes(b"")
    tree.chmod(0o500)

    found = findings(tuner, code=1)
    tree.chmod(0o700)
    (tree / "more").unlink()
    tree.chmod(0o500)
    assert ": more;" in found[0]


def test_trees_of_an_asset_that_the_store_has_not_are_not_told_apart_from_it(
    tuner: CommandLine, tmp_path: Path
) -> None:
    files = {n: path for n, path in enumerate((tuner.home / "assets/files").rglob("*")) if path.is_file()}
    for number, path in files.items():
        path.rename(tmp_path / str(number))

    found = findings(tuner, code=1)
    for number, path in files.items():
        (tmp_path / str(number)).rename(path)
    assert " is not in " in found[0]
    assert not any("agent/assets" in text for text in found)
