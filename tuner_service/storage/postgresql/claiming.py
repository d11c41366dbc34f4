"""Becoming the active service: waiting for the one there is, and taking over from one that is gone."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tuner_service.domain.errors import InUseError, StorageError, TunerServiceError, UnavailableError
from tuner_service.storage.faults import translated
from tuner_service.storage.postgresql.connecting import Address, ask
from tuner_service.storage.postgresql.lease import (
    LEASE_S,
    SEEN,
    Lease,
    ThisService,
    connect_for_lease,
    sessions_of,
    try_lock,
)
from tuner_service.storage.postgresql.owner import SILENCE_S, Owner, Renewals

if TYPE_CHECKING:
    import psycopg

LOOK_S = 0.1  # how often who waits looks
SHOWN_S = 1.0  # how often it says that it is there
RECONNECT_S = 0.5
FIRST_EPOCHS = 1 << 62
FORGOTTEN_AFTER = "1 day"  # rows of services that were killed

_TABLES = (
    """CREATE TABLE IF NOT EXISTS tuner_lease (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), epoch bigint NOT NULL, renewals bigint NOT NULL,
        service text NOT NULL, expires_at timestamptz NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS tuner_services (
        id text PRIMARY KEY, host text NOT NULL, pid bigint NOT NULL, process text NOT NULL, version text NOT NULL,
        home text NOT NULL, url text NOT NULL, role text NOT NULL, started_at timestamptz NOT NULL,
        seen_at timestamptz NOT NULL)""",
)
_LOOK = """SELECT l.service, l.epoch, l.renewals, l.expires_at <= clock_timestamp(), s.host, s.pid, s.process, s.home
    FROM tuner_lease l LEFT JOIN tuner_services s ON s.id = l.service"""
END_SESSIONS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = %s AND datname = current_database() AND pid <> pg_backend_pid()"""

log = logging.getLogger(__name__)


def acquire(address: Address, me: ThisService, *, waits: Callable[[], None] | None) -> Lease:
    """The lease, once nobody else has it. StorageError, naming the owner, where somebody has.

    A standby, which has ``waits``, waits for as long as it takes, whatever becomes of the server meanwhile; that is
    called when it begins to. One that is told to end meanwhile takes its row away.
    """
    try:
        return _acquired(address, me, waits)
    except (SystemExit, KeyboardInterrupt):
        if waits is not None:
            _forget(address, me)
        raise


def _acquired(address: Address, me: ThisService, waits: Callable[[], None] | None) -> Lease:
    connection = _connected(address, me)
    while True:
        try:
            epoch = _Claim(connection, me, waits).epoch()
            return Lease(address, connection, me, epoch)
        except UnavailableError:
            connection.close()
            if waits is None:
                raise
        except BaseException:
            connection.close()
            raise
        connection = _connected_again(address, me)


def _forget(address: Address, me: ThisService) -> None:
    """Nobody is to look for a service that has ended in order. Where the server does not answer, the row stays."""
    brief = {"statement_timeout": "1000", "lock_timeout": "1000"}
    with (
        contextlib.suppress(TunerServiceError),
        translated(),
        contextlib.closing(address.connect(**brief)) as connection,
    ):
        connection.execute("DELETE FROM tuner_services WHERE id = %s", (me.id,))


def _connected(address: Address, me: ThisService) -> psycopg.Connection[Any]:
    with translated():
        return connect_for_lease(address, me)


def _connected_again(address: Address, me: ThisService) -> psycopg.Connection[Any]:
    while True:
        time.sleep(RECONNECT_S)
        try:
            return _connected(address, me)
        except UnavailableError as exc:
            log.warning("database_unreachable", extra={"error": str(exc)})


