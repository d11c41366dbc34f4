"""One attempt as its agent sees it: what its files say, and what was read of its spool."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from trials.agent.cgroups import group_at, group_path
from trials.agent.exits import exit_record, write_durably
from trials.agent.files import create_once, is_full_disk, read_json, to_json, write_atomically
from trials.agent.logs import read_log
from trials.agent.orders import send_order
from trials.agent.processes import boot_id, identity, is_alive, kill_tree, send_verified
from trials.agent.spool import SpoolReader
from trials.protocol import (
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
    OUTPUT_TAIL_BYTES,
    AttemptKey,
    ExitRecord,
    Launch,
    ObservedAttempt,
    ProcessRecord,
    ProtocolError,
    from_plain,
)

STOP_ORDER_TIMEOUT_S = 0.2  # for room in the queue of a fork server; then it is woken to look at the files


class HeldAttempt:
    """``changed`` is set whenever there may be something new to tell the service; ``ended`` once it has an exit."""

    def __init__(self, folder: Path, *, key: AttemptKey, nonce: str, lineage: str) -> None:
        self.folder = folder
        self.key = key
        self.nonce = nonce
        self.lineage = lineage
        self.supervisor: ProcessRecord | None = None
        self.process: ProcessRecord | None = None
        self.exit: ExitRecord | None = None
        self.devices: tuple[str, ...] = ()  # UUIDs of those it was given
        self.spool = SpoolReader(folder / FILE_SPOOL, folder / FILE_ACKNOWLEDGED)
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()
        self._seen_bytes = -1
        self._seen_wanted = 0
        self._folder = str(folder)  # as text: these files are looked at very often

    def look(self) -> None:
        """Take note of what its files say now."""
        before = (self.supervisor, self.process, self.exit, self._seen_bytes, self._seen_wanted)
        self.supervisor = self.supervisor or self._read(FILE_CLAIM, ProcessRecord)
        # The exit before the spool, which is complete once there is an exit.
        self._look_for_exit()
        self.process = self.process or self._read(FILE_PROCESS, ProcessRecord)
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
        )

    def is_supervised(self) -> bool:
        """Whether the very process that claimed it still runs, and has not recorded its end yet."""
        claim = self.supervisor
        self._look_for_exit()
        # A supervisor is there until the end is told to all; a fork server goes on to other attempts.
        if self.exit is not None and self.orders() is not None:
            return False
        return claim is not None and is_alive(pid=claim.pid, start_time=claim.start_time, boot=claim.boot_id)

    def trial_is_alive(self) -> bool:
        process = self.process
        return process is not None and is_alive(pid=process.pid, start_time=process.start_time, boot=process.boot_id)

    def order_stop(self, *, grace_s: float, reason: str) -> None:
        """From now on the trial is to stop, whoever dies; repeating it can only make the end earlier.

        On a full disk a supervisor is told by a signal alone, which gives the trial the grace of its experiment.
        """
        number, order = signal.SIGUSR1, to_json({"grace_s": grace_s, "reason": reason})
        try:
            write_atomically(str(self.folder / FILE_STOP), order, durable=True)
        except OSError as error:
            if not is_full_disk(error):
                raise
            number = signal.SIGTERM
        orders, told = self.orders(), {"stop": self.nonce, "grace_s": grace_s, "reason": reason}
        if orders is None:
            self.signal_supervisor(number)
        elif not send_order(orders, told, timeout_s=STOP_ORDER_TIMEOUT_S):
            self.signal_supervisor(signal.SIGUSR1)  # its queue of orders is full: it looks at the file

    def orders(self) -> str | None:
        """The socket of the fork server that has it; None for a supervisor, which has nothing else to follow."""
        found = (read_json(f"{self._folder}/{FILE_CLAIM}") or {}).get("orders")
        return found if isinstance(found, str) else None

    def signal_supervisor(self, number: int) -> None:
        if self.supervisor is not None:
            send_verified(number, pid=self.supervisor.pid, start_time=self.supervisor.start_time)

    def record_loss(self) -> None:
        """Its supervisor is gone without an exit record: kill what is left and write the record in its place."""
        claim = read_json(f"{self._folder}/{FILE_CLAIM}") or {}
        group = group_at(group_path(str(claim.get("groups", "")), self.nonce))
        kill_tree(None, self.nonce, group=group)
        if group is not None:
            group.remove()
        rebooted = self.supervisor is not None and self.supervisor.boot_id != boot_id()
        stop = read_json(str(self.folder / FILE_STOP))
        self._write_exit("host_rebooted" if rebooted else "supervisor_lost", stop, self._tail())

    def spend(self, cause: str, *, tail: str = "", reason: str | None = None) -> None:
        """End an attempt that never ran, so that it never will; does nothing if a supervisor was first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        own, claim = to_json(dict(identity_of_this_process())), str(self.folder / FILE_CLAIM)
        if not create_once(claim, own, durable=True):
            if read_json(claim) is not None:
                return
            write_atomically(claim, own, durable=True)  # a power loss took what stood in it, and who had made it
        self._write_exit(cause, None if reason is None else {"reason": reason}, tail)

    def _write_exit(self, cause: str, stop: dict[str, Any] | None, tail: str) -> None:
        path = self.folder / FILE_EXIT
        if not path.exists():
            reason = None if stop is None else str(stop.get("reason", "stopped"))
            write_durably(str(path), exit_record(cause, stop_reason=reason, tail=tail))

    def _tail(self) -> str:
        for name in (FILE_STDERR, FILE_STDOUT):
            data, _, _ = read_log(str(self.folder / name), offset=-OUTPUT_TAIL_BYTES, limit=OUTPUT_TAIL_BYTES)
            if data.strip():
                return data.decode(errors="replace").strip()
        return ""

    def _look_for_exit(self) -> None:
        if self.exit is not None:
            return
        value = read_json(f"{self._folder}/{FILE_EXIT}")
        self.exit = self._parsed(FILE_EXIT, value, ExitRecord)
        if value is not None:  # of a short trial it is the only record
            self.process = self.process or self._parsed(FILE_EXIT, value.get("process"), ProcessRecord)

    def _read(self, name: str, kind: type[Any]) -> Any:
        return self._parsed(name, read_json(f"{self._folder}/{name}"), kind)

    def _parsed(self, name: str, value: Any, kind: type[Any]) -> Any:
        try:
            return None if value is None else from_plain(kind, value, where=name)
        except ProtocolError:
            return None  # of another version: as good as not there


def _changed_at(path: str) -> int:
    """Of a file that is written anew; 0 where there is none."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  looked at very often
    except OSError:
        return 0


def identity_of_this_process() -> dict[str, str | int]:
    return identity(os.getpid())


def load_attempt(folder: Path) -> HeldAttempt | None:
    """The attempt prepared in ``folder``; None if the preparation was cut off."""
    try:
        data = json.loads((folder / FILE_ATTEMPT).read_bytes())
        data.pop("kind", None)
        launch: Launch = from_plain(Launch, data, where=FILE_ATTEMPT)
    except (OSError, ValueError):
        return None
    held = HeldAttempt(folder, key=launch.key, nonce=launch.nonce, lineage=launch.lineage)
    held.devices = tuple(device.uuid for device in launch.spec.devices)
    held.look()
    return held
