"""``datasets``, ``models``, ``pretrained_from`` and large code: paths become assets, names of experiments their ids.

First paths are made absolute, as the file is read; what lies there is added once a service is known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tuner_service.assets.adding import Addition, add_asset
from tuner_service.cli.context import resolve_experiment
from tuner_service.cli.files.ignore import ignoring_in_code
from tuner_service.cli.files.places import KINDS, each, is_path, local_path
from tuner_service.cli.output.byte_bar import ByteBar
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.client import Client, ProblemError
from tuner_service.domain.wording import counted

Fields = dict[str, Any]
CODE = "code"
REFERENCE = "reference"
_TRIAL = re.compile(r"(.+)/([0-9]+|best)")
Add = Callable[[Path, str], str]  # of a folder or an archive and the kind it is added as: its digest


class _Later(str):
    """A digest of zeros, in the place of that of a folder or an archive that is not added yet."""

    __slots__ = ("kind", "path")
    path: Path
    kind: str

    def __new__(cls, path: Path, kind: str) -> _Later:
        later = super().__new__(cls, "sha256:" + "0" * 64)
        later.path, later.kind = path, kind
        return later


def filled_in(client: Client, body: Fields, *, dry_run: bool = False) -> Fields:
    """``body`` as the service takes it; with ``dry_run`` nothing is added, and zeros stand for digests.

    What can be wrong without the bytes of what is to be added is found before any of it is sent.
    """
    wanted: list[_Later] = []

    def later(path: Path, kind: str) -> str:
        wanted.append(_Later(path, kind))
        return wanted[-1]

    filled = fill_in(
        body, Path.cwd(), add=later, find_experiment=lambda reference: resolve_experiment(client, reference)
    )
    if dry_run:
        for one in wanted:
            say(f"not added now: {one.path}, a {one.kind}")
    if dry_run or not wanted:
        return filled
    client.create(filled, dry_run=True)
    trial = filled["trial"]
    _require_what_is_named(client, trial)
    return {
        **filled,
        "trial": trial | {field: _added(client, trial[field]) for field in (CODE, *KINDS) if field in trial},
    }


def _require_what_is_named(client: Client, trial: Fields) -> None:
    """CommandError where an asset or a trial that is named is not there."""
    code = trial.get(CODE)
    named = [(f"trial.{CODE}", code, _look_at_asset)] if isinstance(code, dict) else []
    for field, look in [*((field, _look_at_asset) for field in KINDS), ("pretrained_from", _look_at_trial)]:
        for name, value in (trial.get(field) or {}).items():
            named += [(f"trial.{field}.{name}", one, look) for one in (value if isinstance(value, list) else [value])]
    for what, given, look in named:
        try:
            look(client, given)
        except ProblemError as exc:
            if exc.status != HTTPStatus.NOT_FOUND:
                raise
            raise CommandError(f"{what}: {exc}", ExitCode.USAGE) from exc


def _look_at_asset(client: Client, given: Any) -> None:
    reference = given.get("asset") if isinstance(given, dict) else given
    if isinstance(reference, str) and not isinstance(reference, _Later):
        client.asset(reference)


def _look_at_trial(client: Client, given: Any) -> None:
    reference = given.get("trial") if isinstance(given, dict) else given
    match = _TRIAL.fullmatch(reference) if isinstance(reference, str) else None
    if match is not None and match[2] != "best":
        client.trial(match[1], int(match[2]))


def _added(client: Client, given: Any) -> Any:
    """``given`` with the digests of what is added now."""
    match given:
        case _Later():
            return _add(client, given.path, given.kind)
        case dict():
            return {name: _added(client, value) for name, value in given.items()}
        case list():
            return [_added(client, value) for value in given]
        case _:
            return given


def _add(client: Client, path: Path, kind: str) -> str:
    ignored = ignoring_in_code(path) if kind == CODE else None
    with ByteBar() as bar:
        # Not kept for itself: it stays as long as an experiment names it.
        asked = Addition(source=path, kind=kind, keep=False, is_ignored=ignored)
        view = add_asset(client, asked, told=bar.told)
    say(f"{path}: {counted(view['files'], 'file')}, {counted(view['size'], 'byte')}, {view['digest']}")
    return str(view["digest"])


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
            path = self._path(name, given["path"])
            if given.get("mode") == REFERENCE:
                return {**given, "path": str(path.absolute())}
            return self._added(name, path) if set(given) == {"path"} else given
        if not isinstance(given, str):
            return given
        path = self._path(name, given)
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

    def _path(self, name: str, text: str) -> Path:
        return self.folder / local_path(text, f"trial.{self.field}.{name}")


def _of_trial(given: Any, find_experiment: Callable[[str], str]) -> Any:
    """A trial by a name of its experiment, as everywhere on the command line."""
    if isinstance(given, dict) and isinstance(given.get("trial"), str):
        return {**given, "trial": _of_trial(given["trial"], find_experiment)}
    match = _TRIAL.fullmatch(given) if isinstance(given, str) else None
    return given if match is None else f"{find_experiment(match[1])}/{match[2]}"
