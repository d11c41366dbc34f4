"""Reading a command line as the Python interpreter would. Pure."""

from __future__ import annotations

FORKABLE_FLAGS = frozenset({"-u"})  # trials are unbuffered anyway
WORD_SHOWN = 200  # characters of a word of the command, which may hold a whole program, in what is said of it
_PYTHON_WORDS = ("python", "python3")


class NotForkableError(ValueError):
    """The command is to be executed; the text says why."""


class Script:
    """What the interpreter is asked to run: a file, a module (``-m``) or code (``-c``), with its ``sys.argv``."""

    __slots__ = ("arguments", "kind", "name")

    def __init__(self, kind: str, name: str, arguments: list[str]) -> None:
        self.kind = kind
        self.name = name
        self.arguments = arguments


def script_of(command: list[str]) -> Script:
    """What ``command``, whose first word is the interpreter, runs. NotForkableError where it is none of the three."""
    words = command[1:]
    while words and words[0] in FORKABLE_FLAGS:
        words = words[1:]
    if not words:
        raise NotForkableError("the command names no script")
    first, rest = words[0], words[1:]
    if first in {"-m", "-c"} and rest:
        return Script("module" if first == "-m" else "code", rest[0], [first, *rest[1:]])
    if first.startswith("-"):
        raise NotForkableError(f"the command has the interpreter's option {first[:WORD_SHOWN]}")
    if not first.endswith(".py"):
        raise NotForkableError(f"{first[:WORD_SHOWN]!r} is no Python file")
    return Script("file", first, words)


def is_interpreter(word: str, *, python: str | None, own: str) -> bool:
    """Whether the first word of a command means the interpreter ``own``."""
    return word in {own, *(_PYTHON_WORDS if python in {None, own} else ())}
