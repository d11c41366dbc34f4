"""What joined nodes have sent of experiments that are deleted, and whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.cli.files.garbage_files import Needed, find_files

NEEDED = Needed(
    lineage="mine",
    experiments=frozenset({"kept1"}),
    ended_nonces=frozenset(),
    checkpoints=frozenset(),
    code=frozenset(),
)


@pytest.fixture
def received(tmp_path: Path) -> Path:
    """Of one experiment that there is, and of one that was deleted."""
    for area in ("checkpoints", "logs"):
        for experiment in ("kept1", "gone1"):
            folder = tmp_path / "nodes" / area / experiment / "1" / "1-n1"
            folder.mkdir(parents=True)
            (folder / "file").write_bytes(b"bytes")
    return tmp_path / "nodes"


def test_of_a_deleted_experiment_it_goes_and_of_others_it_stays(received: Path) -> None:
    (received / "lineages").write_text("mine\n")

    found = find_files(received.parent, NEEDED)

    assert [(one.what, one.path) for one in found] == [
        ("received checkpoints", received / "checkpoints" / "gone1"),
        ("received logs", received / "logs" / "gone1"),
    ]
    for one in found:
        one.remove()
    assert sorted(path.name for path in received.glob("*/*")) == ["kept1", "kept1"]


@pytest.mark.parametrize("lineages", [None, "", "other\n", "mine\nother\n"])
def test_where_it_may_be_of_another_database_all_stays(received: Path, lineages: str | None) -> None:
    if lineages is not None:
        (received / "lineages").write_text(lineages)

    assert find_files(received.parent, NEEDED) == []
