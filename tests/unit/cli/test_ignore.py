"""Ignore files, with git's rules."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner_service.cli.files.ignore import is_ignored, parse_rule, read_rules


def ignored(lines: str, path: str, *, is_folder: bool = False) -> bool:
    rules = [rule for line in lines.split("\n") if (rule := parse_rule(line)) is not None]
    return is_ignored(path, rules, is_folder=is_folder)


@pytest.mark.parametrize(
    ("lines", "path", "expected"),
    [
        ("*.pt", "a.pt", True),
        ("*.pt", "deep/down/a.pt", True),
        ("*.pt", "a.ptx", False),
        ("/a.txt", "a.txt", True),
        ("/a.txt", "b/a.txt", False),
        ("b/a.txt", "b/a.txt", True),
        ("b/a.txt", "c/b/a.txt", False),
        ("data?", "data1", True),
        ("data?", "data12", False),
        ("[ab].txt", "a.txt", True),
        ("[!ab].txt", "a.txt", False),
        ("[!ab].txt", "c.txt", True),
        ("**/x", "a/b/x", True),
        ("**/x", "x", True),
        ("a/**/x", "a/x", True),
        ("a/**/x", "a/b/c/x", True),
        ("a/**", "a/b/c", True),
        ("a*b", "a/b", False),
        ("*.log\n!keep.log", "keep.log", False),
        ("*.log\n!keep.log\nkeep.*", "keep.log", True),
        ("# comment", "# comment", False),
        (r"\#file", "#file", True),
        (r"\!file", "!file", True),
        ("trailing   ", "trailing", True),
        ("a.b", "axb", False),
        ("", "a", False),
        ("[", "[", False),
        ("[]", "[]", False),  # the sign after the bracket is one of the set, which is never closed
        ("a[!]", "a[!]", False),
        ("[]]", "]", True),
        ("[!]]", "]", False),
        ("[!]]", "a", True),
        ("/**/", "a/b", False),
        ("a/***/x", "a/b/c/x", True),
        ("[[:alpha:]].txt", "a.txt", True),
        ("[[:alpha:]].txt", "1.txt", False),
        ("[![:digit:]]x", "1x", False),
        ("[[:nothing:]]", "a", False),
        ("[a-c].txt", "b.txt", True),
        ("[b-a]", "b", True),
        (r"[\]a]", "]", True),
        ("a[!b]c", "a/c", False),
        ("a\\", "a", False),
        ("!c\nb/\n!c", "c/b", False),
        (r"\*", "a", False),
        (r"\*", "*", True),
        ("a*b*c", "abxbc", True),
        ("a*b*c", "abxcb", False),
        ("a*a/*b", "aba/ab", True),
        ("**/a*/**/b/**/c", "a/b/a/x/b/b/c", True),
        ("**/a/**/b/c", "a/b/b/c", True),
        ("**/a/**/b/c", "b/a/c", False),
        ("a\\ ", "a ", True),
    ],
)
def test_a_rule_decides_as_git_does(lines: str, path: str, *, expected: bool) -> None:
    assert ignored(lines, path) is expected


@pytest.mark.parametrize("line", ["*a" * 40 + "*b", "/" + "**/a*/" * 40 + "b", "**/*a*/" * 40 + "b"])
def test_a_rule_of_many_stars_is_decided_at_once(line: str) -> None:
    assert not ignored(line, "a" * 200 + "/a" * 200)  # which took longer than the universe has, with all ways tried


def test_a_rule_that_ends_with_a_slash_speaks_of_folders_only() -> None:
    assert ignored("build/", "build", is_folder=True)
    assert not ignored("build/", "build")
    assert ignored("/**/", "a/b", is_folder=True)
    assert ignored("!c\nb/\n!c", "c/b", is_folder=True)  # what lies in c is not c


@pytest.mark.parametrize("name", [".git", "__pycache__", ".venv", "pkg/__pycache__"])
def test_what_never_belongs_to_code_is_always_ignored(name: str) -> None:
    assert ignored("!*", name, is_folder=True)


def test_rules_of_a_folder_hold_below_it_only(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".tunerignore").write_text("*.txt\n/only\n")

    rules = read_rules(tmp_path, "sub")

    assert is_ignored("sub/a.txt", rules, is_folder=False)
    assert is_ignored("sub/deep/a.txt", rules, is_folder=False)
    assert is_ignored("sub/only", rules, is_folder=False)
    assert not is_ignored("a.txt", rules, is_folder=False)
    assert not is_ignored("submarine/a.txt", rules, is_folder=False)


def test_an_ignore_file_that_is_none_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / ".tunerignore").symlink_to("/dev/zero")

    assert read_rules(tmp_path, "") == []
