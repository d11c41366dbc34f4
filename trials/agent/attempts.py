"""One attempt as its agent sees it: what its files say, and what was read of its spool."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from trials.agent.home import key_of_folder
from trials.agent.spool import SpoolDamagedError, SpoolReader
from trials.agent.supervision.exits import exit_record, write_durably
from trials.agent.supervision.orders import send_order
from trials.files import (
    ATTEMPT_BYTES,
    create_once,
    is_in_the_way,
    read_json,
    read_record,
    to_json,
    write_atomically,
)
from trials.processes.control_groups import group_at, group_path
from trials.processes.ending import kill_tree
from trials.processes.identity import Identity, boot_id, identity, is_alive, read_stat, send_verified
from trials.processes.logs import read_log
from trials.reports.spool_writer import SpoolWriter
from trials.wire.attempt import AttemptKey
from trials.wire.attempt_file import AttemptFile
from trials.wire.files import (
    FILE_ACKNOWLEDGED,
    FILE_ATTEMPT,
    FILE_CLAIM,
    FILE_EXIT,
    FILE_PROCESS,
    FILE_SPOOL,
    FILE_STDERR,
    FILE_STDOUT,
    FILE_STOP,
    FILE_WANTED,
    FILES_FORMAT,
    FORMAT,
)
from trials.wire.launch import LaunchSpec, assets_of
from trials.wire.limits import OUTPUT_TAIL_BYTES, STEP_MAX
from trials.wire.messages import ObservedAttempt
from trials.wire.plain import ProtocolError, from_plain, to_plain
from trials.wire.records import ExitCause, ExitRecord, NoticeRecord, ProcessRecord, encode_record
from trials.wire.texts import valid_text

STOP_ORDER_TIMEOUT_S = 0.2  # for room in the queue of a fork server; then it is woken to look at the files
TEXT_BYTES = 200  # of a word in a record, in characters
SOCKET_PATH_BYTES = 107
# Reasons of stops after which nobody wants anything of the attempt.
UNWANTED = frozenset({"stopped_by_user", "stopped_by_assessor", "not_believed"})
NEVER_STARTED = "it was stopped before it started"
PARENT_STOPPED = (
    "the process that follows this trial was stopped (SIGSTOP), so that nobody kept its limits or read its output; "
    "it was continued"
)
logger = logging.getLogger(__name__)


class AttemptDamagedError(Exception):
    """A file of the attempt is not what was written there; the text says which, and what is there instead."""


class UnknownFormatError(Exception):
    """A file of the attempt is of a format that another version has brought; the text says which."""


class HeldAttempt:
    """``changed`` is set whenever there may be something new to tell the service; ``ended`` once it has an exit;
    ``hurried`` once it is not wanted any more after that.

    ``unreadable``: why its files cannot be understood, whose format another version has brought. Nothing of them is
    read, written or removed then, and its trial is left alone: an agent of that version will take it over.

    ``damage``: what was found in place of its files, after which nothing of them is believed any more. Its trial is to
    be ended, and the attempt has failed.
    """

    def __init__(self, folder: Path, *, key: AttemptKey, nonce: str, lineage: str) -> None:
        self.folder = folder
        self.key = key
        self.nonce = nonce
        self.lineage = lineage
        self.supervisor: ProcessRecord | None = None
        self.process: ProcessRecord | None = None
        self.exit: ExitRecord | None = None
        self.devices: tuple[str, ...] = ()  # UUIDs of those it was given
        self.assets: frozenset[str] = frozenset()  # the digests of those it was given
        self.keeps_output = False  # whether it was named a folder of which something is kept
        self.is_prepared = False  # of several nodes, one that was made ready and not ordered to begin
        self.spool = SpoolReader(folder / FILE_SPOOL, folder / FILE_ACKNOWLEDGED)
        self.changed = asyncio.Event()
        self.ended, self.hurried = asyncio.Event(), asyncio.Event()
        self.damage: str | None = None
        self.unreadable: str | None = None
        self._seen_bytes = -1
        self._seen_wanted = 0
        self._folder = str(folder)  # as text: these files are looked at very often
        self._place: tuple[int, int] | None = None  # which folder it is
        self._home_agent = folder.parents[3] / "agent"
        self._orders: str | None = None
        self._noticed: set[str] = set()
        self._groups = ""

    def look(self) -> None:
        """Take note of what its files say now, unless it is known that they cannot be believed, or not be read."""
        if self.damage is None and self.unreadable is None:
            try:
                self._look()
            except UnknownFormatError as error:
                self.note_unreadable(str(error))
            except (AttemptDamagedError, SpoolDamagedError) as error:
                self.note_damage(str(error))

    def note_unreadable(self, why: str) -> None:
        """From now on its files are left as they are."""
        if self.unreadable is None:
            logger.error("format_unknown", extra={"nonce": self.nonce, "attempt": self.key, "why": why})
            self.unreadable = why
            self.spool.close()

    def note_damage(self, what: str) -> None:
        """An end that was recorded, and that nobody was told yet, is none that can be believed."""
        if self.damage is None and self._home_agent.is_dir():  # else the whole home was moved: its agent will see that
            self.damage = what
            self.spool.close()
            if self.exit is not None:
                self.end_damaged()

    def _look(self) -> None:
        before = (self.supervisor, self.process, self.exit, self._seen_bytes, self._seen_wanted)
        if self.exit is not None and self.spool.is_taken():
            return  # all was taken: whatever becomes of the files now
        self._look_for_folder()
        self._look_for_claim()
        # The exit before the spool, which is complete once there is an exit.
        self._look_for_exit()
        if self.process is None:
            self.process = _process_of(read_json(f"{self._folder}/{FILE_PROCESS}"))
        self._seen_bytes = self.spool.size()
        self._seen_wanted = _changed_at(f"{self._folder}/{FILE_WANTED}")
        if before != (self.supervisor, self.process, self.exit, self._seen_bytes, self._seen_wanted):
            self.changed.set()
        if self.exit is not None:
            self.ended.set()

    def observed(self) -> ObservedAttempt:
        return ObservedAttempt(
            key=self.key,
            nonce=self.nonce,
            lineage=self.lineage,
            process=self.process,
            exit=self.exit,
            spooled=self.spool.last_sequence(),
            unreadable=self.unreadable or "",
        )

    def is_supervised(self) -> bool:
        """Whether the very process that claimed it still runs, and has not recorded its end yet."""
        claim = self.supervisor
        if self.damage is None and self.unreadable is None:
            try:
                self._look_for_exit()
            except UnknownFormatError as error:
                self.note_unreadable(str(error))
            except AttemptDamagedError as error:
                self.note_damage(str(error))
        # A supervisor is there until the end is told to all; a fork server goes on to other attempts.
        if self.exit is not None and self.orders() is not None:
            return False
        return claim is not None and is_alive(claim)

    def notice(self, code: str, message: str) -> None:
        """Once: something that people are to know of it, told with its reports."""
        self.look()
        if self.damage is None and self.exit is None and code not in self._noticed:
            self._noticed.add(code)
            record = NoticeRecord(code=code, message=message, at=time.time())
            try:
                writer = SpoolWriter(f"{self._folder}/{FILE_SPOOL}")
            except OSError:
                return
            try:
                writer.append_some(encode_record(record) + b"\n")
            finally:
                writer.close()

    def end_is_missing(self) -> bool:
        """Whether the trial was reaped, which comes after the record of its end, and there is none."""
        process = self.process
        if process is None or self.damage is not None:
            return False
        stat = read_stat(process.pid)
        if stat is not None and stat.start_time == process.start_time:
            return False
        self.look()
        return self.exit is None and self.damage is None

    def trial_is_alive(self) -> bool:
        process = self.process
        return process is not None and is_alive(process)

    def order_stop(self, *, grace_s: float, reason: str) -> None:
        """From now on the trial is to stop, whoever dies; repeating it can only make the end earlier.

        Where it cannot be written down, as on a full disk or in a folder that is gone, a supervisor is told by a signal
        alone, which gives the trial the grace of its experiment.
        """
        number, order = signal.SIGUSR1, to_json({"grace_s": grace_s, "reason": reason})
        try:
            self._look_for_folder()
            write_atomically(str(self.folder / FILE_STOP), order)  # not synced: a power loss ends the trial, too
        except (OSError, AttemptDamagedError):
            number = signal.SIGTERM
        orders, told = self.orders(), {"stop": self.nonce, "grace_s": grace_s, "reason": reason}
        if orders is None:
            self.signal_supervisor(number)
        elif not send_order(orders, told, timeout_s=STOP_ORDER_TIMEOUT_S):
            self.signal_supervisor(signal.SIGUSR1)  # its queue of orders is full: it looks at the file

    def stop_after_end(self, reason: str) -> None:
        """It has ended by itself. Where it is not wanted any more, no store is waited for to take what it has left."""
        if reason in UNWANTED:
            self.hurried.set()
        self.changed.set()

    def orders(self) -> str | None:
        """The socket of the fork server that has it; None for a supervisor, which has nothing else to follow."""
        self._look_for_claim()
        return self._orders

    def signal_supervisor(self, number: int) -> None:
        if self.supervisor is not None:
            send_verified(number, self.supervisor)

    def kill_all(self) -> None:
        """SIGKILL to all of its trial that is left. Takes its time; not for the event loop."""
        group = group_at(group_path(self._groups, self.nonce)) if self._groups else None
        kill_tree(None, self.nonce, group=group)
        if group is not None:
            group.remove()

    def record_loss(self) -> dict[str, Any]:
        """Its supervisor is gone without an exit record: kill what is left, and write the record in its place."""
        self.kill_all()
        rebooted = self.supervisor is not None and self.supervisor.boot_id != boot_id()
        stop = read_json(str(self.folder / FILE_STOP))
        return self._write_exit(ExitCause.HOST_REBOOTED if rebooted else ExitCause.SUPERVISOR_LOST, stop, self._tail())

    def spend(self, cause: ExitCause, *, tail: str = "", reason: str | None = None) -> None:
        """End an attempt that never ran, so that it never will; does nothing if a supervisor was first.

        OSError where the disk has no room: it was not spent.
        """
        is_ours = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            own, claim = _own_claim(), str(self.folder / FILE_CLAIM)
            if not create_once(claim, own, durable=True):
                if read_json(claim) is not None:
                    return
                write_atomically(claim, own, durable=True)  # a power loss took what stood in it, and who had made it
            is_ours = True
        except OSError as error:
            if not is_in_the_way(error):
                raise
            # Where it cannot be written down nothing can be started from it either.
        try:
            record = self._write_exit(cause, None if reason is None else {"reason": reason}, tail)
        except OSError:
            if is_ours:
                os.unlink(claim)  # noqa: PTH108  nothing was started from it
            raise
        self.end(record)

    def end(self, record: dict[str, Any]) -> None:
        """It has ended so, whether or not that could be written down."""
        if self.exit is None:
            self.exit = from_plain(ExitRecord, record, where=FILE_EXIT)
        self.changed.set()
        self.ended.set()

    def end_damaged(self) -> None:
        """It has failed for its damage, whatever else its files say of its end."""
        seen = self.exit or ExitRecord(cause=ExitCause.FILES_DAMAGED, ended_at=time.time())
        tail = f"{seen.tail}\n{self.damage}" if seen.tail else str(self.damage)
        self.exit = replace(seen, cause=ExitCause.FILES_DAMAGED, stop_reason=None, tail=tail[-OUTPUT_TAIL_BYTES:])
        self.changed.set()
        self.ended.set()

    def write_end(self) -> None:
        """For a later agent; where there is no place for it, one is made if that is possible."""
        assert self.exit is not None
        try:
            if not os.path.lexists(self._folder):
                self.folder.mkdir(parents=True)
            elif not stat.S_ISDIR(os.lstat(self._folder).st_mode):
                return  # what is there instead belongs to somebody else
            create_once(f"{self._folder}/{FILE_CLAIM}", _own_claim())
            write_durably(f"{self._folder}/{FILE_EXIT}", {FORMAT: FILES_FORMAT, **to_plain(self.exit)})
        except OSError as error:
            logger.warning("exit_not_written", extra={"nonce": self.nonce, "error": error})

    def _write_exit(self, cause: ExitCause, stop: dict[str, Any] | None, tail: str) -> dict[str, Any]:
        """The record of its end; on the disk if there is a place for it, and none was there."""
        path = self.folder / FILE_EXIT
        reason = None if stop is None else _short(stop.get("reason", "stopped"))
        record = exit_record(cause.value, stop_reason=reason, tail=tail)
        try:
            if not path.exists():
                write_durably(str(path), record)
        except OSError as error:
            if not is_in_the_way(error):
                raise
            logger.warning("exit_not_written", extra={"nonce": self.nonce, "error": error})
        return record

    def _tail(self) -> str:
        for name in (FILE_STDERR, FILE_STDOUT):
            data, _, _ = read_log(str(self.folder / name), offset=-OUTPUT_TAIL_BYTES, limit=OUTPUT_TAIL_BYTES)
            if data.strip():
                return data.decode(errors="replace").strip()
        return ""

    # ── what its files say ────────────────────────────────────────────────────────────────────
    def _look_for_folder(self) -> None:
        try:
            found = os.lstat(self._folder)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or is_in_the_way(error):
                raise AttemptDamagedError(f"its folder was removed or renamed ({error.strerror})") from error
            return
        if not stat.S_ISDIR(found.st_mode):
            raise AttemptDamagedError("in the place of its folder is something else")
        if self._place not in {None, (found.st_dev, found.st_ino)}:
            raise AttemptDamagedError("its folder was replaced by another one")
        self._place = (found.st_dev, found.st_ino)

    def _look_for_claim(self) -> None:
        """Once: the trial can write it, too."""
        if self.supervisor is None:
            claim = read_json(f"{self._folder}/{FILE_CLAIM}") or {}
            require_known_format(claim, FILE_CLAIM)
            self.supervisor = _process_of(claim)
            if self.supervisor is not None:
                orders = claim.get("orders")
                self._orders = orders if isinstance(orders, str) and _is_socket_path(orders) else None
                self._groups = _short(claim.get("groups", ""))

    def _look_for_exit(self) -> None:
        if self.exit is not None:
            return
        try:
            value = read_record(f"{self._folder}/{FILE_EXIT}")
        except FileNotFoundError:
            return
        except OSError as error:
            if is_in_the_way(error):
                raise AttemptDamagedError(f"{FILE_EXIT} cannot be read: {error.strerror}") from error
            return
        except ValueError as error:
            raise AttemptDamagedError(f"{FILE_EXIT} is damaged: {error}") from error
        if self.process is None:  # of a short trial the exit is the only record
            self.process = _process_of(read_json(f"{self._folder}/{FILE_PROCESS}")) or _process_of(value.get("process"))
        if self.trial_is_alive():
            raise AttemptDamagedError(f"{FILE_EXIT} was written while the trial ran")
        require_known_format(value, FILE_EXIT)
        self.exit = _exit_of(value)


def require_known_format(record: dict[str, Any], name: str) -> None:
    """UnknownFormatError where the file ``name``, which holds ``record``, is of another format."""
    found = record.get(FORMAT, 1)
    if type(found) is int and found != FILES_FORMAT:
        raise UnknownFormatError(
            f"{name} is of format {found}, and this agent knows format {FILES_FORMAT}; "
            "use the version of Tuner Service that wrote it, or a newer one"
        )


def _process_of(value: Any) -> ProcessRecord | None:
    """None where it says nothing that can be true, as of another version."""
    found = Identity.read(value) if isinstance(value, dict) else None
    return None if found is None else ProcessRecord(boot_id=found.boot_id, pid=found.pid, start_time=found.start_time)


def _exit_of(value: Any) -> ExitRecord:
    """As it is told; AttemptDamagedError where no parent of trials has written it."""
    try:
        record: ExitRecord = from_plain(ExitRecord, value, where=FILE_EXIT)
    except ProtocolError as error:
        raise AttemptDamagedError(f"{FILE_EXIT} is damaged: {error}") from error
    for name, found in to_plain(record).items():
        if isinstance(found, int | float) and not abs(found) <= STEP_MAX:
            raise AttemptDamagedError(f"{FILE_EXIT} is damaged: {name} is {found}")
    return replace(
        record,
        stop_reason=None if record.stop_reason is None else _short(record.stop_reason),
        why_spawned=None if record.why_spawned is None else valid_text(record.why_spawned)[:OUTPUT_TAIL_BYTES],
        tail=valid_text(record.tail)[-OUTPUT_TAIL_BYTES:],
    )


def _short(text: object) -> str:
    return valid_text(str(text)[:TEXT_BYTES])


def _is_socket_path(path: str) -> bool:
    return path.isascii() and "\0" not in path and 0 < len(path) <= SOCKET_PATH_BYTES


def _changed_at(path: str) -> int:
    """Of a file that is written anew; 0 where there is none."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  looked at very often
    except OSError:
        return 0


