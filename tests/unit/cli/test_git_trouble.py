"""A repository that git cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.cli.files import git_code
from tuner_service.cli.files.git_code import GitError, NoGitError, origin_of
from tuner_service.cli.output.exit_codes import CommandError


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()

    def git(folder: Path, *arguments: str) -> str:
        if arguments == ("rev-parse", "--show-toplevel"):
            return f"{folder}\n"
        raise GitError("fatal: index file corrupt")

    monkeypatch.setattr(git_code, "_git", git)
    return tmp_path


def test_code_that_may_have_changed_is_taken_without_its_origin(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert origin_of(damaged, {"train.py"}, policy="allow", message="") is None
    assert "not recorded: git failed in" in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["refuse", "commit"])
def test_code_that_may_not_have_changed_is_refused(damaged: Path, policy: str) -> None:
    with pytest.raises(CommandError, match=r"git failed in .* index file corrupt"):
        origin_of(damaged, {"train.py"}, policy=policy, message="")


@pytest.mark.parametrize(
    ("error", "refused", "said"),
    [
        (GitError("fatal: detected dubious ownership in repository at '/x'"), "git failed in .* dubious", "dubious"),
        (NoGitError("there is no git on this machine"), "there is no git on this machine", ""),
        (GitError("fatal: not a git repository (or any of the parent directories): .git"), "lies in none", ""),
    ],
)
def test_where_git_does_not_say_what_repository_it_is_its_reason_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: GitError,
    refused: str,
    said: str,
) -> None:
    def git(*_: object) -> str:
        raise error

    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(git_code, "_git", git)
    with pytest.raises(CommandError, match=refused):
        origin_of(tmp_path, {"train.py"}, policy="refuse", message="")
    assert origin_of(tmp_path, {"train.py"}, policy="allow", message="") is None
    err = capsys.readouterr().err
    assert said in err
    assert bool(err) is bool(said)
