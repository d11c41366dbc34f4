"""Code and git: the files of a ref, and the commit, branch and changes of a folder that lies in a repository.

Only git itself reads a repository here. What stands in one belongs to whoever starts the experiment, on this machine.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say

MAX_CHANGES_CHARACTERS = 1 << 20  # of a diff; the rest is cut, and the last line says so
GIT_TIMEOUT_S = 60.0
NAMED = 5  # files that a refusal names
ALLOW, REFUSE, COMMIT = "allow", "refuse", "commit"
POLICIES = (ALLOW, REFUSE, COMMIT)
_NO_REPOSITORY = "not a git repository"  # what git says of such a folder, in the C locale


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """``root`` is its working tree; ``place`` that of the code in it, "." for all of it."""

    root: Path
    place: str


class GitError(Exception):
    """What git said."""


class NoGitError(GitError):
    """There is none on this machine."""


def repository_of(folder: Path) -> Repository | None:
    """None where the folder lies in none. GitError where it may lie in one, and git does not read that."""
    place = folder.resolve()
    if not any(os.path.lexists(parent / ".git") for parent in (place, *place.parents)):
        return None  # looked at here, so that nothing is started for it
    try:
        root = Path(_git(folder, "rev-parse", "--show-toplevel").removesuffix("\n"))
    except GitError as exc:
        if _NO_REPOSITORY in str(exc):  # what is called .git there is none
            return None
        raise
    return Repository(root=root, place=os.path.relpath(folder.resolve(), root.resolve()))


# ── the files of a ref ──────────────────────────────────────────────────────────────────────────
def archive_of(folder: Path, ref: str) -> tuple[bytes, dict[str, Any]]:
    """A tar of what ``folder`` holds at ``ref``, whatever the working tree holds, and where it comes from."""
    try:
        repository = repository_of(folder.parent if not folder.is_dir() else folder)
    except GitError as exc:
        raise _wrong(f"code.git: {exc}") from exc
    if repository is None:
        raise _wrong(f"code.git: {folder} lies in no git repository")
    place = os.path.relpath(folder.resolve(), repository.root.resolve())
    try:
        commit = _git(repository.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except GitError as exc:
        raise _wrong(f"code.git: {repository.root} has no commit {ref!r}; `git fetch` may bring it") from exc
    commit = commit.strip()
    tree = commit if place == "." else f"{commit}:{place}"
    try:
        data = _run(repository.root, "archive", "--format=tar", tree)
    except GitError as exc:
        raise _wrong(f"code.git: commit {commit[:12]} has no folder {place}: {exc}") from exc
    return data, {"commit": commit, "ref": ref, "dirty": False}


# ── the state of a folder ───────────────────────────────────────────────────────────────────────
def origin_of(folder: Path, files: Collection[str], *, policy: str, message: str) -> dict[str, Any] | None:
    """Where the packed ``files`` of ``folder`` come from, once ``policy`` is kept; None where no git knows them,

    or git fails and nothing depends on it. ``commit`` commits what has changed of them, with the message, and nothing
    else that is staged.
    """
    where = folder
    try:
        repository = repository_of(folder)
        if repository is not None:
            where = repository.root
            return _origin(repository, files, policy=policy, message=message)
    except GitError as exc:
        if policy != ALLOW:
            raise _wrong(f"code_changes: git failed in {where}: {exc}") from exc
        if not isinstance(exc, NoGitError):
            say(f"where the code comes from is not recorded: git failed in {where}: {exc}")
        return None
    if policy != ALLOW:
        raise _wrong(f"code_changes: {policy} needs a git repository, and {folder} lies in none")
    return None


def _origin(repository: Repository, files: Collection[str], *, policy: str, message: str) -> dict[str, Any]:
    head = _head(repository)
    changed = list(_changed(repository, files))
    if changed and policy == REFUSE:
        named = ", ".join(path for _, path in changed[:NAMED]) + (", …" if len(changed) > NAMED else "")
        raise _wrong(
            f"code_changes: refuse, and {len(changed)} files of {repository.root / repository.place} are not as in "
            f"the last commit: {named}; commit them, or allow changes"
        )
    branch = _branch(repository)
    if changed and policy == COMMIT:
        if branch is None:
            raise _wrong("code_changes: commit needs a branch, and HEAD is detached; `git switch` to one")
        _commit(repository, [path for status, path in changed if status == "??"], message)
        head, changed = _head(repository), []
    if head is None and policy == REFUSE:
        raise _wrong(f"code_changes: refuse, and {repository.root} has no commit yet")
    changes = _diff(repository, changed, has_head=head is not None) if changed else None
    return {"commit": head, "branch": branch, "dirty": bool(changed), "changes": changes}


def _head(repository: Repository) -> str | None:
    try:
        return _git(repository.root, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    except GitError:
        return None  # nothing was committed yet


def _branch(repository: Repository) -> str | None:
    try:
        return _git(repository.root, "symbolic-ref", "--short", "--quiet", "HEAD").strip()
    except GitError:
        return None  # detached


def _changed(repository: Repository, files: Collection[str]) -> Iterator[tuple[str, str]]:
    """Status and path, from the root of the repository, of what is not as committed; of files that are not packed

    only those that are gone.
    """
    prefix = "" if repository.place == "." else repository.place + "/"
    known = {prefix + path for path in files}
    listing = _git(
        repository.root,
        "status",
        "--porcelain=v1",
        "-z",
        "--untracked-files=all",
        "--no-renames",
        "--",
        repository.place,
    )
    for entry in filter(None, listing.split("\0")):
        status, path = entry[:2], entry[3:]
        if path in known or "D" in status:
            yield status, path


def _commit(repository: Repository, untracked: Sequence[str], message: str) -> None:
    if untracked:
        paths = "\0".join(untracked).encode(errors="surrogateescape")
        _run(repository.root, "add", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=paths)
    _git(repository.root, "commit", "--quiet", f"--message={message}", "--only", "--", repository.place)


def _diff(repository: Repository, changed: Sequence[tuple[str, str]], *, has_head: bool) -> str:
    """What git shows of the tracked files; untracked ones are named, and lie in the code."""
    lines = [f"# untracked: {path}\n" for status, path in changed if status == "??"]
    text = "".join(lines)
    if has_head:
        text += _git(
            repository.root, "diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color", "--", repository.place
        )
    text = text.encode(errors="replace").decode(errors="replace").replace("\0", "\\0")
    if len(text) <= MAX_CHANGES_CHARACTERS:
        return text
    last = f"\n# cut here: {len(text)} characters in all\n"
    return text[: MAX_CHANGES_CHARACTERS - len(last)] + last


# ── git ─────────────────────────────────────────────────────────────────────────────────────────
def _git(folder: Path, *arguments: str) -> str:
    return _run(folder, *arguments).decode(errors="surrogateescape")


def _run(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    command = ["git", "-C", str(folder), "--literal-pathspecs", *arguments]
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, timeout=GIT_TIMEOUT_S, check=False, env=environment
        )
    except FileNotFoundError as exc:
        raise NoGitError("there is no git on this machine") from exc
    except (OSError, ValueError, subprocess.TimeoutExpired) as exc:  # also of an argument that no process can be given
        raise GitError(str(exc)) from exc
    if done.returncode != 0:
        raise GitError(done.stderr.decode(errors="replace").strip()[:1_000] or f"git ended with {done.returncode}")
    return done.stdout


def _wrong(message: str) -> CommandError:
    return CommandError(f"trial.{message}", ExitCode.USAGE)
