"""Which files of a folder are left out: .gitignore and .tunerignore, with git's rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

IGNORE_FILES = (".gitignore", ".tunerignore")
ALWAYS_IGNORED = frozenset({
    ".git", ".hg", ".svn", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints",
    "node_modules", ".DS_Store",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of an ignore file; it holds below ``folder``, relative to the root ("" is the root itself)."""

    folder: str
    pattern: re.Pattern[str]
    is_negated: bool
    is_for_folders: bool

    def decides(self, path: str, *, is_folder: bool) -> bool:
        if self.is_for_folders and not is_folder:
            return False
        if self.folder and not path.startswith(self.folder + "/"):
            return False
        return self.pattern.fullmatch(path[len(self.folder) + 1 :] if self.folder else path) is not None


def is_ignored(path: str, rules: Sequence[Rule], *, is_folder: bool) -> bool:
    """``path`` is relative to the root; the last rule that speaks of it decides."""
    if path.rpartition("/")[2] in ALWAYS_IGNORED:
        return True
    ignored = False
    for rule in rules:
        if rule.decides(path, is_folder=is_folder):
            ignored = not rule.is_negated
    return ignored


def read_rules(root: Path, folder: str) -> list[Rule]:
    """Those of the ignore files that lie in ``folder`` itself."""
    rules: list[Rule] = []
    for name in IGNORE_FILES:
        try:
            text = (root / folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        rules += [rule for line in text.splitlines() if (rule := parse_rule(line, folder)) is not None]
    return rules


def parse_rule(line: str, folder: str = "") -> Rule | None:
    """None for an empty line or a comment."""
    text = re.sub(r"(?<!\\)\s+$", "", line)
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text[1:] if is_negated else text.removeprefix("\\")
    is_for_folders = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    # A slash at the beginning or in the middle ties the pattern to this folder; else it holds at any depth.
    is_tied = "/" in text
    expression = _expression(text.lstrip("/"))
    if not is_tied:
        expression = "(?:.*/)?" + expression
    try:
        pattern = re.compile(expression, re.DOTALL)
    except re.error:
        return None
    return Rule(folder=folder, pattern=pattern, is_negated=is_negated, is_for_folders=is_for_folders)


_TOKENS = re.compile(r"(?P<any_folders>(?:^|(?<=/))\*\*/)|(?P<rest>/\*\*$)|(?P<star>\*+)|(?P<one>\?)"
                     r"|(?P<set>\[[!^]?\]?[^\]]*\])|(?P<escaped>\\.)|(?P<plain>.)", re.DOTALL)  # fmt: skip


def _expression(text: str) -> str:
    parts = []
    for token in _TOKENS.finditer(text):
        match token.lastgroup:
            case "any_folders":
                parts.append("(?:.*/)?")
            case "rest":
                parts.append("/.+")
            case "star":
                parts.append("[^/]*")
            case "one":
                parts.append("[^/]")
            case "set":
                inner = token["set"][1:-1]
                inner = "^" + inner[1:] if inner[:1] in {"!", "^"} else inner
                parts.append("[" + inner.replace("\\", "\\\\") + "]")
            case "plain" if token[0] == "[":
                parts.append("(?!)")  # a set that is never closed matches nothing
            case _:
                parts.append(re.escape(token[0][-1]))
    return "".join(parts)
