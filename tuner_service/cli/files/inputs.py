"""``datasets``, ``models``, ``pretrained_from`` and large code: paths become assets, names of experiments their ids.

First paths are made absolute, as the file is read; what lies there is added once a service is known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner_service.assets.adding import Addition, add_asset
from tuner_service.cli.context import resolve_experiment
from tuner_service.cli.files.ignore import ignoring_in_code
from tuner_service.cli.files.places import KINDS, each, is_path
from tuner_service.cli.output.byte_bar import ByteBar
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.client import Client

Fields = dict[str, Any]
CODE = "code"
REFERENCE = "reference"
_TRIAL = re.compile(r"(.+)/([0-9]+|best)")
Add = Callable[[Path, str], str]  # of a folder or an archive and the kind it is added as: its digest


def filled_in(client: Client, body: Fields, *, dry_run: bool = False) -> Fields:
    """``body`` as the service takes it; with ``dry_run`` nothing is added, and zeros stand for digests."""

    def nothing(path: Path, kind: str) -> str:
        say(f"not added now: {path}, a {kind}")
        return "sha256:" + "0" * 64

    def add(path: Path, kind: str) -> str:
        ignored = ignoring_in_code(path) if kind == CODE else None
        with ByteBar() as bar:
            # Not kept for itself: it stays as long as an experiment names it.
            asked = Addition(source=path, kind=kind, keep=False, is_ignored=ignored)
            view = add_asset(client, asked, told=bar.told)
        say(f"{path}: {view['files']} files, {view['size']} bytes, {view['digest']}")
        return str(view["digest"])

    def find(reference: str) -> str:
        return resolve_experiment(client, reference)

    return fill_in(body, Path.cwd(), add=nothing if dry_run else add, find_experiment=find)


def fill_in(body: Fields, folder: Path, *, add: Add, find_experiment: Callable[[str], str]) -> Fields:
    """``body`` as the service takes it: what its file names by a path is added, relative to ``folder``."""
    trial = body.get("trial")
    if not isinstance(trial, dict):
        return body
    filled = dict(trial)
    code = trial.get("code")
    if isinstance(code, dict) and set(code) == {"path"}:
        source = Path(str(code["path"]))
        filled["code"] = {"asset": add(source, CODE), "name": source.name}
    for field, kind in KINDS.items():
        if isinstance(given := trial.get(field), dict):
            place = _Place(folder=folder, field=field, kind=kind, add=add)
            filled[field] = {name: place.of(name, value) for name, value in given.items()}
    if isinstance(given := trial.get("pretrained_from"), dict):
        filled["pretrained_from"] = {
            name: each(value, lambda one: _of_trial(one, find_experiment)) for name, value in given.items()
        }
    return {**body, "trial": filled}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where paths lie, and what they are added as."""

    folder: Path
    field: str
    kind: str
    add: Add

    def of(self, name: str, value: Any) -> Any:
        return each(value, lambda one: self._item(name, one))

    def _item(self, name: str, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("path"), str):
            path = self._path(given["path"])
            if given.get("mode") == REFERENCE:
                return {**given, "path": str(path.absolute())}
            return self._added(name, path) if set(given) == {"path"} else given
        if not isinstance(given, str):
            return given
        path = self._path(given)
        if is_path(given):
            return self._added(name, path)
        if os.path.exists(path):  # noqa: PTH110  # False also for a name that is too long
            what = f"trial.{self.field}.{name}: {given}"
            say(f"{what} is taken as the name of an asset; for what lies here write ./{given}")
        return given

    def _added(self, name: str, path: Path) -> dict[str, str]:
        if not os.path.exists(path):  # noqa: PTH110
            message = f"trial.{self.field}.{name}: there is no folder or archive {path}"
            raise CommandError(message, ExitCode.USAGE)
        return {"asset": self.add(path, self.kind), "name": path.name}

    def _path(self, text: str) -> Path:
        return self.folder / Path(text).expanduser()


def _of_trial(given: Any, find_experiment: Callable[[str], str]) -> Any:
    """A trial by a name of its experiment, as everywhere on the command line."""
    if isinstance(given, dict) and isinstance(given.get("trial"), str):
        return {**given, "trial": _of_trial(given["trial"], find_experiment)}
    match = _TRIAL.fullmatch(given) if isinstance(given, str) else None
    return given if match is None else f"{find_experiment(match[1])}/{match[2]}"
