"""An experiment file and the code it names, made into the body of one request."""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import re
import stat
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tuner_service.cli.files.git_code import ALLOW, COMMIT, POLICIES, archive_of, origin_of
from tuner_service.cli.files.ignore import Rule, is_home, is_ignored, is_token, read_rules
from tuner_service.cli.files.nni_file import from_nni, is_nni
from tuner_service.cli.files.places import local_path, placed
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say

MAX_CODE_BYTES = 16 << 20  # what the service takes; beyond, the error names the largest files
MAX_CODE_FILES = 10_000
LARGEST_NAMED = 5
MIB = 1 << 20
MAX_TEXT = 256 * MIB  # characters of a file of results; an experiment file has much less
TEXT = "utf-8-sig"  # with or without the mark that some editors and spreadsheets begin a file with
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def check_readable(file: str) -> None:
    """Before anything is started for it."""
    if file != "-" and not os.access(file, os.R_OK):
        if not file:
            raise CommandError("the file is an empty text; is a variable of your shell not set?", ExitCode.USAGE)
        why = "may not be read" if Path(file).exists() else "does not exist"
        raise CommandError(f"the file {file} {why}", ExitCode.USAGE)


def read_body(file: str, *, name: str | None = None, note: str | None = None, commits: bool = True) -> dict[str, Any]:
    """The body that creates the experiment of ``file``; the code lies relative to the file.

    ``commits``: changed code is committed where the file says so; else it is taken as it is.
    """
    body = parse_file(file)
    folder = Path.cwd() if file == "-" else Path(file).resolve().parent
    if is_nni(body):
        body, notes = from_nni(body, read_space=lambda name: _read_space(folder / local_path(name, "searchSpaceFile")))
        for sentence in notes:
            say(f"NNI: {sentence}")
    if name is not None:
        body["name"] = name
    elif "name" not in body and file != "-":
        body["name"] = Path(file).stem
    if note is not None:
        body["note"] = note
    return with_code(body, folder, commits=commits)


def with_code(body: dict[str, Any], folder: Path, *, commits: bool = True) -> dict[str, Any]:
    """``body`` with the files that its ``trial.code`` stands for, if it names any, relative to ``folder``."""
    trial = body.get("trial")
    if isinstance(trial, dict):
        note = body.get("note")
        message = note if isinstance(note, str) and note.strip() else f"The code of experiment {body.get('name')}"
        return body | {"trial": placed(_with_code(trial, folder, message=message, commits=commits), folder)}
    return body


def _with_code(trial: dict[str, Any], folder: Path, *, message: str, commits: bool) -> dict[str, Any]:
    """``trial`` with the files that its ``code`` stands for, and where they come from; ``message`` is of a commit."""
    code, policy = trial.get("code"), trial.get("code_changes", ALLOW)
    if isinstance(code, dict) and "git" in code:
        return {**trial, **_code_at(code, folder)}
    if not isinstance(code, str) or _DIGEST.fullmatch(code) or policy not in POLICIES:
        return trial
    if names_asset(code, folder):
        return {**trial, "code": {"asset": code}}
    place = folder / local_path(code, "trial.code")
    return {**trial, **code_of(place, policy=policy, message=message, commits=commits, large_too=True)}


def names_asset(code: str, folder: Path) -> bool:
    """Whether the text means one of the store, and not a folder: by its digest, or with a version."""
    is_there = os.path.exists(folder / code)  # noqa: PTH110  # False also for a name that is too long
    return bool(_DIGEST.fullmatch(code)) or ("@" in code and not is_there)


def code_of(
    folder: Path, *, policy: str = ALLOW, message: str = "", commits: bool = True, large_too: bool = False
) -> dict[str, Any]:
    """The fields ``code`` and ``code_origin`` of a folder as it is. ``large_too``: else it has to go with the request;

    one that is too large for that is named by its path, and becomes an asset.
    """
    if policy == COMMIT and not commits:
        policy = ALLOW
        say("code_changes: nothing is committed now")
    files = _files_of(folder)
    origin = origin_of(folder, {path for path, _, _ in files}, policy=policy, message=message)
    if policy == COMMIT:  # as it is now: somebody may have saved a file meanwhile
        return code_of(folder, large_too=large_too)
    if large_too and _is_large(files):
        return {"code": {"path": str(folder.absolute())}, "code_origin": origin}
    return {"code": pack_folder(folder), "code_origin": origin}


