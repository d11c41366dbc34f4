"""One active service on a database that many machines reach.

The row of ``tuner_lease`` names the owner and an epoch. Every transaction that writes holds a lock on it to its end and
finds its own epoch there, or is refused. Who takes over locks the row for itself, which waits for such a transaction,
and raises the epoch: from there on the owner before can write nothing, whatever it believes.

That the lease has run out permits a takeover and ends nobody: an owner that was cut off for a while renews by its epoch
if nobody came. Beside it the owner's session holds an advisory lock, which the server gives back when the process is
gone, so that nobody waits for the lease of a process that was killed.

Each renewal is another version of the row, and the server removes none that a transaction which somebody has left open
might still see: after a day, whoever looks for the row would read more than a hundred thousand. So the owner asks for
it at the place where its last renewal has put it, and looks for it only where it is not there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner_service.config import package_version
from tuner_service.domain.errors import StorageError, TunerServiceError
from tuner_service.storage.faults import TableMissingError, translated
from tuner_service.storage.postgresql.connecting import ISOLATION, Address, ask

if TYPE_CHECKING:
    import psycopg

LEASE_S = 3.0  # without a renewal; longer than a stopped owner's transaction is left alone
RENEW_S = 0.5
SHOWN_S = 2.5  # how often an owner of which nothing has changed says that it is there, to whoever asks the database
WATCH_S = 60.0  # how often it looks who has left a transaction open
OPEN_FOR_S = 3_600.0  # for so long
APPLICATION = 0x54756E65  # the first half of the advisory lock's name; the other is the schema's

SEEN = """INSERT INTO tuner_services VALUES (%s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp(), clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET url = excluded.url, role = excluded.role, seen_at = excluded.seen_at"""
_RENEW = """UPDATE tuner_lease SET renewals = renewals + 1, expires_at = clock_timestamp() + %s * interval '1 s'
    WHERE epoch = %s RETURNING ctid::text"""
_RENEW_THERE = """UPDATE tuner_lease SET renewals = renewals + 1, expires_at = clock_timestamp() + %s * interval '1 s'
    WHERE ctid = %s::tid AND epoch = %s RETURNING ctid::text"""
# A renewal says that the owner lives, and waits for no disk and no replica. Where commits hang for want of one, a
# takeover would hang as well, and show what no replica has: decision 64.
_AT_ONCE = "SET synchronous_commit = off"
_TRY_LOCK = "SELECT pg_try_advisory_lock(%s, current_schema()::regnamespace::oid::int)"
_SESSION = "SELECT pg_backend_pid()"
_FENCE = "SELECT epoch, 0 FROM tuner_lease WHERE epoch = %s FOR KEY SHARE"
_FENCE_THERE = "SELECT epoch, 0 FROM tuner_lease WHERE ctid = %s::tid AND epoch = %s FOR KEY SHARE"
_FENCE_WITH_NEWEST = """SELECT epoch, coalesce((SELECT max(sequence) FROM commits), 0)
    FROM tuner_lease WHERE epoch = %s FOR KEY SHARE OF tuner_lease"""
_FENCE_WITH_NEWEST_THERE = """SELECT epoch, coalesce((SELECT max(sequence) FROM commits), 0)
    FROM tuner_lease WHERE ctid = %s::tid AND epoch = %s FOR KEY SHARE OF tuner_lease"""
_LEFT_OPEN = """SELECT pid, application_name, usename, extract(epoch FROM clock_timestamp() - xact_start)::float8
    FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
    AND application_name NOT LIKE 'tuner-service%%' AND xact_start < clock_timestamp() - %s * interval '1 s'
    ORDER BY xact_start LIMIT 1"""

log = logging.getLogger(__name__)


class LeaseLostError(StorageError):
    """Another service has the database now, or it is not what this service has written any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisService:
    """How a service stands in the database."""

    home: str = ""
    url: str = ""
    role: str = "standby"
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def sessions(self) -> str:
        """The name of those that must be gone before another service may write."""
        return sessions_of(self.id)

    def row(self) -> tuple[object, ...]:
        process = process_mark(os.getpid())
        where = (self.id, socket.gethostname(), os.getpid(), process)
        return (*where, package_version(), self.home, self.url, self.role)


def sessions_of(service: str) -> str:
    return f"tuner-service {service}"


class Lease:
    """Held from ``acquire`` to ``release``; a thread renews it."""

    def __init__(self, address: Address, connection: psycopg.Connection[Any], me: ThisService, epoch: int) -> None:
        self.epoch = epoch
        self.acknowledged = 0  # the newest commit that somebody was told of; 0: not known yet
        self._address, self._me = address, replace(me, role="active")
        self.session = session_of(connection)
        self._connection: psycopg.Connection[Any] | None = connection
        self._has_lock = False
        with translated():
            connection.execute(_AT_ONCE)
        self._lost, self._place = "", ""  # where its row was put by the last renewal
        self._shown: ThisService | None = None
        self._shown_at = self._watched_at = 0.0
        self._left_open: tuple[int, str] | None = None  # by which session, and that in words
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    # ── whoever writes ──────────────────────────────────────────────────────────────────────────
    def fence(self, connection: psycopg.Connection[Any]) -> None:
        """Within a transaction: nobody else writes until it has ended.

        LeaseLostError where somebody else may write, and where what was acknowledged is not there any more, because a
        backup was restored, or a replica that had not received everything is the server now.
        """
        known = self.acknowledged
        try:
            row = self._fenced(connection, has_newest=bool(known))
        except TableMissingError:
            self._lost = self._gone()
            raise LeaseLostError(self._lost) from None
        if row is None:
            self._lose(connection)
        elif row[1] < known:
            self._lost = (
                f"the database {self._address.shown} has gone back to an earlier state: its newest commit is {row[1]}, "
                f"and commit {known} had been acknowledged (a backup was restored, or a replica took over that had not "
                "received everything); this service has ended, and the next one goes on from what is there"
            )
            log.error("database_went_back", extra={"newest": row[1], "acknowledged": known})
        if self._lost:
            raise LeaseLostError(self._lost)

    def _fenced(self, connection: psycopg.Connection[Any], *, has_newest: bool) -> tuple[Any, ...] | None:
        there, anywhere = (_FENCE_WITH_NEWEST_THERE, _FENCE_WITH_NEWEST) if has_newest else (_FENCE_THERE, _FENCE)
        place = self._place
        row = ask(connection, there, place, self.epoch) if place else None
        return ask(connection, anywhere, self.epoch) if row is None else row  # renewed meanwhile, or not ours any more

    @property
    def sessions(self) -> str:
        return self._me.sessions

    def warning(self) -> str:
        """What people should know of the server before it is trouble; "" where there is nothing. Any thread."""
        left_open = self._left_open
        return "" if left_open is None else left_open[1]

    def is_in_place(self) -> bool:
        return not self._lost

    def why_not_in_place(self) -> str:
        return self._lost

    def announce(self, url: str) -> None:
        """Where this service listens, for whoever asks the database."""
        self._me = replace(self._me, url=url)

    def release(self) -> None:
        """The next service need not wait. Safe to repeat."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join()
        with contextlib.suppress(TunerServiceError), translated():
            connection = self._connection or connect_for_lease(self._address, self._me)
            with contextlib.closing(connection):
                connection.execute(
                    "UPDATE tuner_lease SET expires_at = clock_timestamp() WHERE epoch = %s", (self.epoch,)
                )
                connection.execute("DELETE FROM tuner_services WHERE id = %s", (self._me.id,))

    # ── the thread ──────────────────────────────────────────────────────────────────────────────
    def _keep(self) -> None:
        trouble = ""
        while not self._closing.wait(RENEW_S) and not self._lost:
            try:
                with translated():
                    self._renew()
                trouble = ""
            except TableMissingError:
                self._lost = self._gone()
            except Exception as exc:  # noqa: BLE001  # whatever it was, the lease is wanted for as long as we live
                if not trouble:
                    log.warning("lease_not_renewed", extra={"error": str(exc)})
                trouble = str(exc) or type(exc).__name__
                self._drop_connection()

    def _renew(self) -> None:
        if self._connection is None:
            self._connection = connect_for_lease(self._address, self._me)
            self._connection.execute(_AT_ONCE)
        row = ask(self._connection, _RENEW_THERE, LEASE_S, self._place, self.epoch) if self._place else None
        row = row or ask(self._connection, _RENEW, LEASE_S, self.epoch)
        if row is None:
            self._lose(self._connection)
            return
        self._place = str(row[0])
        self._has_lock = self._has_lock or try_lock(self._connection)
        now, me = time.monotonic(), self._me
        if me is not self._shown or now - self._shown_at >= SHOWN_S:
            self._connection.execute(SEEN, me.row())
            self._shown, self._shown_at = me, now
        if now - self._watched_at >= WATCH_S:
            self._watched_at = now
            with contextlib.suppress(TunerServiceError):
                self._watch(self._connection)

    def _watch(self, connection: psycopg.Connection[Any]) -> None:
        """Somebody's transaction that is open for long keeps the server from removing anything that came after it."""
        row = ask(connection, _LEFT_OPEN, OPEN_FOR_S)
        if row is None:
            self._left_open = None
            return
        pid, program, user, seconds = row
        text = (
            f"a transaction of {program or 'a program'} (user {user}, session {pid}) is open for {seconds / 3600:.0f} "
            f"h: meanwhile the server gives back no room of what changes in {self._address.shown}, and gets slower; "
            f"end it there, or with SELECT pg_terminate_backend({pid})"
        )
        if self._left_open is None or self._left_open[0] != pid:
            log.warning("transaction_left_open", extra={"pid": pid, "why": text})
        self._left_open = pid, text

    def _lose(self, connection: psycopg.Connection[Any]) -> None:
        if ask(connection, "SELECT epoch FROM tuner_lease") is None:
            self._lost = self._gone()
            return
        self._lost = (
            f"another service has taken the database {self._address.shown} over; this one has ended, and what it had "
            "not been answered for is asked of that one again: `tuner ps --services` shows which it is"
        )

    def _gone(self) -> str:
        return (
            f"the row of the lease is gone from the database {self._address.shown} (table tuner_lease), so anybody "
            "could write: it was deleted, or the database was dropped and made anew; this service has ended: start it "
            "again, and leave that table alone"
        )

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection, self._has_lock = None, False


def connect_for_lease(address: Address, me: ThisService) -> psycopg.Connection[Any]:
    """A hanging server is noticed in time for another attempt."""
    return address.connect(name=me.sessions, statement_timeout="2000", lock_timeout="1500", **ISOLATION)


def session_of(connection: psycopg.Connection[Any]) -> int:
    """The server's process that has it, as the server says: a pool in between would say something else."""
    return int((ask(connection, _SESSION) or (0,))[0])


def try_lock(connection: psycopg.Connection[Any]) -> bool:
    """Whether this session has the advisory lock now. Each success is given back on its own, or with the session."""
    row = ask(connection, _TRY_LOCK, APPLICATION)
    return row is not None and bool(row[0])


def process_mark(pid: int) -> str:
    """Boot, process namespace, number and start: of no other process of any time. "" where none lives."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    # A process that nobody has waited for has ended all the same.
    return "" if fields[0] in "ZX" else f"{boot} {namespace} {pid} {fields[19]}"
