"""Which files of a folder are left out: .gitignore and .tunerignore, with git's rules."""

from __future__ import annotations

import re
import stat
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

IGNORE_FILES = (".gitignore", ".tunerignore")
HOME_FILES = ("token", "token-read-only")  # a folder with both is a home of the service
AGENT_FILE = "agent/home-id"  # one with this is the home of an agent, which has secrets and the code of trials
TOKEN_BYTES = 43, 44  # of a file with a token, without the end of its line and with it
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{43}\n?")
ALWAYS_IGNORED = frozenset({
    ".git", ".hg", ".svn", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints",
    "node_modules", ".DS_Store",
})  # fmt: skip
EDITORS_LOCK = ".#"  # begins the name of a link to nothing, beside a file that is open in Emacs


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
    name = path.rpartition("/")[2]
    if name in ALWAYS_IGNORED or name.startswith(EDITORS_LOCK):
        return True
    ignored = False
    for rule in rules:
        if rule.decides(path, is_folder=is_folder):
            ignored = not rule.is_negated
    return ignored


def is_home(folder: Path) -> bool:
    """Whether it is a home of the service, or of an agent."""
    return all((folder / name).is_file() for name in HOME_FILES) or (folder / AGENT_FILE).is_file()


def is_token(file: Path) -> bool:
    """Whether it holds a token and nothing else, as `tuner token add --file` writes it: for its owner alone."""
    try:
        status = file.stat()
        may_be = stat.S_ISREG(status.st_mode) and status.st_size in TOKEN_BYTES and not status.st_mode & 0o077
        return may_be and _TOKEN.fullmatch(file.read_bytes()) is not None
    except OSError:
        return False


def ignoring_in_code(root: Path) -> Callable[[str, bool], bool]:
    """What code leaves out: what is ignored, and homes and tokens always."""
    ignored = ignoring(root)
    own = {True: is_home, False: is_token}
    return lambda path, is_folder: ignored(path, is_folder) or own[is_folder](root / path)


def ignoring(root: Path) -> Callable[[str, bool], bool]:
    """What .gitignore and .tunerignore leave out of a folder of code."""
    rules: dict[str, list[Rule]] = {}

    def rules_of(folder: str) -> list[Rule]:
        if folder not in rules:
            above = rules_of(folder.rpartition("/")[0]) if folder else []
            rules[folder] = [*above, *read_rules(root, folder)]
        return rules[folder]

    return lambda path, is_folder: is_ignored(path, rules_of(path.rpartition("/")[0]), is_folder=is_folder)


def read_rules(root: Path, folder: str) -> list[Rule]:
    """Those of the ignore files that lie in ``folder`` itself."""
    rules: list[Rule] = []
    for name in IGNORE_FILES:
        file = root / folder / name
        try:
            if not file.is_file():  # a pipe or a device would be read for ever
                continue
            text = file.read_text(encoding="utf-8-sig", errors="replace")
        except OSError:
            continue
        rules += [rule for line in text.splitlines() if (rule := parse_rule(line, folder)) is not None]
    return rules


def parse_rule(line: str, folder: str = "") -> Rule | None:
    """None for an empty line or a comment."""
    text = line.rstrip()
    text += line[len(text) :][:1] if text.endswith("\\") else ""
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text.removeprefix("!")
    is_for_folders = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    # A slash at the beginning or in the middle ties the pattern to this folder; else it holds at any depth.
    expression = _expression(text.lstrip("/") if "/" in text else f"**/{text}")
    pattern = re.compile(expression, re.DOTALL)
    return Rule(folder=folder, pattern=pattern, is_negated=is_negated, is_for_folders=is_for_folders)


# Two stars or more between slashes (git takes three as two) stand for any number of folders; elsewhere they are one.
_TOKENS = re.compile(r"""
    (?P<everything>^\*\*+$) | (?P<any_folders>(?:^|(?<=/))\*\*+/) | (?P<below>/\*\*+$) | (?P<star>\*+) | (?P<one>\?)
    | \[(?P<negation>[!^]?+)(?P<set>(?:\]|\[:[a-z]+:\]|\\.|[^\]\\])(?:\[:[a-z]+:\]|\\.|[^\]\\])*)\]
    | \\(?P<escaped>.) | (?P<plain>.)
""", re.DOTALL | re.VERBOSE)  # fmt: skip
_SET_TOKENS = re.compile(r"\[:(?P<name>[a-z]+):\]|(?P<low>\\.|[^\\])(?:-(?P<high>\\.|[^\\]))?", re.DOTALL)
_NOTHING = "(?!)"
_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": r"\ \t", "digit": "0-9", "lower": "a-z", "space": r"\s",
    "punct": re.escape(string.punctuation), "upper": "A-Z", "xdigit": "0-9a-fA-F",
}  # fmt: skip


def _expression(text: str) -> str:
    """``text`` as a regular expression, which matches nothing where git says that the pattern is invalid.

    What stands between two wildcards is taken where it is found first, and looked for nowhere else: whatever follows is
    found behind that place, too. So the time grows with the path and the pattern, and not with the power of its stars.
    """
    parts: list[str] = []  # each ends where any number of folders may follow
    part, name = "", [""]  # the last of them, and the name of it that is being read: what is between its stars
    for token in _TOKENS.finditer(text):
        match token.lastgroup:
            case "everything":
                part = ".+"
            case "any_folders":
                parts.append(part)
                part = ""
            case "star":
                name.append("")
            case "below":
                part, name = f"{part}{_name(name)}/.+", [""]
            case _ if token[0] in {"/", "\\/"}:
                part, name = f"{part}{_name(name)}/", [""]
            case _:
                name[-1] += _sign(token)
    part += _name(name)
    if not parts:
        return part
    return parts[0] + "".join(f"(?>(?:[^/]*/)*?{middle})" for middle in parts[1:]) + "(?:.*/)?" + part


def _name(between: list[str]) -> str:
    """Of a file or a folder, by what is ``between`` its stars."""
    first, *middle = between
    if not middle:
        return first
    return first + "".join(f"(?>[^/]*?{fixed})" for fixed in middle[:-1]) + "[^/]*" + middle[-1]


def _sign(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "one":
            return "[^/]"
        case "set" if set(re.findall(r"\[:([a-z]+):\]", token["set"])) <= _CLASSES.keys():
            return f"(?!/)[{'^' if token['negation'] else ''}{_set(token['set'])}]"
        case "escaped":
            return re.escape(token["escaped"])
        case "set":
            return _NOTHING  # of an unknown class
        case _ if token[0] in {"[", "\\"}:
            return _NOTHING  # a set that is never closed, or a backslash at the end
        case _:
            return re.escape(token[0])


def _set(text: str) -> str:
    parts = []
    for token in _SET_TOKENS.finditer(text):
        if token["name"] is not None:
            parts.append(_CLASSES[token["name"]])
            continue
        low, high = token["low"][-1], (token["high"] or token["low"])[-1]
        # Git takes the first sign of a range as one of the set, also where the range is empty, such as [b-a].
        parts.append(f"{re.escape(low)}-{re.escape(high)}" if low < high else re.escape(low))
    return "".join(parts)
