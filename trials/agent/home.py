"""The folders an agent keeps under its home, and how an attempt is found by its nonce."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trials.files import ATTEMPT_BYTES, open_file, remove_tree, write_atomically
from trials.stores import clear, matching
from trials.wire.attempt import AttemptKey
from trials.wire.files import FILE_ATTEMPT, FILE_SPOOL, FOLDER_CHECKPOINTS, FOLDER_RESTORE, FOLDER_WANTED
from trials.wire.plain import ProtocolError, from_plain
from trials.wire.sockets import wake_socket_path

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def plain_name(text: str, *, what: str) -> str:
    """``text`` if it is safe as the name of a file; ProtocolError otherwise."""
    if not _NAME.fullmatch(text):
        raise ProtocolError(f"{what} {text!r} is no name of letters, digits, '.', '_' and '-'")
    return text


class OwedLogs(NamedTuple):
    """``folder``: of the attempt that wrote them; None where it was removed."""

    nonce: str
    folder: Path | None
    since: float


class Home:
    """Paths only; nothing is read before it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.agent = self.path / "agent"
        self.attempts = self.path / "attempts"
        self.checkpoints = self.path / "checkpoints"
        self.service_file = self.path / "service.json"
        self.code = self.agent / "code"
        self.incoming = self.agent / "incoming"
        self.assets = self.agent / "assets"
        self.references = self.agent / "references"
        self.outgoing = self.agent / "outgoing"  # outputs on their way to a service elsewhere
        self.forks = self.agent / "fork"
        self.sdk = self.agent / "path"  # holds a link to the package trials
        self.wake = wake_socket_path(self.path)
        self.umask: int | None = None  # of trials, where it is another than the agent's
        self._live = self.agent / "live"
        self._ended = self.agent / "ended"
        self._owed = self.agent / "owed"

    def make(self) -> None:
        own = (self.code, self.incoming, self.assets, self.references, self.forks, self._live, self._ended)
        for folder in (self.attempts, self.checkpoints, *own):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def drop_unsynced(self, boot: str) -> None:
        """Remove unpacked code, blobs and assets unless they came since ``boot``, as this machine's start is named.

        They are looked for at every launch and not synced when they are written, which would take longer than fetching
        them again: after a power loss there may be empty files under names that promise their digest.
        """
        mark = self.agent / "boot"
        try:
            if mark.read_text(encoding="ascii") == boot:
                return
        except (OSError, ValueError):
            pass  # nothing says when they were written
        for folder in (self.code, self.incoming, self.assets):
            if folder.is_dir():
                with suppress(OSError):
                    remove_whatever(folder)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):  # on a full disk they are fetched once more after the next start
            write_atomically(str(mark), boot.encode())

    def agent_id(self) -> str:
        """Of this home: made up once, then the same for ever."""
        path = self.agent / "id"
        if not path.exists():
            host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:40].lstrip("-") or "node"
            write_atomically(str(path), f"{host}-{secrets.token_hex(4)}\n".encode(), durable=True)
        return plain_name(path.read_text(encoding="utf-8").strip(), what="agent id")

    def home_id(self) -> str:
        """Of this home, and of no other with the same agent's name; "" where it cannot be written down."""
        path = self.agent / "home-id"
        try:
            if not path.exists():
                write_atomically(str(path), secrets.token_hex(8).encode(), durable=True)
            return path.read_text(encoding="ascii").strip()[:64]
        except (OSError, ValueError):
            return ""

    def attempt_folder(self, key: AttemptKey, nonce: str) -> Path:
        experiment = plain_name(key.experiment_id, what="experiment id")
        return self.attempts / experiment / str(key.number) / f"{key.attempt}-{plain_name(nonce, what='nonce')}"

    def put_live(self, nonce: str, folder: Path) -> None:
        """From now on the attempt is found by every later agent, until it is forgotten.

        Not after a power loss, which ends the attempt, too: then the service starts another one.
        """
        try:
            # A further name of the file that says where it belongs: making a file costs more.
            os.link(f"{folder}/{FILE_ATTEMPT}", f"{self._live}/{nonce}")
        except FileExistsError:
            return
        except OSError:  # it was never prepared, or the file system has no links
            write_atomically(f"{self._live}/{nonce}", str(folder.relative_to(self.path)).encode())

    def live(self) -> dict[str, Path]:
        """Folders of the attempts that are not forgotten, by nonce."""
        names = [name for name in self._not_forgotten() if not name.endswith(".tmp")]
        found = {name: self._indexed(self._live / name) for name in names}
        return {name: folder for name, folder in found.items() if folder is not None}

    def lost(self) -> dict[str, Path]:
        """Where those are, or were, that are not forgotten and of which ``live`` finds nothing.

        Their folders are gone, or what they are found by was damaged: that is another name of a file of theirs.
        """
        names, there = self._not_forgotten(), self.live()
        found = {name: self._former(name) for name in names if name not in there and _NAME.fullmatch(name)}
        return {name: folder for name, folder in found.items() if folder is not None}

    def _not_forgotten(self) -> list[str]:
        try:
            return [path.name for path in self._live.iterdir()]
        except FileNotFoundError:  # or it went away just now: `tuner gc` looks while others remove
            return []

    def folder_of(self, nonce: str) -> Path | None:
        """Of an attempt, forgotten or not."""
        name = plain_name(nonce, what="nonce")
        return self._indexed(self._live / name) or self._indexed(self._ended / name)

    def put_ended(self, nonce: str) -> None:
        live = f"{self._live}/{plain_name(nonce, what='nonce')}"
        with suppress(FileNotFoundError):
            os.replace(live, f"{self._ended}/{nonce}")  # noqa: PTH105
            os.unlink(live)  # noqa: PTH108  still there where both were names of one file: then replacing does nothing

    def owe_logs(self, nonce: str, folder: Path) -> None:
        """What the attempt wrote is still to be sent to the service, by this agent or a later one."""
        self._owed.mkdir(mode=0o700, exist_ok=True)
        path = f"{self._owed}/{plain_name(nonce, what='nonce')}"
        write_atomically(path, str(folder.relative_to(self.path)).encode(), durable=True)

    def owed_logs(self) -> list[OwedLogs]:
        """The oldest first."""
        found = []
        for path in matching(self._owed, "[!.]*"):
            with suppress(OSError):  # it was sent meanwhile
                found.append(OwedLogs(path.name, self._indexed(path), path.stat().st_mtime))
        return sorted(found, key=lambda owed: owed.since)

    def owe_no_logs(self, nonce: str) -> None:
        (self._owed / nonce).unlink(missing_ok=True)

    def remove_experiment(self, experiment_id: str) -> None:
        """Its folders, and the names by which they were found."""
        folder = self.attempts / plain_name(experiment_id, what="experiment id")
        if folder.is_symlink():
            folder.unlink()  # what it leads to is not the experiment's
            return
        for attempt in matching(folder, "*/*-*"):
            nonce = attempt.name.partition("-")[2]
            for path in matching(attempt, f"{FOLDER_CHECKPOINTS}/*.ckpt"):
                with suppress(OSError, ProtocolError):  # no name that a checkpoint has: it goes with the folder
                    self.remove_checkpoint(attempt, path.name)
            (self._live / nonce).unlink(missing_ok=True)
            (self._ended / nonce).unlink(missing_ok=True)
        if os.path.lexists(folder):
            remove_whatever(folder)
        shutil.rmtree(self.references / experiment_id, ignore_errors=True)

    def is_later(self, attempt: Path, name: str, at: float) -> bool:
        """Whether this checkpoint of the attempt was written after that time."""
        path = attempt / FOLDER_CHECKPOINTS / plain_name(name, what="checkpoint")
        try:
            return path.stat(follow_symlinks=False).st_mtime > at
        except OSError:
            return False

    def remove_checkpoint(self, attempt: Path, name: str) -> None:
        """The attempt's file, and the shared one of the same content unless another attempt has it, too."""
        clear(attempt / FOLDER_CHECKPOINTS / plain_name(name, what="checkpoint"))
        prefix = name.removesuffix(".ckpt").rpartition("-")[2]
        shared = list(matching(self.checkpoints, f"{prefix}*")) if prefix else []
        # An attempt that was repeated exactly has made the very same bytes again.
        if shared and not any(matching(self.attempts, f"*/*/*/{FOLDER_CHECKPOINTS}/*-{prefix}.ckpt")):
            for path in shared:
                clear(path)

    def _indexed(self, entry: Path) -> Path | None:
        """Where the attempt of this name is: it holds its FILE_ATTEMPT, or the path of its folder."""
        try:
            text = _text_of(entry).strip()
            key = self._recorded(entry) if text.startswith("{") else None
            if key is None and text.startswith("{"):
                return None
            folder = self.path / text if key is None else self.attempt_folder(key, entry.name)
        except (OSError, ValueError):
            return None
        return folder if text and folder.is_relative_to(self.attempts) and folder.is_dir() else None

    def _recorded(self, entry: Path) -> AttemptKey | None:
        """Which attempt the entry is of, as far as it says so."""
        try:
            text = _text_of(entry).strip()
            if not text.startswith("{"):
                return key_of_folder(self.path / text)
            key: AttemptKey = from_plain(AttemptKey, json.loads(text)["key"], where=FILE_ATTEMPT)
            plain_name(key.experiment_id, what="experiment id")
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None
        return key

    def _former(self, nonce: str) -> Path | None:
        key = self._recorded(self._live / nonce)
        if key is not None:
            return self.attempt_folder(key, nonce)
        found = [folder for folder in matching(self.attempts, f"*/*/*-{nonce}") if folder.is_dir()]
        return found[0] if len(found) == 1 else None