def _own_claim() -> bytes:
    """For an attempt that this process ends in the place of a supervisor."""
    return to_json({FORMAT: FILES_FORMAT, **identity(os.getpid())})


def load_attempt(folder: Path) -> HeldAttempt | None:
    """The attempt prepared in ``folder``; None if the preparation was cut off, or what it wrote is damaged.

    One of an unknown format is ``unreadable``.
    """
    data = read_json(f"{folder}/{FILE_ATTEMPT}", limit=ATTEMPT_BYTES)
    try:
        require_known_format(data or {}, FILE_ATTEMPT)
    except UnknownFormatError as error:
        return _unreadable(folder, str(error))
    try:
        # What concerns the node is for the parent of its trial, which has read it.
        read = None if data is None else data | {"local": None}
        found: AttemptFile = from_plain(AttemptFile, read, where=FILE_ATTEMPT)
    except (ProtocolError, RecursionError):
        return None
    if key_of_folder(folder) != found.key or folder.name.partition("-")[2] != found.nonce:
        return None  # of another attempt: a trial has written it
    held = HeldAttempt(folder, key=found.key, nonce=found.nonce, lineage=found.lineage)
    held.devices = tuple(device.uuid for device in found.spec.devices)
    held.assets = assets_of(found.spec)
    held.keeps_output = keeps_output(found.spec)
    held.is_prepared = found.spec.world is not None and not found.spec.world.port
    held.look()
    return held


def keeps_output(spec: LaunchSpec) -> bool:
    """Whether what its script leaves becomes an asset; of several nodes, what it leaves on the first."""
    return spec.output is not None and (spec.world is None or spec.world.node == 0)


def _unreadable(folder: Path, why: str) -> HeldAttempt | None:
    key = key_of_folder(folder)
    if key is None:
        return None
    held = HeldAttempt(folder, key=key, nonce=folder.name.partition("-")[2], lineage="")
    held.note_unreadable(why)
    return held
