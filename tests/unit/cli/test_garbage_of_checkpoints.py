"""Which of the large checkpoints of a home nothing needs, while trials run on without a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trials.agent.home import Home
from trials.wire.files import FOLDER_CHECKPOINTS
from tuner_service.cli.files import garbage_files
from tuner_service.cli.files.garbage_files import Needed, find_files

OLD, NEW = "b" * 64, "a" * 64
NEEDED = Needed(
    lineage="l", experiments=frozenset({"e"}), ended_nonces=frozenset(), checkpoints=frozenset(), code=frozenset()
)


def test_a_checkpoint_that_a_trial_saves_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    own = home.attempts / "e" / "1" / "1-n" / FOLDER_CHECKPOINTS
    own.mkdir(parents=True)
    home.checkpoints.mkdir()
    (home.checkpoints / OLD).touch()
    matching = garbage_files.matching

    def slowly(folder: Path, pattern: str) -> Iterator[Path]:
        yield from matching(folder, pattern)
        if pattern.endswith(".ckpt"):  # it has looked at all attempts
            (own / f"000000001-{NEW[:12]}.ckpt").touch()
            (home.checkpoints / NEW).touch()

    monkeypatch.setattr(garbage_files, "matching", slowly)

    found = [garbage.where for garbage in find_files(tmp_path, NEEDED) if garbage.what == "checkpoint"]

    assert found == [str(home.checkpoints / OLD)]


def test_what_a_person_has_in_a_folder_called_checkpoints_or_workers_is_no_garbage(tmp_path: Path) -> None:
    """A home may be the folder of a project: that in which its database lies."""
    home = Home(tmp_path)
    (home.checkpoints / "run1").mkdir(parents=True)
    (tmp_path / "workers" / "code" / "mine").mkdir(parents=True)
    for name in ("best_model.pt", "abcdef.pt", OLD, f".{OLD}.17.tmp"):
        (home.checkpoints / name).touch()

    found = {garbage.where for garbage in find_files(tmp_path, NEEDED)}

    assert found == {str(home.checkpoints / name) for name in (OLD, f".{OLD}.17.tmp")}
