"""An experiment file and the code it names, made into the body of one request."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from tuner_service.cli.files.ignore import Rule, is_ignored, read_rules
from tuner_service.cli.files.nni_file import from_nni, is_nni
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say

MAX_CODE_BYTES = 16 << 20  # what the service takes; beyond, the error names the largest files
MAX_CODE_FILES = 10_000
LARGEST_NAMED = 5
HOME_FILES = ("token", "token-read-only")  # a folder with both is a home of the service
MIB = 1 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def check_readable(file: str) -> None:
    """Before anything is started for it."""
    if file != "-" and not os.access(file, os.R_OK):
        why = "may not be read" if Path(file).exists() else "does not exist"
        raise CommandError(f"the file {file} {why}", ExitCode.USAGE)


def read_body(file: str, *, name: str | None = None) -> dict[str, Any]:
    """The body that creates the experiment of ``file``; the code lies relative to the file."""
    body = parse_file(file)
    folder = Path.cwd() if file == "-" else Path(file).resolve().parent
    if is_nni(body):
        body, notes = from_nni(body, read_space=lambda name: _read_space(folder / name))
        for note in notes:
            say(f"NNI: {note}")
    if name is not None:
        body["name"] = name
    elif "name" not in body and file != "-":
        body["name"] = Path(file).stem
    trial = body.get("trial")
    if isinstance(trial, dict) and isinstance(trial.get("code"), str) and not _DIGEST.fullmatch(trial["code"]):
        body["trial"] = {**trial, "code": pack_folder(folder / Path(trial["code"]).expanduser())}
    return body


def _read_space(file: Path) -> dict[str, Any]:
    check_readable(str(file))
    return parse_file(str(file), what="a search space: it should be a mapping of parameters")


def parse_file(file: str, *, what: str = "an experiment: it should be a mapping of fields") -> dict[str, Any]:
    """The mapping in a YAML or JSON file, or of standard input for "-"; ``what`` it should hold is said otherwise."""
    text = sys.stdin.read() if file == "-" else read_text(Path(file))
    if file.endswith(".json"):
        try:
            body = json.loads(text)
        except ValueError as exc:
            raise CommandError(f"{file} is not JSON: {exc}", ExitCode.USAGE) from exc
    else:
        from tuner_service.cli.files.yaml_core import YamlError, load_yaml

        try:
            body = load_yaml(text)
        except YamlError as exc:
            raise CommandError(f"{file} is not YAML: {exc}", ExitCode.USAGE) from exc
    if not isinstance(body, dict):
        raise CommandError(f"{file} does not hold {what}", ExitCode.USAGE)
    return body


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as exc:
        raise CommandError(f"{file} is not UTF-8 text", ExitCode.USAGE) from exc
    except OSError as exc:
        raise CommandError(f"{file} cannot be read: {exc.strerror}", ExitCode.USAGE) from exc


# ── code ────────────────────────────────────────────────────────────────────────────────────────
def pack_folder(folder: Path) -> dict[str, Any]:
    """Every file of ``folder`` that is not ignored, inline, in the order of their paths.

    A home folder of the service that lies inside it is left out, whatever is ignored: it holds tokens and secrets, and
    the code of every trial before.
    """
    if not folder.is_dir():
        raise CommandError(f"trial.code: there is no folder {folder}", ExitCode.USAGE)
    if _is_home(folder):
        raise CommandError(
            f"trial.code: {folder} is the home folder of a service, with its tokens; put the code into a folder of its "
            "own, or give the service another home (--home, TUNER_HOME)",
            ExitCode.USAGE,
        )
    files: list[tuple[str, Path, int]] = []
    _walk(folder, "", [], files)
    files.sort()
    total = sum(size for _, _, size in files)
    if total > MAX_CODE_BYTES or len(files) > MAX_CODE_FILES:
        largest = sorted(files, key=lambda f: -f[2])[:LARGEST_NAMED]
        named = ", ".join(f"{path} ({size / MIB:.1f} MiB)" for path, _, size in largest)
        raise CommandError(
            f"trial.code: {folder} has {len(files)} files and {total / MIB:.1f} MiB; at most {MAX_CODE_FILES} files "
            f"and {MAX_CODE_BYTES // MIB} MiB are taken. The largest: {named}. Name what the trials do not need in a "
            f"{folder / '.tunerignore'} file",
            ExitCode.USAGE,
        )
    return {"files": [_inline(path, file) for path, file, _ in files]}


def _walk(root: Path, folder: str, rules: list[Rule], files: list[tuple[str, Path, int]]) -> None:
    rules = rules + read_rules(root, folder)
    with os.scandir(root / folder) as entries:
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_ignored(path, rules, is_folder=is_folder):
                continue
            if is_folder:
                if not _is_home(Path(entry.path)):
                    _walk(root, path, rules, files)
            elif entry.is_file() and _is_inside(root, entry):
                files.append((path, Path(entry.path), entry.stat().st_size))
            if len(files) > 10 * MAX_CODE_FILES:
                return  # far beyond the limit already; the error needs no exact count


def _is_home(folder: Path) -> bool:
    return all((folder / name).is_file() for name in HOME_FILES)


def _is_inside(root: Path, entry: os.DirEntry[str]) -> bool:
    """A link that leads out of the folder is an error: its target is not there where the trial runs."""
    if not entry.is_symlink():
        return True
    target = Path(entry.path).resolve()
    if target.is_relative_to(root.resolve()):
        return True
    raise CommandError(
        f"trial.code: {entry.path} is a link to {target}, outside the code folder; copy it there or ignore it",
        ExitCode.USAGE,
    )


def _inline(path: str, file: Path) -> dict[str, Any]:
    try:
        data = file.read_bytes()
        mode = {"mode": "755"} if file.stat().st_mode & 0o100 else {}
    except OSError as exc:
        raise CommandError(f"trial.code: {file} cannot be read: {exc.strerror}", ExitCode.USAGE) from exc
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {"path": path, "content_base64": base64.b64encode(data).decode(), **mode}
    return {"path": path, "content": text, **mode}
