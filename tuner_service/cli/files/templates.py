"""The folders that a search begins with: an experiment file, and a script that runs as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from trials.files import BY_UMASK, create_once
from tuner_service.cli.output.exit_codes import CommandError, ExitCode

QUICKSTART = "quickstart"
MAX_NAME = 200  # characters, as of the service
_PLACE_OF_NAME = re.compile(r"\bNAME$", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NO_TEXT = {"null", "true", "false"}  # in YAML, where they stand without quotes


@dataclass(frozen=True, kw_only=True)
class Template:
    """``packages``: what it needs beside the service, any of each line; ``files``: the one to start is the last."""

    about: str
    files: Sequence[str]
    install: str = ""
    packages: Sequence[tuple[str, ...]] = ()

    @property
    def missing(self) -> bool:
        """Whether something that it needs is not installed here."""
        return not all(any(find_spec(name) is not None for name in names) for names in self.packages)


_PLAIN_FILES = ("train.py", "experiment.yaml")
TEMPLATES: Mapping[str, Template] = {
    "torch": Template(about="PyTorch, with checkpoints", files=_PLAIN_FILES),
    "lightning": Template(
        about="PyTorch Lightning",
        files=_PLAIN_FILES,
        install="pip install pytorch-lightning",
        packages=(("lightning", "pytorch_lightning"),),
    ),
    "transformers": Template(
        about="Hugging Face's Trainer",
        files=_PLAIN_FILES,
        install="pip install transformers accelerate",
        packages=(("transformers",), ("accelerate",)),
    ),
    "command": Template(about="any program that takes options and prints its metrics", files=_PLAIN_FILES),
    "nni": Template(about="a script and a file of NNI's", files=("train.py", "search_space.json", "config.yml")),
}
_QUICKSTART = Template(about="the search of `tuner quickstart`", files=_PLAIN_FILES)


def lay_out(template: str, folder: Path) -> Path:
    """Write the template's files into ``folder``, which is made; returns the one to start.

    A file that is there with the same content is left as it is; with another, nothing is written: CommandError. The
    file to start comes last, so what was broken off is never taken for a whole.
    """
    name = _checked_name(folder)
    described = _QUICKSTART if template == QUICKSTART else TEMPLATES[template]
    source = _source(template)
    texts = {file: _named((source / file).read_text(encoding="utf-8"), name) for file in described.files}
    for file, text in texts.items():
        _require_free(folder / file, text)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        if not create_once(str(folder / file), text.encode(), access=BY_UMASK):
            _require_free(folder / file, text)  # who came first may have been this command as well
    return folder / described.files[-1]


def typed(file: Path) -> str:
    """As it can be typed behind a command: what begins with a dash would be taken for an option."""
    return f"./{file}" if str(file).startswith("-") else str(file)


def _source(template: str) -> Path:
    """The quickstart's are in the package where it is installed, and an example beside it in a checkout."""
    found = Path(__file__).resolve().parent.parent / "templates" / template
    return found if found.is_dir() else found.parents[3] / "examples" / template


def _checked_name(folder: Path) -> str:
    """The experiment's name is the folder's."""
    name = folder.absolute().name if folder.name else folder.resolve().name
    if not name.strip() or not name.isprintable() or name.startswith("@") or len(name) > MAX_NAME or name == "..":
        raise CommandError(
            f"{str(folder)!a} gives no name to an experiment: its last part should be printable text of at most "
            f"{MAX_NAME} characters that does not begin with @",
            ExitCode.USAGE,
        )
    return name


def _named(text: str, name: str) -> str:
    is_plain = _PLAIN.fullmatch(name) is not None and name.lower() not in _NO_TEXT
    written = name if is_plain else json.dumps(name, ensure_ascii=False)
    return _PLACE_OF_NAME.sub(lambda _: written, text, count=1)


def _require_free(path: Path, text: str) -> None:
    with suppress(FileNotFoundError):
        if path.is_symlink() or path.read_bytes() != text.encode():
            raise CommandError(f"{path} is there already, with another content; name another folder", ExitCode.CONFLICT)