class _Claim:
    """One service's wait for the lease, on one connection."""

    def __init__(self, connection: psycopg.Connection[Any], me: ThisService, waits: Callable[[], None] | None) -> None:
        self._connection, self._me, self._waits = connection, me, waits
        self._has_lock = False
        self._seen = Renewals()
        self._shown_at = 0.0

    def epoch(self) -> int:
        """Of the lease that is this service's now."""
        while True:
            self._has_lock = self._has_lock or try_lock(self._connection)
            if self._has_lock:
                self._make_tables()
            owner = self._look() if self._has_lock or self._are_tables_there() else None
            now = time.monotonic()
            is_alive = owner is not None and self._seen.has_renewed(owner, now)
            if self._may_take(owner, now) and (epoch := self._take(owner)) is not None:
                return epoch
            if owner is not None:
                if is_alive:
                    self._give_way(owner)
                self._show(now)
            time.sleep(LOOK_S)

    def _may_take(self, owner: Owner | None, now: float) -> bool:
        if owner is None:
            return self._has_lock
        return self._seen.has_run_out(owner, now) or self._is_gone(owner, now)

    def _is_gone(self, owner: Owner, now: float) -> bool:
        """Its session has ended; and so has its process, or it says nothing."""
        return self._has_lock and (owner.has_died or self._seen.silent_s(now) > SILENCE_S)

    def _give_way(self, owner: Owner) -> None:
        if self._waits is None:
            raise InUseError(
                f"the database is in use by {owner}; stop that service, name another database with --db, or let this "
                "one wait for its end with `tuner serve --standby`"
            )
        if self._has_lock:  # it lost its session, not its life
            ask(self._connection, "SELECT pg_advisory_unlock_all()")
            self._has_lock = False

    def _show(self, now: float) -> None:
        if self._waits is not None and now - self._shown_at > SHOWN_S:
            if not self._shown_at:
                self._waits()
                self._sweep()  # no row comes without it: what killed ones leave is bounded
            self._shown_at = now
            with translated():
                self._connection.execute(SEEN, self._me.row())

    def _take(self, owner: Owner | None) -> int | None:
        """Wait for a transaction of the one before, and raise the epoch. None where something has changed meanwhile."""
        if owner is not None:
            self._end_sessions(owner)
        with translated(), self._connection.transaction():
            self._connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '10s'")
            row = ask(self._connection, "SELECT epoch, renewals FROM tuner_lease FOR UPDATE")
            if row != (None if owner is None else (owner.epoch, owner.renewals)):
                return None
            # Where somebody has deleted the row, a service of any epoch before may be asleep: never the same again.
            epoch = secrets.randbelow(FIRST_EPOCHS) + 1 if row is None else int(row[0]) + 1
            self._connection.execute(
                "INSERT INTO tuner_lease VALUES (true, %s, 0, %s, clock_timestamp() + %s * interval '1 s') "
                "ON CONFLICT (one) DO UPDATE SET epoch = excluded.epoch, renewals = 0, service = excluded.service, "
                "expires_at = excluded.expires_at",
                (epoch, self._me.id, LEASE_S),
            )
            self._connection.execute(SEEN, replace(self._me, role="active").row())
        self._sweep()
        if owner is not None and owner.host is not None:  # one that ended in order has taken its row away
            log.warning("lease_taken_over", extra={"epoch": epoch, "from": str(owner)})
        return epoch

    def _sweep(self) -> None:
        """Rows of services long gone."""
        with translated():
            self._connection.execute(
                "DELETE FROM tuner_services WHERE seen_at < clock_timestamp() - %s::interval", (FORGOTTEN_AFTER,)
            )

    def _end_sessions(self, owner: Owner) -> None:
        """A stopped process's transaction would be waited for. An owner that lives connects again, with its epoch."""
        with contextlib.suppress(StorageError), translated():  # of another role: its end is not ours to order
            self._connection.execute(END_SESSIONS, (sessions_of(owner.service),))

    def _make_tables(self) -> None:
        with translated():
            for table in _TABLES:
                self._connection.execute(table)

    def _are_tables_there(self) -> bool:
        row = ask(self._connection, "SELECT to_regclass('tuner_services') IS NOT NULL")
        return row is not None and bool(row[0])

    def _look(self) -> Owner | None:
        row = ask(self._connection, _LOOK)
        return None if row is None else Owner(*row)
