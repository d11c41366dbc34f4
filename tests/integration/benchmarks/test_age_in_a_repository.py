"""How old a result is, as a repository's history says it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.age import ages


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One commit, with one file that the loading benchmark measures and one that it does not."""
    git(tmp_path, "init", "-q")
    for name in ("trials/data/loader.py", "docs/page.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("one\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def change(root: Path, name: str, text: str) -> None:
    (root / name).write_text(text)
    git(root, "commit", "-qam", text)


def a_result(root: Path, commit: str) -> None:
    results = root / "benchmarks" / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / "loading.json").write_text(json.dumps({"machine": {"date": "2026-01-01", "commit": commit}}))


def test_a_result_is_as_old_as_the_commits_that_touched_what_it_measures(repository: Path) -> None:
    a_result(repository, git(repository, "rev-parse", "--short", "HEAD"))
    change(repository, "docs/page.md", "two")
    assert [age.commits for age in ages(repository)] == [0]

    change(repository, "trials/data/loader.py", "two")
    change(repository, "trials/data/loader.py", "three")
    assert [age.commits for age in ages(repository)] == [2]

    change(repository, "trials/data/loader.py", "one\n")  # back to what was measured
    assert [age.commits for age in ages(repository)] == [0]


@pytest.mark.parametrize("commit", ["", "0123456789", "--all", "HEAD"])
def test_a_result_without_a_known_commit_is_of_unknown_age(repository: Path, commit: str) -> None:
    a_result(repository, commit)
    assert [age.commits for age in ages(repository)] == [None]


def test_a_result_of_changed_files_is_of_unknown_age(repository: Path) -> None:
    a_result(repository, git(repository, "rev-parse", "--short", "HEAD") + "+")
    assert [age.commits for age in ages(repository)] == [None]
