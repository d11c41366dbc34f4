"""Every command that a message names can be typed."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.unit.cli.test_surface_pages import commands
from tuner_service.cli.main import _parse, build_parser

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted([*(ROOT / "tuner_service").rglob("*.py"), *(ROOT / "trials").rglob("*.py")])
SLOT = "\0"  # what a message puts in at run time
NAMED = re.compile(r"\btuner\b")  # in the file of each command, even one whose text is made of pieces
COMMAND = re.compile(rf"\btuner ({'|'.join(sorted(commands()))})\b([^`;:,.()\n]*(?:\.[a-z]+)?)")
WORDS = re.compile(
    r"(?:[A-Z]+(?:/[A-Z]+)?(?:\.[a-z]+)?|--?[a-z][a-z-]*(?:=\S+)?|@last\S*|N|show|set|rm|list|add|retry|stop|\0\S*)$"
)


def texts_of(source: Path) -> Iterator[str]:
    """The texts of a module, but its docstrings, with a mark for each value that is put in."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else SLOT for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | inner:
            yield node.value


@cache
def hints() -> list[str]:
    """Each command in a message, as far as its words look like a command's: prose may follow."""
    found = set()
    for source in SOURCES:
        if not NAMED.search(source.read_text(encoding="utf-8")):
            continue
        for text in texts_of(source):
            for match in COMMAND.finditer(text):
                words = [match[1]]
                for word in match[2].split():
                    if not WORDS.match(word) or (word == SLOT and SLOT in words):  # an option that is put in
                        break
                    words.append(word)
                found.add(" ".join(words))
    return sorted(found)


def typed(hint: str) -> list[str]:
    words = shlex.split(hint.replace(SLOT, "x/1" if hint.split(maxsplit=1)[0] in {"logs", "show", "stop"} else "x"))
    return ["7" if word == "N" else word for word in words]


def test_there_are_hints_to_look_at() -> None:
    assert {"ps", f"resume {SLOT}", f"watch {SLOT}", f"logs {SLOT} --stderr", "ps --local"} <= set(hints())


@pytest.mark.parametrize("hint", hints(), ids=lambda hint: hint.replace(SLOT, "X"))
def test_a_command_that_a_message_names_can_be_typed(hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = _outcome(typed(hint), capsys)

    # A command, or an option of one, may be named in the middle of a sentence, without what belongs to it.
    assert code in {None, 0} or "the following arguments are required" in said or "expected one argument" in said, said


def _outcome(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """The exit code, None where the command would run, and what was said."""
    try:
        _parse(words)
    except SystemExit as exc:
        return exc.code, capsys.readouterr().err
    return None, ""


@pytest.mark.parametrize(
    "words", [["trials", "x", "--statu", "failed"], ["stop", "x", "--wai"], ["run", "f", "--tim", "3"]]
)
def test_an_option_is_typed_in_full(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(words)
    assert "unrecognized arguments" in capsys.readouterr().err


def test_no_parser_takes_abbreviations() -> None:
    assert not any(parser.allow_abbrev for parser in [build_parser(), *commands().values()])


@pytest.mark.parametrize("text", ["nan", "-1", "inf", "x", "1e10"])
def test_a_time_that_nobody_can_wait_is_refused_in_plain_words(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(["watch", "e", f"--timeout={text}"])
    assert f"seconds from 0 to 1e+09, not {text}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "x", "1.5"])
def test_a_count_that_is_none_is_refused_in_plain_words(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(["set", "e", f"--trials={text}"])
    assert f"a whole number from 1 on, not {text}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["set", "clone", "resume"])
@pytest.mark.parametrize(("text", "sent"), [("3600", 3600.0), ("0.5", 0.5), ("1h30m", "1h30m"), ("nan", "nan")])
def test_a_duration_that_is_a_number_is_seconds(command: str, text: str, sent: object) -> None:
    assert _parse([command, "e", "--duration", text]).duration == sent
