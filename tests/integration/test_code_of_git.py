"""Code that lies in a git repository: what is taken of it, and what is said of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tuner_service.cli.files import experiment_file, git_code
from tuner_service.cli.files.experiment_file import read_body
from tuner_service.cli.output.exit_codes import CommandError


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One commit, with ``src/train.py`` in it; no settings of this machine's own."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@b.c")
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "src" / "train.py").write_text("print(1)\n")
    (root / "notes.txt").write_text("one\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def trial_of(repository: Path, trial: str, **options: Any) -> dict[str, Any]:
    file = repository / "search.yaml"
    file.write_text(f"trial: {{{trial}, command: python train.py}}\n")
    found: dict[str, Any] = read_body(str(file), **options)["trial"]
    return found


def content_of(trial: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file.get("content", "") for file in trial["code"]["files"]}


def test_a_committed_folder_says_its_commit_and_branch(repository: Path) -> None:
    origin = trial_of(repository, "code: src")["code_origin"]

    assert origin == {"commit": git(repository, "rev-parse", "HEAD"), "branch": "main", "dirty": False, "changes": None}


@pytest.mark.parametrize("trial", ["code: src, code_changes: refuse", "code: {git: HEAD, folder: src}"])
def test_a_repository_of_another_owner_is_refused_with_what_git_says(
    repository: Path, monkeypatch: pytest.MonkeyPatch, trial: str
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own, for such tests

    with pytest.raises(CommandError, match="dubious ownership"):
        trial_of(repository, trial)


def test_changed_code_is_taken_and_the_diff_kept_of_that_folder_alone(repository: Path) -> None:
    (repository / "src" / "train.py").write_text("print(2)\n")
    (repository / "src" / "new.py").write_text("")
    (repository / "notes.txt").write_text("two\n")

    trial = trial_of(repository, "code: src")

    assert content_of(trial) == {"train.py": "print(2)\n", "new.py": ""}
    changes = trial["code_origin"]["changes"]
    assert trial["code_origin"]["dirty"] is True
    assert "# untracked: src/new.py\n" in changes
    assert "-print(1)\n+print(2)\n" in changes
    assert "notes.txt" not in changes


def test_a_file_that_is_gone_is_a_change_and_an_ignored_one_is_none(repository: Path) -> None:
    (repository / "src" / ".tunerignore").write_text("*.log\n")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "second")
    (repository / "src" / "a.log").write_text("")
    assert trial_of(repository, "code: src")["code_origin"]["dirty"] is False

    (repository / "src" / "train.py").unlink()

    assert trial_of(repository, "code: src")["code_origin"]["dirty"] is True


def test_refuse_names_the_changed_files(repository: Path) -> None:
    trial_of(repository, "code: src, code_changes: refuse")
    (repository / "src" / "train.py").write_text("print(2)\n")

    with pytest.raises(CommandError, match=r"refuse, and 1 files .* src/train\.py"):
        trial_of(repository, "code: src, code_changes: refuse")


def test_refuse_and_commit_need_a_repository(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()

    for policy in ("refuse", "commit"):
        with pytest.raises(CommandError, match="needs a git repository"):
            trial_of(tmp_path, f"code: src, code_changes: {policy}")


def test_commit_commits_the_code_with_the_note_and_leaves_what_is_staged_besides(repository: Path) -> None:
    (repository / "src" / "train.py").write_text("print(2)\n")
    (repository / "src" / "-n new.py").write_text("")
    (repository / "notes.txt").write_text("staged\n")
    git(repository, "add", "notes.txt")

    trial = trial_of(repository, "code: src, code_changes: commit", note="twice the rate")

    assert trial["code_origin"]["dirty"] is False
    assert trial["code_origin"]["commit"] == git(repository, "rev-parse", "HEAD")
    assert git(repository, "log", "-1", "--format=%s") == "twice the rate"
    assert git(repository, "show", "--format=", "--name-only", "-z", "HEAD").split("\0") == [
        "src/-n new.py",
        "src/train.py",
        "",
    ]
    assert git(repository, "diff", "--cached", "--name-only") == "notes.txt"


def test_a_dry_run_commits_nothing(repository: Path) -> None:
    (repository / "src" / "train.py").write_text("print(2)\n")
    before = git(repository, "rev-parse", "HEAD")

    trial = trial_of(repository, "code: src, code_changes: commit", commits=False)

    assert (git(repository, "rev-parse", "HEAD"), trial["code_origin"]["dirty"]) == (before, True)


def test_commit_is_refused_where_the_commit_would_belong_to_no_branch(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    (repository / "src" / "train.py").write_text("print(2)\n")

    with pytest.raises(CommandError, match="HEAD is detached"):
        trial_of(repository, "code: src, code_changes: commit")


def test_a_ref_is_taken_as_it_was_committed_never_from_the_working_tree(repository: Path) -> None:
    git(repository, "tag", "v1")
    commit = git(repository, "rev-parse", "v1")
    (repository / "src" / "train.py").write_text("print(2)\n")
    (repository / "src" / "new.py").write_text("")

    trial = trial_of(repository, "code: {git: v1, folder: src}")

    assert content_of(trial) == {"train.py": "print(1)\n"}
    assert trial["code_origin"] == {"commit": commit, "ref": "v1", "dirty": False}
    assert set(content_of(trial_of(repository, "code: {git: v1}"))) == {"src/train.py", "notes.txt"}


def test_a_folder_that_only_the_ref_has_is_found_there(repository: Path) -> None:
    git(repository, "tag", "v1")
    git(repository, "rm", "-q", "-r", "src")
    git(repository, "commit", "-q", "-m", "gone")

    assert set(content_of(trial_of(repository, "code: {git: v1, folder: src}"))) == {"train.py"}


def test_links_of_a_ref_are_followed_inside_and_refused_outside(repository: Path) -> None:
    (repository / "src" / "same.py").symlink_to("train.py")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "link")
    assert content_of(trial_of(repository, "code: {git: main, folder: src}"))["same.py"] == "print(1)\n"

    (repository / "src" / "out.py").symlink_to("/etc/passwd")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "out")

    with pytest.raises(CommandError, match="link to /etc/passwd"):
        trial_of(repository, "code: {git: main, folder: src}")


def test_links_of_a_ref_that_lead_to_one_another_are_refused(repository: Path) -> None:
    (repository / "src" / "one").symlink_to("two")
    (repository / "src" / "two").symlink_to("one")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "links")

    with pytest.raises(CommandError, match=r"one is a link to two, which leads back to it"):
        trial_of(repository, "code: {git: HEAD, folder: src}")


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        (r'code: {git: "a\0b"}', "has no commit"),
        (r'code: {git: HEAD, folder: "a\0b"}', r"trial\.code\.folder: no file has the path"),
        ("code: {git: HEAD, folder: ~no-such-user/x}", "begins with ~, and there is no such user"),
    ],
)
def test_a_ref_or_a_folder_that_there_can_be_none_of_is_refused(repository: Path, trial: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        trial_of(repository, trial)


@pytest.mark.parametrize("ref", ["no-such", "--output=/tmp/x", "main:src", "v1..v2"])
def test_what_is_no_commit_is_refused_by_name(repository: Path, ref: str) -> None:
    with pytest.raises(CommandError, match="has no commit"):
        trial_of(repository, f"code: {{git: '{ref}'}}")


def test_a_long_diff_is_cut_and_says_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_code, "MAX_CHANGES_CHARACTERS", 200)
    (repository / "src" / "train.py").write_text("print(2)\n" * 100)

    changes = trial_of(repository, "code: src")["code_origin"]["changes"]

    assert len(changes) <= 200
    assert "# cut here: " in changes


def test_a_ref_of_too_many_files_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_file, "MAX_CODE_FILES", 1)

    with pytest.raises(CommandError, match="export-ignore"):
        trial_of(repository, "code: {git: main}")


def test_a_folder_outside_any_repository_has_no_origin(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("")

    assert trial_of(tmp_path, "code: src")["code_origin"] is None