def key_of_folder(folder: Path) -> AttemptKey | None:
    """Which attempt a folder is of, by its path; None where it is none's."""
    attempt, _, nonce = folder.name.partition("-")
    number = folder.parent.name
    if not (nonce and attempt.isascii() and attempt.isdecimal() and number.isascii() and number.isdecimal()):
        return None
    return AttemptKey(experiment_id=folder.parent.parent.name, number=int(number[:20]), attempt=int(attempt[:20]))


def _text_of(entry: Path) -> str:
    descriptor = open_file(str(entry))
    with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123  a descriptor
        return file.read(ATTEMPT_BYTES)


def remove_whatever(path: Path) -> None:
    """A folder with all in it, also where a trial has taken the right to write; or what is there instead of one."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return

    def make_removable(function: Callable[..., object], name: str, error: BaseException) -> None:
        del function
        if not isinstance(error, PermissionError):
            raise error
        parent = os.path.dirname(name)  # noqa: PTH120
        os.chmod(parent, 0o700)  # noqa: PTH101
        if os.path.isdir(name) and not os.path.islink(name):  # noqa: PTH112, PTH114
            os.chmod(name, 0o700)  # noqa: PTH101
            remove_tree(name)
        else:
            os.unlink(name)  # noqa: PTH108

    remove_tree(path, onerror=lambda function, name, info: make_removable(function, name, info[1]))


def tidy(folder: Path) -> None:
    """What of an attempt nobody needs any more, once the service has everything."""
    with os.scandir(folder) as entries:  # few, and looked at for every trial
        names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    if FILE_SPOOL in names:
        # Emptied, not removed: for minutes, a file system may look past each removed file before it makes another.
        os.close(os.open(folder / FILE_SPOOL, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK))
    for name, is_folder in names.items():  # of a pipe, rmtree() would wait for a writer
        if is_folder and (name == FOLDER_RESTORE or name.startswith(FOLDER_WANTED.format(id=""))):
            remove_tree(folder / name, ignore_errors=True)
    if names.get(FOLDER_CHECKPOINTS):
        for draft in matching(folder / FOLDER_CHECKPOINTS, ".*"):  # of a script that was killed while it wrote
            draft.unlink(missing_ok=True)