def _code_at(code: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Likewise of a folder as a git ref has it."""
    ref, place = code["git"], code.get("folder", ".")
    unknown = sorted(set(code) - {"git", "folder"})
    if unknown or not isinstance(ref, str) or not ref or not isinstance(place, str):
        raise CommandError("trial.code: should be {git: REF}, or {git: REF, folder: FOLDER}", ExitCode.USAGE)
    data, origin = archive_of(folder / local_path(place, "trial.code.folder"), ref)
    return {"code": {"files": _files_in(data)}, "code_origin": origin}


def _files_in(archive: bytes) -> list[dict[str, Any]]:
    """The files of a tar that git made."""
    files: list[dict[str, Any]] = []
    total = 0
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            if member.isdir():
                continue
            try:
                content = tar.extractfile(member)  # of a link: what it leads to in the archive
            except (KeyError, RecursionError) as exc:  # links to one another are followed without end
                where = "which is not in the code" if isinstance(exc, KeyError) else "which leads back to it"
                message = f"trial.code: {member.name} is a link to {member.linkname}, {where}"
                raise CommandError(message, ExitCode.USAGE) from exc
            if content is None:
                raise CommandError(f"trial.code: {member.name} is neither a file nor a link to one", ExitCode.USAGE)
            data = content.read()
            total += len(data)
            if total > MAX_CODE_BYTES or len(files) >= MAX_CODE_FILES:
                raise CommandError(
                    f"trial.code: the ref has more than {MAX_CODE_FILES} files or {MAX_CODE_BYTES // MIB} MiB, the "
                    "most that are taken; name a folder of it, or leave out the rest with export-ignore in a "
                    ".gitattributes file",
                    ExitCode.USAGE,
                )
            files.append(_inline(member.name, data, executable=bool(member.mode & 0o100)))
    return files


def _read_space(file: Path) -> dict[str, Any]:
    check_readable(str(file))
    return parse_file(str(file), what="a search space: it should be a mapping of parameters")


def parse_file(file: str, *, what: str = "an experiment: it should be a mapping of fields") -> dict[str, Any]:
    """The mapping in a YAML or JSON file, or of standard input for "-"; ``what`` it should hold is said otherwise."""
    text = read_text(file)
    if file.endswith(".json"):
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as exc:
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


def name_of(file: str) -> str:
    """As people are told it."""
    return "standard input" if file == "-" else file


def read_text(file: str, *, newline: str | None = None) -> str:
    """Of a file, or of standard input for "-". What has no end, as a device, is refused like what is too long.

    ``newline`` is that of ``open``: "" leaves line ends as they are.
    """
    name = name_of(file)
    try:
        text = _standard_input(newline) if file == "-" else _start_of(file, newline)
    except UnicodeDecodeError as exc:
        raise CommandError(f"{name} is not UTF-8 text", ExitCode.USAGE) from exc
    except OSError as exc:
        raise CommandError(f"{name} cannot be read: {exc.strerror}", ExitCode.USAGE) from exc
    if len(text) > MAX_TEXT:
        raise CommandError(f"{name} is longer than {MAX_TEXT // MIB} MiB, the most that is read", ExitCode.USAGE)
    return text


def _start_of(file: str, newline: str | None) -> str:
    with open(file, encoding=TEXT, newline=newline) as source:  # noqa: PTH123  # as it was typed
        return source.read(MAX_TEXT + 1)


def _standard_input(newline: str | None) -> str:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding=TEXT, errors="strict", newline=newline)
    return sys.stdin.read(MAX_TEXT + 1)


# ── code ────────────────────────────────────────────────────────────────────────────────────────
def pack_folder(folder: Path) -> dict[str, Any]:
    """Every file of ``folder`` that is not ignored, inline, in the order of their paths.

    A home folder of the service or of an agent that lies inside it is left out, whatever is ignored: it holds tokens
    and secrets, and the code of every trial before. So is a file with a token.
    """
    files = _files_of(folder)
    if _is_large(files):
        largest = sorted(files, key=lambda f: -f[2])[:LARGEST_NAMED]
        named = ", ".join(f"{path} ({size / MIB:.1f} MiB)" for path, _, size in largest)
        total = sum(size for _, _, size in files)
        raise CommandError(
            f"trial.code: {folder} has {len(files)} files and {total / MIB:.1f} MiB; at most {MAX_CODE_FILES} files "
            f"and {MAX_CODE_BYTES // MIB} MiB are taken. The largest: {named}. Name what the trials do not need in a "
            f"{folder / '.tunerignore'} file",
            ExitCode.USAGE,
        )
    return {"files": [_read_inline(path, file) for path, file, _ in files]}


def _is_large(files: Sequence[tuple[str, Path, int]]) -> bool:
    return sum(size for _, _, size in files) > MAX_CODE_BYTES or len(files) > MAX_CODE_FILES


def _files_of(folder: Path) -> list[tuple[str, Path, int]]:
    """Path, place and size of each."""
    if not os.path.isdir(folder):  # noqa: PTH112  # False also for a name that is too long
        raise CommandError(f"trial.code: there is no folder {folder}", ExitCode.USAGE)
    if is_home(folder):
        raise CommandError(
            f"trial.code: {folder} is the home folder of a service or an agent, with its tokens; put the code into a "
            "folder of its own, or name another home (--home, TUNER_HOME)",
            ExitCode.USAGE,
        )
    files: list[tuple[str, Path, int]] = []
    folders: list[tuple[str, list[Rule]]] = [("", [])]  # with the rules of those above it
    while folders and len(files) <= 10 * MAX_CODE_FILES:  # far beyond the limit the error needs no exact count
        path, rules = folders.pop()
        folders += _look_into(folder, path, rules, files)
    return sorted(files)


def _look_into(
    root: Path, folder: str, rules: list[Rule], files: list[tuple[str, Path, int]]
) -> list[tuple[str, list[Rule]]]:
    """Adds its files; its folders, each with its rules."""
    rules = rules + read_rules(root, folder)
    found: list[tuple[str, list[Rule]]] = []
    with os.scandir(root / folder) as entries:
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_ignored(path, rules, is_folder=is_folder):
                continue
            if is_folder:
                if not is_home(Path(entry.path)):
                    found.append((path, rules))
            elif is_token(Path(entry.path)):
                _say_left_out(entry.path)
            elif (size := _size_of(root, path, entry)) is not None:
                files.append((path, Path(entry.path), size))
            if len(files) > 10 * MAX_CODE_FILES:
                break
    return found


@functools.cache  # where a folder is packed twice, once to look at it
def _say_left_out(path: str) -> None:
    say(f"trial.code: {path} holds a token, and is not sent along")


def _size_of(root: Path, path: str, entry: os.DirEntry[str]) -> int | None:
    """None for what is no file, as a socket, or gone. A link is taken as the file of the folder that it leads to;

    any other is an error: what it leads to is not there where the trial runs.
    """
    try:
        status = entry.stat()
    except OSError:
        status = None
    if entry.is_symlink() and (fault := _fault_of_link(root, entry, status)):
        raise CommandError(
            f"trial.code: {entry.path} is a link to {fault}; put a copy in its place, or leave it out with a line "
            f"/{path} in {root / '.tunerignore'}",
            ExitCode.USAGE,
        )
    return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None


def _fault_of_link(root: Path, entry: os.DirEntry[str], status: os.stat_result | None) -> str:
    target = Path(os.path.realpath(entry.path))
    if not target.is_relative_to(root.resolve()):
        return f"{target}, outside the code folder"
    if status is None:
        return f"nothing ({target})"
    return f"a folder ({target})" if stat.S_ISDIR(status.st_mode) else ""


def _read_inline(path: str, file: Path) -> dict[str, Any]:
    try:
        return _inline(path, file.read_bytes(), executable=bool(file.stat().st_mode & 0o100))
    except OSError as exc:
        raise CommandError(f"trial.code: {file} cannot be read: {exc.strerror}", ExitCode.USAGE) from exc


def _inline(path: str, data: bytes, *, executable: bool) -> dict[str, Any]:
    mode = {"mode": "755"} if executable else {}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {"path": path, "content_base64": base64.b64encode(data).decode(), **mode}
    return {"path": path, "content": text, **mode}
