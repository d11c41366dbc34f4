"""What is left out of a code folder is what git itself leaves out: random trees with random ignore files."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from tuner_service.cli.files.experiment_file import pack_folder

TREES = 40
NAMES = ("a", "b", "ab", "c", "a.txt", "b.txt", "x.log")
SEGMENTS = (
    "a", "b", "ab", "c", "a.txt", "x.log", "*", "?", "**", "***", "*.txt", "a*", "*b", "[ab]", "[!a]", "[^a]b", "[a-b]",
    "[a-]", "[b-a]", "[]a]", "[a", r"[\]a]", r"\a", "[[:alpha:]]", "[![:digit:]b]*", "[[:nothing:]]",
    "[]", "[!]", "[^]", "[]]", "[!]]", "a[]b]", r"\*", "*a*", "*[ab]*", "?*", "*.*t", "**/a*/**", "**/?/**",
)  # fmt: skip


def a_pattern(chance: random.Random) -> str:
    path = "/".join(chance.choice(SEGMENTS) for _ in range(chance.choice((1, 1, 1, 2, 2, 3))))
    return chance.choice(("", "", "", "!")) + chance.choice(("", "", "/")) + path + chance.choice(("", "", "/"))


def build(folder: Path, chance: random.Random, *, depth: int = 0) -> None:
    for name in chance.sample(NAMES, chance.randint(2, 5)):
        if depth < 3 and "." not in name and chance.random() < 0.5:
            (folder / name).mkdir()
            build(folder / name, chance, depth=depth + 1)
        else:
            (folder / name).write_text("")
    if depth == 0 or chance.random() < 0.3:
        patterns = [a_pattern(chance) for _ in range(chance.randint(1, 4))]
        (folder / ".gitignore").write_text("\n".join(patterns) + "\n")


@pytest.mark.parametrize("seed", range(3))
def test_a_folder_is_packed_as_git_would_add_it(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(TREES):
        folder = tmp_path / str(number)
        folder.mkdir()
        build(folder, chance)
        git = ["git", "-C", str(folder), "-c", "core.excludesFile=/dev/null"]
        subprocess.run([*git, "init", "-q"], check=True)
        listed = subprocess.run([*git, "ls-files", "-o", "--exclude-standard", "-z"], check=True, capture_output=True)
        added = {path for path in listed.stdout.decode().split("\0") if path}

        packed = {file["path"] for file in pack_folder(folder)["files"]}

        rules = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob(".gitignore")}
        assert packed == added, (seed, number, rules)
