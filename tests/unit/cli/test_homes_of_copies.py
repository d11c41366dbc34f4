"""Which folder is the home of a database file that a command names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.cli.context import home_around
from tuner_service.cli.output.exit_codes import CommandError


@pytest.mark.parametrize(
    ("beside", "home"),
    [
        ((), "."),
        (("tuner.db-wal", "assets/files/ab", "checkpoints/abcd"), "."),
        (("token", "service.lock", "service.log", "notes.txt"), "."),
        (("agent/code/policy.py", "train.py"), "tuner-home"),
        (("checkpoints/best.pt", ".git/HEAD"), "tuner-home"),
    ],
    ids=["alone", "with all that it needs", "a home that has a note, too", "a project", "another one"],
)
def test_the_folder_of_a_project_is_no_home_because_a_database_was_copied_there(
    beside: tuple[str, ...], home: str, tmp_path: Path
) -> None:
    """A service that starts in one, and its agent, remove from `agent/` and `checkpoints/` what they do not know."""
    for name in ("tuner.db", *beside):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert home_around(tmp_path / "tuner.db") == tmp_path / home
    assert home_around(tmp_path / "copy.db") == tmp_path / "copy-home"
    with pytest.raises(CommandError, match="names a database file, not the folder"):
        home_around(tmp_path)


def test_a_folder_that_is_not_there_is_named_as_it_was(tmp_path: Path) -> None:
    assert home_around(tmp_path / "nowhere" / "tuner.db") == tmp_path / "nowhere"
